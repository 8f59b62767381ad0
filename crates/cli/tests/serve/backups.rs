//! A backup of three processes under writes, restored into a cluster of another number of nodes and groups.

use std::path::Path;

use super::writer::Writer;
use super::*;

/// Number of keys of one slot, so that reading them takes several steps.
const KEYS: u64 = 6000;
/// Writers, each with pairs of its own that it sets again and again while the keys are read.
const WRITERS: u64 = 4;
const PAIRS: u64 = 2;

fn value(number: u64) -> String {
    match number % 3 {
        // Compressible, and not.
        0 => format!("{number}:{}", "esker ".repeat(500)),
        _ => (number..number + 300)
            .map(|part| format!("{:08x}", part.wrapping_mul(0x9e37_79b9) as u32))
            .collect(),
    }
}

/// The pair of keys that a writer sets to a number in one command. They are read in different steps, mostly.
fn pair(writer: u64, number: u64) -> [String; 2] {
    let pair = number % PAIRS;
    [format!("{{t}}first:{writer}:{pair}"), format!("second:{{t}}:{writer}:{pair}")]
}

fn fill(cluster: &mut Cluster) {
    for first in (0..KEYS).step_by(100) {
        let mut words = vec!["MSET".to_owned()];
        (first..first + 100).for_each(|number| words.extend([format!("{{t}}key:{number}"), value(number)]));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        while cluster.ask(&words) != Reply::Text("OK".into()) {}
    }
    for number in 0..50 {
        let (key, value) = (format!("spread:{number}"), value(number));
        while cluster.ask(&["SET", &key, &value, "PXAT", &format!("{}", 4_000_000_000_000_u64 + number)])
            != Reply::Text("OK".into())
        {}
    }
    let long = "long value ".repeat(300_000);
    while cluster.ask(&["SET", "long", &long]) != Reply::Text("OK".into()) {}
    while cluster.ask(&["SET", "short-lived", "x", "PX", "1"]) != Reply::Text("OK".into()) {}
    while !matches!(cluster.ask(&["DEL", "{t}key:7"]), Reply::Text(_)) {}
}

fn backup(cluster: &Cluster, node: usize, verb: &str, directory: &str) -> Result<String, String> {
    cluster.esker_cluster(node, &[verb, directory])
}

/// Checks a restored cluster. Pairs are equal, and the newest of each writer is not older than `acknowledged`.
fn check(cluster: &mut Cluster, acknowledged: &[u64]) {
    for number in 0..KEYS {
        let expected = if number == 7 { Reply::Null } else { Reply::Text(value(number)) };
        assert_eq!(cluster.ask(&["GET", &format!("{{t}}key:{number}")]), expected, "key {number}");
    }
    for number in 0..50 {
        let key = format!("spread:{number}");
        assert_eq!(cluster.ask(&["GET", &key]), Reply::Text(value(number)));
        let at = format!("{}", 4_000_000_000_000_u64 + number);
        assert_eq!(cluster.ask(&["PEXPIRETIME", &key]), Reply::Text(at));
    }
    assert_eq!(cluster.ask(&["STRLEN", "long"]), Reply::Text("3300000".into()));
    assert_eq!(cluster.ask(&["GET", "short-lived"]), Reply::Null);
    for (writer, acknowledged) in (0..).zip(acknowledged) {
        let mut newest = 0;
        for number in 0..PAIRS {
            let [first, second] = pair(writer, number).map(|key| cluster.ask(&["GET", &key]));
            assert_eq!(first, second, "half of a command is in the backup");
            let Reply::Text(text) = first else { panic!("pair {number} is missing: {first:?}") };
            newest = newest.max(text.parse().unwrap());
        }
        assert!(newest >= *acknowledged, "{newest}: {acknowledged} was acknowledged before the backup");
    }
}

