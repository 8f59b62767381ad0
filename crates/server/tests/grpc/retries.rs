//! Retries of requests with an id.

use std::time::Duration;

use esker_server::{Config, Limits};
use tokio::time::{sleep, timeout};
use tonic::{Code, Request};

use crate::client::pb::upload_request::{Head, Part};
use crate::client::pb::{self, condition};
use crate::client::{PATIENCE, Running, from, key, locked, plain, put, refused};

fn named(id: &str) -> Option<pb::WriteOptions> {
    Some(pb::WriteOptions { request_id: key(id), ..Default::default() })
}

fn add(id: &str) -> pb::IncrementRequest {
    pb::IncrementRequest { key: key("n"), options: named(id), ..Default::default() }
}

/// The same request, marked as a retry.
fn again(id: &str) -> pb::IncrementRequest {
    let options = pb::WriteOptions { retry: true, ..named(id).unwrap() };
    pb::IncrementRequest { options: Some(options), ..add(id) }
}

#[tokio::test]
async fn a_request_that_is_made_again_is_done_once() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let first = client.increment(add("one")).await.unwrap().into_inner();
    for _ in 0..3 {
        assert_eq!(client.increment(add("one")).await.unwrap().into_inner(), first);
        let other = &mut running.client().await;
        assert_eq!(other.increment(again("one")).await.unwrap().into_inner(), first);
    }
    assert_eq!(client.increment(add("two")).await.unwrap().into_inner().value, 2);
    assert_eq!(client.increment(add("one")).await.unwrap().into_inner(), first);
    // Another request with the same id is refused: with other content, or to another method.
    let other = pb::IncrementRequest { by: Some(7), ..add("one") };
    refused(client.increment(other).await, Code::InvalidArgument, "REQUEST_ID");
    let other = pb::PutRequest { options: named("one"), ..put("n", "x") };
    refused(client.put(other).await, Code::InvalidArgument, "REQUEST_ID");
    // Even if the messages are equal.
    client.put(pb::PutRequest { options: named("put"), ..put("n", "") }).await.unwrap();
    let touch = pb::TouchRequest { key: key("n"), options: named("put"), ..Default::default() };
    refused(client.touch(touch).await, Code::InvalidArgument, "REQUEST_ID");
    client.put(put("n", "2")).await.unwrap();
    let long = pb::PutRequest { options: named(&"x".repeat(65)), ..put("n", "x") };
    refused(client.put(long).await, Code::InvalidArgument, "INVALID");
    assert_eq!(running.store.get("n").await.unwrap().unwrap(), "2");
}

/// Every writing call accepts an id.
#[tokio::test]
async fn every_write_is_answered_again_as_it_was() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    running.store.put("k", "before").await.unwrap();
    macro_rules! twice {
        ($call:ident, $request:expr) => {{
            let first = client.$call($request).await.unwrap().into_inner();
            running.store.put("k", "between").await.unwrap();
            let second = client.$call($request).await.unwrap().into_inner();
            assert_eq!(first, second);
            assert_eq!(running.store.get("k").await.unwrap().unwrap(), "between");
            first
        }};
    }
    let before =
        twice!(put, pb::PutRequest { return_previous: true, options: named("put"), ..put("k", "x") });
    assert_eq!(before.previous.unwrap().value, "before");
    let delete = pb::DeleteRequest { key: key("k"), options: named("delete"), ..Default::default() };
    assert!(twice!(delete, delete.clone()).existed);
    let swap = pb::CompareAndSwapRequest {
        key: key("k"),
        expected: Some(pb::compare_and_swap_request::Expected::Value(key("between"))),
        replacement: Some(pb::compare_and_swap_request::Replacement::Put(key("swapped"))),
        options: named("swap"),
        ..Default::default()
    };
    assert!(twice!(compare_and_swap, swap.clone()).swapped);
    let becomes =
        Some(pb::touch_request::Becomes::Expiry(pb::Expiry { at: Some(pb::expiry::At::TtlMs(100_000)) }));
    let touch = pb::TouchRequest { key: key("k"), becomes, options: named("touch"), ..Default::default() };
    assert!(twice!(touch, touch.clone()).existed);
    let write = pb::operation::Write::Delete(key("k"));
    let operations = vec![pb::Operation { write: Some(write) }];
    twice!(batch, pb::BatchRequest { operations: operations.clone(), options: named("batch") });
    let get = pb::txn_operation::Get { key: key("k"), without_value: false };
    let delete = pb::txn_operation::Delete { key: key("k"), return_previous: true };
    let success = [pb::txn_operation::Operation::Get(get), pb::txn_operation::Operation::Delete(delete)];
    let success: Vec<_> =
        success.into_iter().map(|operation| pb::TxnOperation { operation: Some(operation) }).collect();
    let txn = pb::TxnRequest { success, options: named("txn"), ..Default::default() };
    assert_eq!(twice!(txn, txn.clone()).results.len(), 2);
    let parts = |value: &'static str| {
        let head = Head { key: key("k"), options: named("upload"), ..Default::default() };
        let parts = [Part::Head(head), Part::Chunk(key(value))];
        futures_util::stream::iter(parts.map(|part| pb::UploadRequest { part: Some(part) }))
    };
    twice!(upload, parts("value"));
    refused(client.upload(parts("another")).await, Code::InvalidArgument, "REQUEST_ID");
}

