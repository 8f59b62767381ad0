//! Nodes as processes, by the commands that `docs/cluster.md` prints: a node may be killed, added or drained, and nothing that
//! was acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use esker_seeded_bugs::Bug;

use super::*;

#[path = "backups.rs"]
mod backups;
#[path = "cluster_stores.rs"]
mod stores;
#[path = "upgrades.rs"]
mod upgrades;
#[path = "cluster_writer.rs"]
mod writer;

/// A reply of RESP2, as far as these tests need it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    Text(String),
    Error(String),
    Null,
    Other,
}

/// A client of one node.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Client(BufReader::new(stream)))
    }

    fn ask(&mut self, words: &[&str]) -> std::io::Result<Reply> {
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(command.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        Ok(match kind {
            "+" | ":" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            "$" if rest == "-1" => Reply::Null,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8(bytes).unwrap())
            }
            "*" => {
                for _ in 0..rest.parse::<usize>().unwrap_or(0) {
                    self.reply()?;
                }
                Reply::Other
            }
            _ => panic!("unexpected reply {line:?}"),
        })
    }
}

/// Nodes on ports of their own.
struct Cluster {
    directory: TempDir,
    /// Ports for clients, for other nodes and for monitoring.
    ports: Vec<[u16; 3]>,
    nodes: Vec<Option<Serving>>,
    clients: BTreeMap<String, Client>,
    /// Nodes that are started with an earlier program.
    earlier: BTreeSet<usize>,
    /// Number of groups, if it is not the default.
    groups: Option<&'static str>,
}

/// Time after which a cluster counts as dead.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns ports for servers that start later, or restart. They are below the ports that the system gives to clients.
pub(super) fn free_ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, ports) = (10_000, 20_000);
    let start = std::process::id().wrapping_mul(613);
    let next = || {
        let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        first + (number % ports) as u16
    };
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(next).filter(is_free).take(count).collect()
}

impl Cluster {
    fn start(count: usize) -> Cluster {
        Cluster::start_with(count, BTreeSet::new())
    }

    fn start_with(count: usize, earlier: BTreeSet<usize>) -> Cluster {
        Cluster::start_as(count, earlier, None)
    }

    fn start_as(count: usize, earlier: BTreeSet<usize>, groups: Option<&'static str>) -> Cluster {
        let ports = free_ports(3 * count);
        let ports = ports.chunks(3).map(|ports| [ports[0], ports[1], ports[2]]).collect();
        let nodes = (0..count).map(|_| None).collect();
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Cluster { directory, ports, nodes, clients: BTreeMap::new(), earlier, groups };
        (0..count).for_each(|node| cluster.start_node(node));
        cluster
    }

    /// Adds a node, and starts it.
    fn add_node(&mut self) {
        let ports = free_ports(3);
        self.ports.push([ports[0], ports[1], ports[2]]);
        self.nodes.push(None);
        self.start_node(self.nodes.len() - 1);
    }

