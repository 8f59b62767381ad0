//! Calls of a node of a cluster, which the tests direct.

use std::sync::Arc;

use esker_engine::ClusterError;
use esker_server::Config;
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_types::StatusExt;

use crate::client::pb::compare_and_swap_request::{Expected, Replacement};
use crate::client::pb::{self, condition};
use crate::client::{Client, Running, get, here, key, plain, put, refused};
use crate::running::cluster::{Directed, elsewhere};

async fn start() -> (Running, Arc<Directed>, Client) {
    let cluster = Directed::new();
    let config = Config { cluster: Some(cluster.clone()), http: vec![here()], ..plain() };
    let server = Running::start(config).await;
    let client = server.client().await;
    (server, cluster, client)
}

fn swap(at: &str, expected: Expected) -> pb::CompareAndSwapRequest {
    let replacement = Some(Replacement::Put(key("2")));
    pb::CompareAndSwapRequest { key: key(at), expected: Some(expected), replacement, ..Default::default() }
}

fn operation(at: &str) -> pb::Operation {
    let put = pb::operation::Put { key: key(at), value: key("1"), ..Default::default() };
    pb::Operation { write: Some(pb::operation::Write::Put(put)) }
}

fn getting(at: &str) -> pb::TxnOperation {
    let get = pb::txn_operation::Get { key: key(at), without_value: false };
    pb::TxnOperation { operation: Some(pb::txn_operation::Operation::Get(get)) }
}

#[tokio::test]
async fn calls_are_refused_unless_the_slot_is_led_here() {
    let (_server, cluster, mut client) = start().await;
    let about = refused(client.get(get("a")).await, Code::FailedPrecondition, "NOT_LEADER");
    assert_eq!((&about["slot"][..], &about["address"][..]), ("15495", "10.0.0.2:9002"));
    assert_eq!(about["resp_address"], "10.0.0.2:7002");
    refused(client.put(put("a", "1")).await, Code::FailedPrecondition, "NOT_LEADER");
    let keys = vec![key("b"), key("a")];
    let several = pb::MultiGetRequest { keys };
    refused(client.multi_get(several).await, Code::FailedPrecondition, "NOT_LEADER");
    // Reads of several slots that are led here are one call.
    client.multi_get(pb::MultiGetRequest { keys: vec![key("b"), key("c")] }).await.unwrap();
    cluster.state().refused.insert(2, ClusterError::NotReady { slot: 0 });
    refused(client.get(get("c")).await, Code::Unavailable, "NOT_READY");
    let why = "nobody answers".to_owned();
    cluster.state().refused.insert(2, ClusterError::NoLeader { slot: 0, why });
    let status = client.get(get("c")).await.unwrap_err();
    assert!(status.get_details_retry_info().is_some());
    refused::<()>(Err(status), Code::Unavailable, "NO_LEADER");
    let download = pb::DownloadRequest { key: key("a"), ..Default::default() };
    refused(client.download(download).await.map(drop), Code::FailedPrecondition, "NOT_LEADER");
    let watch = pb::WatchRequest { keys: vec![key("a")], ..Default::default() };
    refused(client.watch(watch).await.map(drop), Code::FailedPrecondition, "NOT_LEADER");
}

#[tokio::test]
async fn atomic_calls_are_of_one_slot_and_versions_are_not_compared() {
    let (_server, _, mut client) = start().await;
    let batch = |keys: &[&str]| pb::BatchRequest {
        operations: keys.iter().map(|key| operation(key)).collect(),
        ..Default::default()
    };
    refused(client.batch(batch(&["b", "c"])).await, Code::InvalidArgument, "CROSS_SLOT");
    client.batch(batch(&["b", "{b}1"])).await.unwrap();
    let txn = |keys: &[&str]| pb::TxnRequest {
        success: keys.iter().map(|key| getting(key)).collect(),
        ..Default::default()
    };
    refused(client.txn(txn(&["b", "c"])).await, Code::InvalidArgument, "CROSS_SLOT");
    client.txn(txn(&["b", "{b}1"])).await.unwrap();

    let version = Some(pb::Condition { is: Some(condition::Is::Version(1)) });
    let unsupported = (Code::Unimplemented, "UNSUPPORTED");
    let put = pb::PutRequest { condition: version, ..put("b", "1") };
    refused(client.put(put).await, unsupported.0, unsupported.1);
    let delete = pb::DeleteRequest { key: key("b"), condition: version, ..Default::default() };
    refused(client.delete(delete).await, unsupported.0, unsupported.1);
    refused(client.compare_and_swap(swap("b", Expected::Version(1))).await, unsupported.0, unsupported.1);
    let target = Some(pb::compare::Target::Version(1));
    let compares = vec![pb::Compare { key: key("b"), target, ..Default::default() }];
    let txn = pb::TxnRequest { compares, ..Default::default() };
    refused(client.txn(txn).await, unsupported.0, unsupported.1);
    let download = pb::DownloadRequest { key: key("b"), version: 1, ..Default::default() };
    refused(client.download(download).await.map(drop), unsupported.0, unsupported.1);
}

