//! Tests of the log's contents.

use super::*;

fn place(segment: u64, offset: u32) -> LogPlace {
    LogPlace { segment, slot: segment as u32, offset, bytes: 10 }
}

fn entry(index: u64) -> LogKey {
    LogKey::Entry { group: 1, index }
}

#[test]
fn log_segments_die_in_order_after_replacement_or_purge() {
    let mut log = LogContents::default();
    log.add_segment(1, 1);
    log.apply(LogKey::State { group: 1, number: 0 }, place(1, 1), b"vote");
    (1..4).for_each(|index| log.apply(entry(index), place(1, index as u32 + 1), b""));
    log.add_segment(2, 2);
    log.apply(entry(4), place(2, 1), b"");
    log.apply(LogKey::Purge { group: 1, through: 3 }, place(2, 2), b"note");
    assert_eq!((log.dead_through(), log.range(1)), (None, 4..5), "the vote is still in the first");
    assert_eq!(log.oldest_records(), [(LogKey::State { group: 1, number: 0 }, place(1, 1))]);
    log.apply(LogKey::State { group: 1, number: 0 }, place(2, 3), b"vote");
    assert_eq!(log.dead_through(), Some(1));
    assert!(log.take_dead(0).is_none());
    assert_eq!(log.take_dead(1).map(|held| held.slot), Some(1));
    log.apply(LogKey::Truncate { group: 1, from: 4 }, place(2, 4), b"");
    assert_eq!((log.dead_through(), log.range(1), log.live_bytes()), (None, 4..4, 20));
    assert_eq!(log.purged(1), Some((3, Bytes::from_static(b"note"))));
}

#[test]
fn hole_between_entries_or_behind_the_purged_is_found() {
    let mut log = LogContents::default();
    log.add_segment(1, 1);
    [5, 6, 8].into_iter().for_each(|index| log.apply(entry(index), place(1, index as u32), b""));
    assert_eq!(log.first_hole(), Some((1, 7)));
    log.apply(entry(7), place(1, 20), b"");
    assert_eq!(log.first_hole(), None, "entries that were copied forward fill their place");
    log.apply(LogKey::Purge { group: 1, through: 2 }, place(1, 21), b"");
    assert_eq!(log.first_hole(), Some((1, 3)));
}