    fn resp(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.ports[node][0])
    }

    /// Starts a node with the same flags each time, as a service manager does.
    fn start_node(&mut self, node: usize) {
        let peers = |node: usize| format!("127.0.0.1:{}", self.ports[node][1]);
        let (dir, resp, own, first) = (format!("node{node}"), self.resp(node), peers(node), peers(0));
        let mut arguments = vec!["--dir", &dir, "--resp", &resp, "--cluster", &own, "--cluster-secret", "s"];
        let http = self.ports[node][2].to_string();
        arguments.extend(["--capacity-limit", "1g", "--http", &http]);
        let is_new = !self.directory.path().join(&dir).exists();
        match node {
            0 if is_new => {
                arguments.push("--cluster-new");
                arguments.extend(self.groups.iter().flat_map(|groups| ["--cluster-groups", groups]));
            }
            0 => {}
            _ => arguments.extend(["--join", &first]),
        }
        let mut environment = vec![("ESKER_MEMORY", "256m")];
        // A seeded bug is one of the nodes, not of the other programs.
        let planted = std::env::var("ESKER_PLANTED").unwrap_or_default();
        let planted =
            if self.earlier.contains(&node) { format!("{:?}", Bug::EarlierProgram) } else { planted };
        environment.push(("ESKER_PLANTED", &planted));
        let started = Serving::start_in(self.directory.path(), &arguments, &environment);
        assert!(started.ready.starts_with("ready"), "node {node} did not start: {:?}", started.ready);
        self.nodes[node] = Some(started);
    }

    /// Returns the names of the metrics of a node about its cluster.
    fn metrics(&self, node: usize) -> BTreeSet<String> {
        let mut client = TcpStream::connect(("127.0.0.1", self.ports[node][2])).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        let names = text.lines().filter_map(|line| line.split(['{', ' ']).next());
        names.filter(|name| name.starts_with("esker_cluster_")).map(str::to_owned).collect()
    }

    fn kill(&mut self, node: usize) {
        self.clients.remove(&self.resp(node));
        drop(self.nodes[node].take());
    }

    fn alive(&self) -> Vec<String> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some()).map(|node| self.resp(node)).collect()
    }

    fn ask_at(&mut self, address: &str, words: &[&str]) -> std::io::Result<Reply> {
        if !self.clients.contains_key(address) {
            self.clients.insert(address.to_owned(), Client::connect(address)?);
        }
        let asked = self.clients.get_mut(address).unwrap().ask(words);
        if asked.is_err() {
            self.clients.remove(address);
        }
        asked
    }

    /// Asks as a client of Redis Cluster does: follows MOVED, and repeats after an error that says that nothing was done.
    /// A lost connection and UNCERTAIN leave the outcome open, and are returned.
    fn ask(&mut self, words: &[&str]) -> Reply {
        let until = Instant::now() + PATIENCE;
        let mut at = self.alive()[0].clone();
        loop {
            let reply = self.ask_at(&at, words);
            let again = match &reply {
                Ok(Reply::Error(text)) if text.starts_with("MOVED ") => {
                    Some(text.split(' ').nth(2).unwrap().to_owned())
                }
                Ok(Reply::Error(text)) if text.starts_with("CLUSTERDOWN") || text.starts_with("TRYAGAIN") => {
                    None
                }
                Ok(reply) => return reply.clone(),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => None,
                Err(error) => return Reply::Error(format!("UNCERTAIN {error}")),
            };
            assert!(Instant::now() < until, "{words:?} is not served: {reply:?}");
            let is_alive = again.as_ref().is_some_and(|again| self.alive().contains(again));
            if !is_alive {
                sleep(Duration::from_millis(50));
            }
            let alive = self.alive();
            at = again.filter(|_| is_alive).unwrap_or_else(|| {
                let next = alive.iter().position(|one| *one == at).map_or(0, |found| found + 1);
                alive[next % alive.len()].clone()
            });
        }
    }

    /// Runs `esker cluster` against a node, and returns its output, or its error.
    fn esker_cluster(&self, node: usize, words: &[&str]) -> Result<String, String> {
        let from = ["--from", &self.resp(node)];
        let output = esker(self.directory.path(), &[&["cluster"], words, &from].concat()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Waits until `esker cluster status` of a node shows a text.
    fn wait_for_status(&self, node: usize, wanted: &str) {
        self.wait_until_status(node, wanted, |shown| shown.contains(wanted));
    }

    /// Waits until `esker cluster status` of a node satisfies a condition, and names no problem.
    fn wait_until_status(&self, node: usize, what: &str, holds: impl Fn(&str) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let shown = self.esker_cluster(node, &["status"]);
            if shown.as_ref().is_ok_and(|shown| holds(shown)) {
                return;
            }
            assert!(Instant::now() < until, "not shown: {what}: {shown:?}");
            sleep(Duration::from_millis(200));
        }
    }

    /// Waits until every group has three voters that have its log.
    fn wait_until_replicated(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let shown =
                esker(self.directory.path(), &["cluster", "status", "--from", &self.alive()[0], "--json"])
                    .output()
                    .unwrap();
            let text = String::from_utf8(shown.stdout).unwrap();
            if text.contains("\"is_replicated\":true") || text.contains("\"is_replicated\": true") {
                return;
            }
            let error = String::from_utf8_lossy(&shown.stderr);
            assert!(Instant::now() < until, "not replicated: {text}{error}");
            sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn three_nodes_lose_nothing_when_any_of_them_is_killed() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_replicated();
    let (mut written, mut next) = (BTreeMap::new(), 0);
    let mut write = |cluster: &mut Cluster, count: usize| {
        let mut acknowledged = 0;
        for number in next..next + count {
            let (key, value) = (format!("key:{number}"), format!("value:{number}"));
            match cluster.ask(&["SET", &key, &value]) {
                Reply::Text(_) => {
                    acknowledged += 1;
                    written.insert(key, value);
                }
                reply => assert!(
                    matches!(&reply, Reply::Error(text) if text.starts_with("UNCERTAIN")),
                    "{reply:?}"
                ),
            }
        }
        next += count;
        assert!(acknowledged > 0, "nothing was acknowledged");
    };
    write(&mut cluster, 200);
    for killed in 0..3 {
        cluster.kill(killed);
        write(&mut cluster, 100);
        cluster.start_node(killed);
        cluster.wait_until_replicated();
        write(&mut cluster, 50);
    }
    // All at once, as by a power failure.
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.start_node(node));
    for (key, value) in &written {
        assert_eq!(cluster.ask(&["GET", key]), Reply::Text(value.clone()), "{key}");
    }
}