#[tokio::test]
async fn unconfirmed_reads_are_errors_and_writes_are_uncertain() {
    let (_server, cluster, mut client) = start().await;
    client.put(put("b", "1")).await.unwrap();
    cluster.state().without_lease.push(1);
    client.get(get("b")).await.unwrap();
    assert_eq!(cluster.state().confirmations, [1]);
    cluster.state().unconfirmed.insert(1, elsewhere(0));
    let about = refused(client.get(get("b")).await, Code::FailedPrecondition, "NOT_LEADER");
    assert_eq!(about["slot"], "3300");
    refused(client.head(pb::HeadRequest { key: key("b") }).await, Code::FailedPrecondition, "NOT_LEADER");
    let download = pb::DownloadRequest { key: key("b"), ..Default::default() };
    refused(client.download(download).await.map(drop), Code::FailedPrecondition, "NOT_LEADER");
    // Committed writes are answered.
    client.put(put("b", "1")).await.unwrap();
    client.increment(pb::IncrementRequest { key: key("b"), ..Default::default() }).await.unwrap();
    let status = client.compare_and_swap(swap("b", Expected::Value(key("none")))).await.unwrap_err();
    assert!(status.get_details_retry_info().is_none(), "no client repeats it by itself");
    refused::<()>(Err(status), Code::Aborted, "UNCERTAIN");
    let delete = pb::DeleteRequest { key: key("{b}none"), ..Default::default() };
    refused(client.delete(delete).await, Code::Aborted, "UNCERTAIN");
    // A condition that does not hold is known from a read, and nothing was written.
    let absent = Some(pb::Condition { is: Some(condition::Is::Absent(true)) });
    let put = pb::PutRequest { condition: absent, ..put("b", "1") };
    refused(client.put(put.clone()).await, Code::FailedPrecondition, "NOT_LEADER");
    cluster.state().unconfirmed.clear();
    refused(client.put(put).await, Code::FailedPrecondition, "CONFLICT");
}

#[tokio::test]
async fn scans_and_watches_are_of_groups_led_here() {
    let (server, cluster, mut client) = start().await;
    for key in ["a", "b", "c"] {
        server.store.put(key, "1").await.unwrap();
    }
    for keys_only in [true, false] {
        let request = pb::ScanRequest { keys_only, ..Default::default() };
        let mut pages = client.scan(request.clone()).await.unwrap().into_inner();
        let mut keys = Vec::new();
        while let Some(page) = pages.next().await {
            keys.extend(page.unwrap().entries.into_iter().map(|entry| entry.key));
        }
        keys.sort_unstable();
        assert_eq!(keys, ["b", "c"]);
        // A page is confirmed for each group that was led when it began.
        cluster.state().without_lease = vec![1, 2];
        cluster.state().unconfirmed.insert(2, elsewhere(0));
        let mut pages = client.scan(request).await.unwrap().into_inner();
        refused(pages.next().await.unwrap(), Code::FailedPrecondition, "NOT_LEADER");
        cluster.state().unconfirmed.clear();
        cluster.state().without_lease.clear();
    }
    let mut watch = client.watch(pb::WatchRequest::default()).await.unwrap().into_inner();
    let started = watch.message().await.unwrap().unwrap().message;
    assert!(matches!(started, Some(pb::watch_response::Message::Started(_))));
    // A change of a group that another node leads is reported there.
    server.store.put("a", "2").await.unwrap();
    server.store.put("b", "2").await.unwrap();
    let changes = watch.message().await.unwrap().unwrap().message;
    let Some(pb::watch_response::Message::Changes(pb::watch_response::Changes { changes })) = changes else {
        panic!("{changes:?}");
    };
    assert_eq!(changes.iter().map(|change| &change.key[..]).collect::<Vec<_>>(), [b"b"]);
    cluster.change_leader(3, true);
    refused(watch.message().await, Code::Aborted, "MISSED");
}

/// Returns the answer to a request over HTTP, with its head.
async fn page(server: &Running, path: &str) -> String {
    let mut stream = TcpStream::connect(server.http[0]).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page
}

async fn status(server: &Running) -> serde_json::Value {
    let status = page(server, "/status.json").await;
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let begin = body.find('{').unwrap();
    serde_json::Deserializer::from_str(&body[begin..]).into_iter().next().unwrap().unwrap()
}

