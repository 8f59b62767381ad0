//! Rolling upgrades of three processes under writes, from a program with the first level alone (`Bug::EarlierProgram`).

use super::writer::Writer;
use super::*;

/// Stops a node as a service manager does, and starts it with the earlier program or with this one.
fn restart(cluster: &mut Cluster, node: usize, is_earlier: bool) {
    cluster.clients.remove(&cluster.resp(node));
    cluster.nodes[node].take().unwrap().stop(Signal::TERM);
    match is_earlier {
        true => cluster.earlier.insert(node),
        false => cluster.earlier.remove(&node),
    };
    cluster.start_node(node);
    cluster.wait_until_replicated();
}

#[test]
fn upgrade_under_writes_refuses_earlier_program_afterwards() {
    let mut cluster = Cluster::start_with(3, [0, 1, 2].into());
    cluster.wait_until_replicated();
    let addresses = cluster.alive();
    let writers = [0, 1].map(|writer| {
        let key = move |number: u64| format!("w{writer}:{number}");
        Writer::start(addresses.clone(), move |number| vec!["SET".into(), key(number), key(number)])
    });
    restart(&mut cluster, 0, false);
    cluster.wait_for_status(0, "some nodes have level 2: an upgrade is in progress");
    let refused = cluster.esker_cluster(0, &["upgrade", "finalize"]).unwrap_err();
    assert!(refused.contains("level 2 needs a program that has it on every node"), "{refused}");
    assert_eq!(refused.matches(" has level 1").count(), 2, "{refused}");
    // Back again, and on.
    restart(&mut cluster, 0, true);
    restart(&mut cluster, 0, false);
    restart(&mut cluster, 2, false);
    let refused = cluster.esker_cluster(2, &["upgrade", "finalize"]).unwrap_err();
    assert_eq!(refused.matches(" has level 1").count(), 1, "{refused}");
    restart(&mut cluster, 1, false);
    cluster.wait_for_status(1, "all nodes have level 2: esker cluster upgrade finalize");
    cluster.esker_cluster(1, &["upgrade", "finalize"]).unwrap();
    cluster.esker_cluster(2, &["upgrade", "finalize"]).unwrap();
    let until = Instant::now() + PATIENCE;
    for node in 0..3 {
        let mut shown = String::new();
        while !shown.contains("uses level 2 of") || shown.matches("levels 1-2").count() < 3 {
            assert!(Instant::now() < until, "{shown}");
            shown = cluster.esker_cluster(node, &["upgrade", "status"]).unwrap();
            sleep(Duration::from_millis(100));
        }
        assert!(!shown.contains("in progress"), "{shown}");
    }
    assert_eq!(cluster.esker_cluster(0, &["nodes"]).unwrap().matches(" 1-2 ").count(), 3);
    // Some writes of the new level, on every node.
    for node in 0..3 {
        restart(&mut cluster, node, false);
    }
    // An earlier program does not start on the store of a member, and does not join.
    cluster.kill(2);
    let directory = cluster.directory.path().to_owned();
    let log = directory.join("earlier.log");
    for dir in ["node2", "new"] {
        let ports = free_ports(2);
        let (resp, own) = (format!("127.0.0.1:{}", ports[0]), format!("127.0.0.1:{}", ports[1]));
        let first = format!("127.0.0.1:{}", cluster.ports[0][1]);
        let arguments = ["serve", "--dir", dir, "--resp", &resp, "--cluster", &own, "--cluster-secret", "s"];
        let mut command =
            esker(&directory, &[&arguments[..], &["--capacity-limit", "1g", "--join", &first]].concat());
        command.env("ESKER_PLANTED", "EarlierProgram").env("ESKER_MEMORY", "256m");
        let mut process =
            command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let until = Instant::now() + PATIENCE;
        let expected = match dir {
            "node2" => {
                "uses level 2 of the protocol between nodes since its last upgrade was finalized, and this program has level 1"
            }
            _ => "has level 1, and the listening one accepts level 2",
        };
        while !std::fs::read_to_string(&log).unwrap().contains(expected) {
            assert!(Instant::now() < until, "{dir}: {}", std::fs::read_to_string(&log).unwrap());
            sleep(Duration::from_millis(100));
        }
        if dir == "node2" {
            assert_eq!(process.wait().unwrap().code(), Some(2));
        }
        let _ = process.kill();
        let _ = process.wait();
    }
    cluster.start_node(2);
    cluster.wait_until_replicated();
    let mut count = 0;
    for (writer, numbers) in writers.map(Writer::end).into_iter().enumerate() {
        for key in numbers.iter().map(|number| format!("w{writer}:{number}")) {
            assert_eq!(cluster.ask(&["GET", &key]), Reply::Text(key.clone()), "{key} was acknowledged");
            count += 1;
        }
    }
    assert!(count > 100, "only {count} writes were acknowledged");
}
