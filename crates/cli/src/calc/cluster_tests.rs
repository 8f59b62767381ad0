//! Estimates of clusters.

use clap::Parser;

use super::{Arguments, Cluster, Estimate, estimated};

#[derive(Parser)]
struct Call {
    #[command(flatten)]
    arguments: Arguments,
}

fn parsed(words: &str) -> Result<Arguments, String> {
    let words = format!("calc --keys 120m --key-size 16 --value-size 1008 {words}");
    Call::try_parse_from(words.split(' ')).map(|call| call.arguments).map_err(|error| error.to_string())
}

fn called(words: &str) -> (Estimate, Cluster) {
    let (_, estimate, cluster) = estimated(&parsed(words).unwrap()).unwrap();
    (estimate, cluster.expect("--nodes is given"))
}

#[test]
fn node_holds_its_groups_and_those_of_a_lost_one() {
    let (node, six) = called("--nodes 6");
    assert_eq!((six.group_keys, six.group_bytes), (10_000_000, 10_240_000_000));
    assert_eq!((six.held_least, six.held_most, six.held_after_loss), (6, 6, 8));
    let alone = |keys: &str| {
        let words = format!("calc --keys {keys} --key-size 16 --value-size 1008");
        estimated(&Call::parse_from(words.split(' ')).arguments).unwrap()
    };
    let (_, same, none) = alone("80m");
    assert!(none.is_none());
    assert_eq!((node.live_bytes, node.capacity_bytes), (same.live_bytes, same.capacity_bytes));
    assert!(six.memory_bytes > node.memory_bytes + (80 << 20));
    assert_eq!(six.losses_survived, 1);
    let (_, five) = called("--nodes 6 --replicas 5");
    assert_eq!((five.held_most, five.losses_survived), (10, 2));
}

#[test]
fn moves_and_heartbeats_follow_the_arithmetic_of_the_decision() {
    let (_, three) = called("--nodes 3");
    let added = three.addition.unwrap();
    assert_eq!((added.copies, added.bytes), (9, 92_160_000_000));
    assert!((900.0..950.0).contains(&added.seconds), "9 groups of 10.24 GB at 100 MB/s: {}", added.seconds);
    assert_eq!(three.loss.unwrap().copies, 0);
    assert!(three.drain.is_none());
    assert_eq!(three.heartbeats_per_s, 10 * (12 * 2 + 2));
    let (_, faster) = called("--nodes 3 --copy-rate 1GB");
    assert!(faster.addition.unwrap().seconds < 95.0);
    let (_, most) = called("--nodes 64");
    assert!(most.addition.is_none(), "64 nodes are the limit");
    assert_eq!(most.report_bytes_per_s, 63 * 5 * (64 * 35 + 12 * 80) / 2);
}

#[test]
fn impossible_clusters_are_refused_with_the_limit() {
    let why = |words: &str| estimated(&parsed(words).unwrap()).err().unwrap();
    assert_eq!(why("--nodes 0"), "--nodes is 0; a cluster has 1 to 64 nodes");
    assert_eq!(why("--nodes 65"), "--nodes is 65; a cluster has 1 to 64 nodes");
    assert_eq!(why("--nodes 2"), "--replicas 3 needs at least 3 nodes, and --nodes is 2");
    assert!(why("--nodes 3 --copy-rate 0").contains("--copy-rate is 0"));
    assert!(why("--nodes 6 --drive 100GB").contains("it does not fit"));
    for wrong in [
        "--nodes 3 --replicas 2",
        "--nodes 3 --groups 15",
        "--nodes 3 --groups 0",
        "--nodes -1",
        "--groups 3",
    ] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn limits_of_the_placement_are_warnings() {
    let warned = |words: &str, part: &str| {
        let (_, cluster) = called(words);
        assert!(
            cluster.warnings.iter().any(|warning| warning.contains(part)),
            "{part}: {:?}",
            cluster.warnings
        );
    };
    warned("--nodes 3 --replicas 1", "with one copy");
    warned("--nodes 3", "no node for copy 3");
    warned("--nodes 40", "4 nodes hold nothing");
    warned("--nodes 10", "nodes hold 3 to 4 groups; take at most 9 nodes");
    assert_eq!(called("--nodes 6").1.warnings, Vec::<String>::new());
    let mut text = String::new();
    called("--nodes 6").1.show(&mut text);
    for part in ["12 groups with 3 copies", "8 after a loss", "node drained", "over the network"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