#[test]
fn four_nodes_share_the_groups_and_one_is_drained_and_removed() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_replicated();
    let write = |cluster: &mut Cluster, round: usize| {
        for number in 0..100 {
            let (key, value) = (format!("key:{number}"), format!("value:{round}:{number}"));
            // A repeated SET changes nothing.
            while cluster.ask(&["SET", &key, &value]) != Reply::Text("OK".into()) {}
        }
    };
    let check = |cluster: &mut Cluster, round: usize| {
        for number in 0..100 {
            let value = format!("value:{round}:{number}");
            assert_eq!(cluster.ask(&["GET", &format!("key:{number}")]), Reply::Text(value));
        }
    };
    write(&mut cluster, 0);
    let second = cluster.resp(1);
    let refused = cluster.esker_cluster(0, &["drain", &second]).unwrap_err();
    assert!(refused.contains("would leave 2 nodes in use for 3 copies"), "{refused}");
    cluster.add_node();
    cluster.wait_for_status(3, "4 nodes");
    let planned = cluster.esker_cluster(3, &["rebalance", "--dry-run"]).unwrap();
    assert!(planned.contains("9 moves, ") && planned.contains(&cluster.resp(3)), "{planned}");
    cluster.esker_cluster(3, &["rebalance"]).unwrap();
    write(&mut cluster, 1);
    cluster
        .wait_until_status(0, "every node has its share", |shown| shown.matches(", holds 9\n").count() == 4);
    assert!(cluster.esker_cluster(2, &["rebalance", "--dry-run"]).unwrap().contains("nothing to move"));
    check(&mut cluster, 1);
    // A node that is drained while another one is killed and comes back.
    cluster.esker_cluster(2, &["drain", &second]).unwrap();
    cluster.kill(0);
    cluster.start_node(0);
    write(&mut cluster, 2);
    cluster.wait_for_status(2, &format!("{second} is drained"));
    check(&mut cluster, 2);
    cluster.esker_cluster(2, &["remove", &second]).unwrap();
    cluster.kill(1);
    cluster.wait_for_status(3, "3 nodes");
    for (copies, shown) in [("1", "a leader and 1 copy\n"), ("3", "a leader and 3 copies\n")] {
        cluster.esker_cluster(3, &["replicas", copies]).unwrap();
        cluster.wait_for_status(3, shown);
        check(&mut cluster, 2);
    }
    let refused = cluster.esker_cluster(3, &["replicas", "5"]).unwrap_err();
    assert!(refused.contains("start 2 more first"), "{refused}");
}

/// Metrics of a cluster that are neither on the dashboard nor in an alert: for an analysis by hand.
const NOT_WATCHED: &[&str] = &[
    // Parts of `floor_lag_entries` and `follower_lag_entries`.
    "esker_cluster_applied_index",
    // A miss of the lease, `lease_misses_total`, causes one or none.
    "esker_cluster_confirmations_total",
    // `damaged_waiting` stays above 0 while healing fails, and falls as it succeeds.
    "esker_cluster_damaged_failed_total",
    "esker_cluster_damaged_healed_total",
    // `damaged_groups` is above 0 until a search succeeds.
    "esker_cluster_damaged_searches_total",
    "esker_cluster_damaged_unknown_total",
    // `groups_to_drain` is on the dashboard.
    "esker_cluster_draining_nodes",
    // `led_entries_total` counts each entry once.
    "esker_cluster_entries_total",
    "esker_cluster_entry_bytes_total",
    "esker_cluster_last_index",
    // `copies_wanted` and `voters` say whether copies are missing.
    "esker_cluster_learners",
    "esker_cluster_membership_changes_total",
    // `installing` of that node.
    "esker_cluster_node_installing",
    "esker_cluster_purged_index",
    // Causes of `replica_reads_total`.
    "esker_cluster_replica_clients",
    "esker_cluster_replica_questions_total",
    "esker_cluster_retirements_total",
    // `snapshot_bytes_total` is on the dashboard.
    "esker_cluster_snapshots_received_total",
    "esker_cluster_snapshots_sent_total",
    // `terms_served_total` counts changes.
    "esker_cluster_term",
];