#[tokio::test]
async fn a_refusal_that_says_what_there_was_is_repeated() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    running.store.put("k", "there").await.unwrap();
    let absent = Some(pb::Condition { is: Some(condition::Is::Absent(true)) });
    let make = pb::PutRequest { condition: absent, options: named("make"), ..put("k", "new") };
    let about = refused(client.put(make.clone()).await, Code::FailedPrecondition, "CONFLICT");
    running.store.delete("k").await.unwrap();
    assert_eq!(refused(client.put(make).await, Code::FailedPrecondition, "CONFLICT"), about);
    assert!(running.store.get("k").await.unwrap().is_none());
    // An invalid request was not executed; neither was one that was too large.
    let wrong = pb::PutRequest { options: named("wrong"), ..put("", "x") };
    refused(client.put(wrong.clone()).await, Code::InvalidArgument, "INVALID");
    refused(client.put(wrong).await, Code::InvalidArgument, "INVALID");
}

/// A new server does not know the requests of its predecessor.
#[tokio::test]
async fn retry_unknown_to_restarted_server_is_not_executed() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    refused(client.increment(again("before")).await, Code::Aborted, "FORGOTTEN");
    // The metadata of clients with automatic retries.
    let mut request = Request::new(add("before"));
    request.metadata_mut().insert("grpc-previous-rpc-attempts", "1".parse().unwrap());
    refused(client.increment(request).await, Code::Aborted, "FORGOTTEN");
    assert!(running.store.is_empty());
    // An invalid request certainly had no effect.
    let beyond = pb::IncrementRequest { min: Some(2), max: Some(1), ..add("beyond") };
    refused(client.increment(beyond.clone()).await, Code::InvalidArgument, "INVALID");
    let beyond = pb::IncrementRequest { options: again("beyond").options, ..beyond };
    refused(client.increment(beyond).await, Code::InvalidArgument, "INVALID");
}

/// The first attempt waits for keys reserved by another writer; its client disconnects, and the retry waits for its result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_waits_for_a_first_try_that_still_runs() {
    let running = Running::start(plain()).await;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (holds, held) = tokio::sync::oneshot::channel();
    let store = running.store.clone();
    let holder = std::thread::spawn(move || {
        let hold = |_: &[Option<esker_engine::Entry>]| {
            holds.send(()).unwrap();
            gone.recv().unwrap();
            (esker_engine::Batch::new(), ())
        };
        store.blocking().update(&["n"], esker_engine::WriteOptions::new(), hold).unwrap();
    });
    held.await.unwrap();
    let mut leaving = running.client().await;
    let first = timeout(Duration::from_secs(1), leaving.increment(add("one"))).await;
    assert!(first.is_err(), "it waits");
    drop(leaving);
    // The server notices that.
    sleep(Duration::from_millis(300)).await;
    let mut client = running.client().await;
    let retry = tokio::spawn(async move { client.increment(again("one")).await });
    let mut client = running.client().await;
    let other = tokio::spawn(async move { client.increment(add("one")).await });
    sleep(Duration::from_millis(200)).await;
    assert!(!retry.is_finished() && !other.is_finished(), "what it was is not known yet");
    go.send(()).unwrap();
    for waiting in [retry, other] {
        let answer = timeout(PATIENCE, waiting).await.expect("it ends").unwrap().unwrap().into_inner();
        assert_eq!(answer.value, 1);
    }
    holder.join().unwrap();
    assert_eq!(running.store.get("n").await.unwrap().unwrap(), "1");
}

#[tokio::test]
async fn ids_are_a_users_own_and_answers_are_bounded() {
    let running = Running::start(locked("secret")).await;
    let mut client = running.client().await;
    client.increment(from(add("one"), "default", "secret")).await.unwrap();
    let answer = client.increment(from(again("one"), "default", "secret")).await.unwrap().into_inner();
    assert_eq!(answer.value, 1);
    refused(client.increment(add("one")).await, Code::Unauthenticated, "LOGIN");

    let limits = Limits { client_bytes_max: 16 << 20, ..Limits::default() };
    let running = Running::start(Config { limits, ..plain() }).await;
    let mut client = running.client().await;
    running.store.put("large", vec![7; 100_000]).await.unwrap();
    let get = |at: &str| {
        pb::txn_operation::Operation::Get(pb::txn_operation::Get { key: key(at), without_value: false })
    };
    running.store.put("other", vec![7; 100_000]).await.unwrap();
    let success = ["large", "other"].map(|at| pb::TxnOperation { operation: Some(get(at)) }).to_vec();
    let txn = pb::TxnRequest { success, options: named("txn"), ..Default::default() };
    refused(client.txn(txn).await, Code::ResourceExhausted, "TOO_LARGE");
    // A value too long to be kept is left out, like one that does not fit in a message.
    let over = pb::PutRequest { return_previous: true, options: named("over"), ..put("large", "x") };
    let previous = client.put(over).await.unwrap().into_inner().previous.unwrap();
    assert_eq!((previous.value.len(), previous.value_bytes), (0, 100_000));

    // Answers of 60,000 bytes are kept in a part of the memory for clients; the oldest are dropped.
    for n in 0..60 {
        running.store.put("k", vec![7; 60_000]).await.unwrap();
        let over = pb::PutRequest { return_previous: true, options: named(&format!("{n}")), ..put("k", "x") };
        client.put(over).await.unwrap();
    }
    let used = client.stats(pb::StatsRequest {}).await.unwrap().into_inner().client_memory_bytes;
    assert!((1_000_000..2_600_000).contains(&used), "{used} bytes are held");
    let retry = |n: usize| {
        let options = pb::WriteOptions { retry: true, ..named(&format!("{n}")).unwrap() };
        pb::PutRequest { return_previous: true, options: Some(options), ..put("k", "x") }
    };
    assert_eq!(client.put(retry(59)).await.unwrap().into_inner().previous.unwrap().value.len(), 60_000);
    refused(client.put(retry(3)).await, Code::Aborted, "FORGOTTEN");
}