#[test]
fn backup_under_writes_is_restored_into_another_size() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_replicated();
    fill(&mut cluster);
    let addresses = cluster.alive();
    let start = |writer| {
        Writer::start(addresses.clone(), move |number| {
            let [first, second] = pair(writer, number);
            vec!["MSET".into(), first, number.to_string(), second, number.to_string()]
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(start).collect();
    while writers.iter().any(|writer| writer.last() < 2 * PAIRS) {
        sleep(Duration::from_millis(20));
    }
    let acknowledged: Vec<u64> = writers.iter().map(Writer::last).collect();
    let shown = backup(&cluster, 1, "backup", "saved").unwrap();
    assert!(
        shown.contains("backed up 12 groups, each group at its index; not one instant across groups"),
        "{shown}"
    );
    let refused = backup(&cluster, 1, "backup", "saved").unwrap_err();
    assert!(refused.contains("saved exists"), "{refused}");
    // A node is killed meanwhile: there is a whole backup, or none.
    let from = cluster.resp(0);
    let taking =
        esker(cluster.directory.path(), &["cluster", "backup", "second", "--from", &from]).spawn().unwrap();
    sleep(Duration::from_millis(300));
    cluster.kill(2);
    let taken = taking.wait_with_output().unwrap().status.success();
    let path = |name: &str| cluster.directory.path().join(name);
    assert_eq!(path("second").exists(), taken);
    assert!(!path("second.partial").exists());
    for (writer, acknowledged) in writers.into_iter().zip(&acknowledged) {
        let numbers = writer.end();
        assert!(numbers.last().unwrap() > acknowledged, "nothing was written beside the backup");
    }

    let directory = cluster.directory.path().to_owned();
    let verify = |name: &str| esker(&directory, &["cluster", "verify", name]).output().unwrap();
    for name in ["saved", "second"].into_iter().filter(|name| directory.join(name).exists()) {
        let verified = verify(name);
        assert!(verified.status.success(), "{name}: {}", String::from_utf8_lossy(&verified.stderr));
    }
    // The first cluster stops; its directory has the backups.
    (0..2).for_each(|node| cluster.kill(node));
    let mut other = Cluster::start_as(1, BTreeSet::new(), Some("5"));
    damaged_backup_is_refused(&directory, &mut other);
    let restored = restore(&directory, "saved", &other).unwrap();
    assert!(restored.contains("restored 12 groups: "), "{restored}");
    check(&mut other, &acknowledged);
    let keys = KEYS - 1 + 50 + 1 + 2 * WRITERS * PAIRS;
    assert_eq!(other.ask(&["DBSIZE"]), Reply::Text(keys.to_string()));
    let refused = restore(&directory, "saved", &other).unwrap_err();
    assert!(refused.contains(&format!("the cluster has {keys} keys")), "{refused}");
}

fn restore(directory: &Path, name: &str, to: &Cluster) -> Result<String, String> {
    let output = esker(directory, &["cluster", "restore", name, "--from", &to.resp(0)]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Damages copies of the backup in several ways. Nothing of them is written.
fn damaged_backup_is_refused(directory: &Path, other: &mut Cluster) {
    let files: Vec<_> =
        std::fs::read_dir(directory.join("saved")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 13, "twelve groups and the manifest");
    let largest =
        files.iter().max_by_key(|file| file.metadata().unwrap().len()).unwrap().file_name().unwrap();
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 4] = [
        ("is damaged at byte", |file, _| {
            let mut bytes = std::fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(file, bytes).unwrap();
        }),
        ("bytes too early", |file, _| {
            let bytes = std::fs::read(file).unwrap();
            std::fs::write(file, &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("cannot read", |file, _| std::fs::remove_file(file).unwrap()),
        ("the checksum does not match", |file, other| {
            std::fs::copy(other, file).unwrap();
        }),
    ];
    for (at, (expected, damage)) in damages.into_iter().enumerate() {
        let name = format!("damaged{at}");
        let copy = directory.join(&name);
        std::fs::create_dir(&copy).unwrap();
        for file in &files {
            std::fs::copy(file, copy.join(file.file_name().unwrap())).unwrap();
        }
        let smaller = files.iter().filter(|file| file.extension().is_some_and(|end| end == "esker"));
        let smaller = smaller.min_by_key(|file| file.metadata().unwrap().len()).unwrap();
        damage(&copy.join(largest), smaller);
        let refused = restore(directory, &name, other).unwrap_err();
        assert!(
            refused.contains(expected) && refused.contains(largest.to_str().unwrap()),
            "{expected}: {refused}"
        );
        assert_eq!(other.ask(&["DBSIZE"]), Reply::Text("0".into()), "{expected}");
    }
}
