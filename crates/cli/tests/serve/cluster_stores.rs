//! Stores of nodes of a cluster, examined while no server has them open.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use super::super::inspect::{json, run};
use super::*;

/// Bytes in front of the first slot of a store's file.
const HEAD: u64 = 1 << 20;

#[test]
fn node_store_check_finds_damage_of_the_log_alone() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_replicated();
    for number in 0..200 {
        let reply = cluster.ask(&["SET", &format!("key:{number}"), "value"]);
        assert_eq!(reply, Reply::Text("OK".into()));
    }
    cluster.kill(0);
    cluster.clients.clear();
    cluster.nodes[1].take().expect("it runs").stop(Signal::TERM);
    let path = cluster.directory.path();
    for node in ["node0", "node1"] {
        let report = json(path, &["check", node]);
        assert_eq!(report["well"], true, "{node}: {report}");
        assert_eq!(report["index"]["outcome"], "compared", "{node}: {report}");
        let (code, listed, _) = run(path, &["scan", node, "--database", "all", "--keys-only"]);
        assert_eq!(
            (code, Some(listed.lines().count() as u64)),
            (0, report["counts"]["keys"].as_u64()),
            "{node}: {listed}"
        );
        // Writes that a killed node has applied may be in its log alone, and a follower may not have applied the last writes.
        let has_keys = listed.lines().any(|line| line.starts_with("key:"));
        assert!(has_keys || node == "node0", "{node}: {listed}");
    }

    // A byte of each record of the log.
    let segments = json(path, &["segments", "node1"]);
    let log = segments["slots"].as_array().unwrap().iter().find(|slot| slot["class"] == "other");
    let slot = log.expect("a segment of the log")["slot"].as_u64().unwrap();
    let at = HEAD + slot * segments["segment_bytes"].as_u64().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path.join("node1/data.esker")).unwrap();
    let mut bytes = vec![0; 64 << 10];
    file.read_exact_at(&mut bytes, at).unwrap();
    for start in (4096..bytes.len()).step_by(4096) {
        bytes[start + 100] ^= 0x55;
    }
    file.write_all_at(&bytes, at).unwrap();
    let (code, report, _) = run(path, &["check", "node1"]);
    assert!(code == 1 && report.contains("of the log of the groups"), "{report}");
    let [resp, peers] = [0, 1].map(|port| format!("127.0.0.1:{}", cluster.ports[1][port]));
    let arguments =
        ["serve", "--dir", "node1", "--resp", &resp, "--cluster", &peers, "--cluster-secret", "s"];
    let (code, _, error) = run(path, &arguments);
    assert!(code == 1 && error.contains("esker cluster remove"), "{error}");
}
