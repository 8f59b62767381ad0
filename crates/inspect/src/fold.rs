//! Folds the superseded versions of a key, of which a log with much garbage has any number, into a counter.

use crate::versions::{Version, count};

/// Replaces versions that no rule asks for, in a sorted list, by one counter per key. Of each key stay:
///
/// * all copies of its newest version: one of them may be its current record;
/// * if all of those are damaged, the newest older record that is not, because it has the key's name.
pub(crate) fn fold(sorted: &mut Vec<Version>) {
    let (mut at, mut kept) = (0, 0);
    while at < sorted.len() {
        let of_key = sorted[at..].iter().take_while(|version| version.hash == sorted[at].hash).count();
        kept = fold_key(sorted, at, at + of_key, kept);
        at += of_key;
    }
    sorted.truncate(kept);
}

/// Folds the versions of one key, which lie in `start..end`, and writes the result to `kept` onwards, which
/// is not beyond `start`. Returns its end.
fn fold_key(sorted: &mut [Version], start: usize, end: usize, mut kept: usize) -> usize {
    let newest = sorted[start];
    let is_copy = |version: &&Version| version.sequence == newest.sequence && !version.is_counter();
    let copies = sorted[start..end].iter().take_while(is_copy).count();
    let is_damaged = sorted[start..start + copies].iter().all(Version::is_damaged);
    let older = start + copies..end;
    let named = older.clone().find(|at| is_damaged && !sorted[*at].is_damaged());
    let folded = count(&sorted[older]) - u64::from(named.is_some());
    for at in (start..start + copies).chain(named) {
        sorted[kept] = sorted[at];
        kept += 1;
    }
    if folded > 0 {
        sorted[kept] = Version::counter(newest.hash, folded);
        kept += 1;
    }
    kept
}

#[cfg(test)]
mod tests {
    use esker_log::{Entry, KeyHash, Kind, Tier};

    use super::*;

    fn version(key: u64, sequence: u64, slot: u32, damaged: bool) -> Version {
        let entry = Entry {
            key_hash: KeyHash { slot: key, check: key },
            sequence,
            offset: 4096,
            bytes: 64,
            kind: Kind::Put,
            expansion: 0,
            expires_at_ms: None,
        };
        Version::new(Tier::Capacity, slot, 0, &entry, damaged)
    }

    fn folded(versions: &[Version]) -> Vec<Version> {
        let mut folded = versions.to_vec();
        fold(&mut folded);
        assert_eq!(count(&folded), count(versions), "no version is lost from the count");
        folded
    }

    #[test]
    fn older_versions_become_a_counter() {
        let of_key = |key| {
            let older = (1..9).rev().map(move |sequence| version(key, sequence, 3, false));
            [version(key, 9, 0, false), version(key, 9, 1, true)].into_iter().chain(older)
        };
        let all: Vec<Version> = of_key(1).chain([version(2, 5, 0, false)]).chain(of_key(3)).collect();
        let shorter = folded(&all);
        let lengths: Vec<usize> = shorter.chunk_by(|a, b| a.hash == b.hash).map(<[Version]>::len).collect();
        assert_eq!(lengths, [3, 1, 3]);
        assert_eq!((shorter[2].count(), shorter[2].is_counter()), (8, true));
        assert_eq!(folded(&shorter), shorter, "nothing is left to fold");
    }

    #[test]
    fn a_damaged_newest_version_keeps_one_that_names_its_key() {
        let all = [
            version(1, 9, 0, true),
            version(1, 8, 1, true),
            version(1, 7, 2, false),
            version(1, 6, 3, false),
        ];
        let shorter = folded(&all);
        assert_eq!(shorter[..2], [all[0], all[2]]);
        assert_eq!((shorter.len(), shorter[2].count()), (3, 2));
        let newer = [&[version(1, 10, 4, false)], &shorter[..]].concat();
        assert_eq!(folded(&newer)[1], Version::counter(all[0].hash, 4));
    }
}