#[tokio::test]
async fn node_is_not_ready_while_a_group_is_not_served() {
    let (server, cluster, _) = start().await;
    for path in ["/readyz", "/readyz/write"] {
        assert!(page(&server, path).await.starts_with("HTTP/1.1 200 "), "{path}");
    }
    cluster.state().unserved = Some("the replicas of the groups 3 have stopped".to_owned());
    for path in ["/readyz", "/readyz/write"] {
        let answer = page(&server, path).await;
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("groups 3 have stopped"),
            "{path}: {answer}"
        );
    }
    assert!(page(&server, "/healthz").await.starts_with("HTTP/1.1 200 "), "a restart would not help");
    assert!(page(&server, "/metrics").await.contains("\nesker_ready 0\n"));
}

#[tokio::test]
async fn metrics_and_status_have_the_cluster() {
    let (server, _, _) = start().await;
    let metrics = page(&server, "/metrics").await;
    let expected = "# HELP esker_cluster_elections_total Help.\n# TYPE esker_cluster_elections_total counter\n\
                    esker_cluster_elections_total{group=\"1\"} 2\nesker_cluster_elections_total{group=\"2\"} 0.5\n\
                    # HELP esker_cluster_lag Help.\n# TYPE esker_cluster_lag gauge\n\
                    esker_cluster_lag{group=\"1\",node=\"00000000000000b2\"} 3\n\
                    # HELP esker_cluster_nodes Help.\n# TYPE esker_cluster_nodes gauge\nesker_cluster_nodes 3\n";
    assert!(metrics.contains(expected), "{metrics}");
    let cluster = &status(&server).await["cluster"];
    assert_eq!(
        (&cluster["me"], &cluster["nodes"][2]["is_reachable"]),
        (&"00000000000000a1".into(), &false.into())
    );
    assert_eq!((&cluster["groups"][0]["lag"], &cluster["groups"][2]["lag"]), (&60.into(), &10.into()));
    // The meta group, which this node leads too, has no keys.
    assert_eq!((&cluster["nodes"][0]["leads"], &cluster["nodes"][1]["leads"]), (&2.into(), &1.into()));
}

#[tokio::test]
async fn status_names_groups_without_leader_or_copies() {
    let (server, cluster, _) = start().await;
    let few = "fewer than 3 copies: group 1 (2), group 2 (2), group 3 (2), meta group (2)";
    assert_eq!(status(&server).await["cluster"]["problems"], serde_json::json!([few]));
    cluster.state().without_leader.extend([2, 15]);
    cluster.state().installing.push(3);
    let few = "fewer than 3 copies: group 1 (2), group 2 (2), meta group (2)";
    let missing = "this node receives its copy, or stopped: group 3";
    wait_for_problems(
        &server,
        &["no leader with a majority is reachable: group 2, meta group", few, missing],
    )
    .await;
    // The leader stays known where a majority is lost.
    cluster.state().is_alone = true;
    let lost = "no leader with a majority is reachable: group 1, group 2, meta group";
    wait_for_problems(&server, &[lost, few, missing]).await;
}

/// Waits until the status has these problems: a document is returned again for a while.
async fn wait_for_problems(server: &Running, expected: &[&str]) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while status(server).await["cluster"]["problems"] != serde_json::json!(expected) {
        assert!(std::time::Instant::now() < patience, "{:?}", status(server).await["cluster"]);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Runs the script of the page with Node.js on the page and the status of a server. Returns its section about the cluster,
/// or `None` without Node.js.
async fn section(server: &Running) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let [html, json] = ["page", "status"].map(|name| directory.path().join(name));
    std::fs::write(&html, page(server, "/").await).unwrap();
    std::fs::write(&json, status(server).await.to_string()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grpc/page.js");
    match std::process::Command::new("node").arg(script).args([html, json]).output() {
        Err(error) => {
            eprintln!("SKIPPED: no node to run the page ({error})");
            None
        }
        Ok(ran) => Some(String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap()),
    }
}

#[tokio::test]
async fn page_shows_the_cluster_of_a_member_only() {
    let (server, cluster, _) = start().await;
    cluster.state().without_leader.push(3);
    let Some(shown) = section(&server).await else { return };
    let expected = "h2: Cluster\n\
        p: no leader with a majority is reachable: group 3\n\
        p: fewer than 3 copies: group 1 (2), group 2 (2), group 3 (2), meta group (2)\n\
        tr: node state groups led groups held\n\
        tr: 10.0.0.1:7001 (this node) reachable 2 0\n\
        tr: 10.0.0.2:7002 reachable 0 0\n\
        tr: [::1]:7003 unreachable 0 0\n\
        div: largest lag: 60 entries, groups being copied: 3 (3.00 MiB, at 0 B a second)\n\
        bad: no leader with a majority is reachable: group 3\n\
        bad: fewer than 3 copies: group 1 (2), group 2 (2), group 3 (2), meta group (2)\n\
        bad: unreachable\n";
    assert_eq!(shown, expected);
    let alone = Running::start(Config { http: vec![here()], ..plain() }).await;
    assert_eq!(section(&alone).await.as_deref(), Some("hidden\n"));
}