/// Returns a file of the repository.
fn repository(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn cluster_is_monitored_by_metrics_that_exist() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_replicated();
    let metrics: BTreeSet<String> = (0..3).flat_map(|node| cluster.metrics(node)).collect();
    let mut watched = BTreeSet::new();
    for file in ["packaging/alerts.yml", "packaging/grafana.json"] {
        let text = repository(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<_> =
            words.filter(|word| word.starts_with("esker_cluster_")).map(str::to_owned).collect();
        let missing: Vec<_> = named.difference(&metrics).collect();
        assert!(
            named.len() > 5 && missing.is_empty(),
            "{file} has {named:?}; these do not exist: {missing:?}"
        );
        watched.extend(named);
    }
    // A metric that no operator sees is watched, or is here with the metric that shows the same.
    let unwatched: Vec<_> =
        metrics.iter().filter(|name| !watched.contains(*name)).map(String::as_str).collect();
    assert_eq!(unwatched, NOT_WATCHED);
    let manual = repository("docs/operations.md");
    let is_in_manual =
        |name: &&String| ["`", "{"].iter().any(|end| manual.contains(&format!("`{name}{end}")));
    let unknown: Vec<_> = metrics.iter().filter(|name| !is_in_manual(name)).collect();
    assert!(unknown.is_empty(), "not in the manual: {unknown:?}");

    let top = esker(cluster.directory.path(), &["top", &cluster.resp(1), "--once"]).output().unwrap();
    let top = String::from_utf8(top.stdout).unwrap();
    let (_, shown) = top.split_once("\ncluster ").unwrap();
    assert!(shown.trim_start().starts_with("3 nodes, "), "{top}");
    for node in 0..3 {
        let line = shown.lines().find(|line| line.contains(&cluster.resp(node))).unwrap();
        assert_eq!(line.contains(", this node"), node == 1, "{top}");
    }
}

#[test]
fn counter_counts_each_acknowledged_increment_once() {
    let mut cluster = Cluster::start(3);
    cluster.wait_until_replicated();
    let (mut acknowledged, mut uncertain) = (0, 0);
    for round in 0..3 {
        for turn in 0..60 {
            match cluster.ask(&["INCR", "counter"]) {
                Reply::Text(_) => acknowledged += 1,
                _ => uncertain += 1,
            }
            if turn == 30 {
                cluster.kill(round);
            }
        }
        cluster.start_node(round);
        cluster.wait_until_replicated();
    }
    let Reply::Text(count) = cluster.ask(&["GET", "counter"]) else { panic!("the counter is gone") };
    let count: i32 = count.parse().unwrap();
    assert!(
        (acknowledged..=acknowledged + uncertain).contains(&count),
        "{count}: {acknowledged} + {uncertain}"
    );
}

#[test]
fn contradicting_settings_of_a_node_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let node = ["serve", "--dir", "x", "--cluster", "127.0.0.1:1"];
    for (arguments, expected) in [
        (
            &["--cluster-secret", "s", "--cluster-new", "--join", "h:1"][..],
            "a node founds a cluster or joins one",
        ),
        (&["--cluster-new"], "any program could join"),
        (&["--cluster-secret", "s", "--when-full", "evict"], "when-full must be refuse"),
        (&["--cluster-secret", "s", "--coalesce-for", "1s"], "coalesce-for must be 0"),
        (&["--cluster-secret", "s", "--durability", "none"], "durability must be sync"),
        (&["--cluster-secret", "s", "--databases", "4"], "database 0 alone"),
        (&["--cluster-secret", "s", "--cluster-groups", "4"], "needs cluster-new"),
        (&["--cluster-secret", "s", "--cluster-advertise", "host"], "is not HOST:PORT"),
        (&["--cluster-tls-cert", "c"], "--cluster-tls-cert needs cluster-tls-key"),
    ] {
        let text = refused(directory.path(), &[&node[..], arguments].concat());
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!directory.path().join("x").exists());
    }
    let text = refused(directory.path(), &["serve", "--dir", "x", "--cluster-new"]);
    assert!(text.contains("--cluster-new needs cluster"), "{text}");
    let open = ["serve", "--dir", "x", "--cluster", "0.0.0.0:1", "--cluster-secret", "secret-text"];
    let text = refused(directory.path(), &open);
    assert!(text.contains("cluster-allow-plain") && !text.contains("secret-text"), "{text}");
}
