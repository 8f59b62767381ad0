//! Results and refusals of every call.

use tonic::Code;

use crate::client::pb::compare_and_swap_request::{Expected, Replacement};
use crate::client::pb::{self, condition, expiry};
use crate::client::{Running, get, key, plain, put, refused};

#[tokio::test]
async fn values_are_put_read_and_deleted() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    assert_eq!(client.get(get("a")).await.unwrap().into_inner().entry, None);
    let version = client.put(put("a", "one")).await.unwrap().into_inner().version;
    let entry = client.get(get("a")).await.unwrap().into_inner().entry.unwrap();
    assert_eq!((&entry.key[..], &entry.value[..], entry.value_bytes), (&b"a"[..], &b"one"[..], 3));
    assert_eq!((entry.version, entry.expires_at_ms), (version, None));
    let range = Some(pb::Range { offset: 1, length: 1 });
    let part = client.get(pb::GetRequest { range, ..get("a") }).await.unwrap().into_inner().entry.unwrap();
    assert_eq!(&part.value[..], b"n");
    let delete = pb::DeleteRequest { key: key("a"), ..Default::default() };
    assert!(client.delete(delete.clone()).await.unwrap().into_inner().existed);
    assert!(!client.delete(delete).await.unwrap().into_inner().existed);
    assert_eq!(client.get(get("a")).await.unwrap().into_inner().entry, None);
}

#[tokio::test]
async fn conditions_expiry_and_durability_hold() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let condition = |is| Some(pb::Condition { is: Some(is) });
    let absent = || pb::PutRequest { condition: condition(condition::Is::Absent(true)), ..put("a", "1") };
    let version = client.put(absent()).await.unwrap().into_inner().version;
    let about = refused(client.put(absent()).await, Code::FailedPrecondition, "CONFLICT");
    assert_eq!(about["current_version"], version.to_string());
    let versioned = |version| condition(condition::Is::Version(version));
    let at = |version| pb::PutRequest { condition: versioned(version), ..put("a", "2") };
    refused(client.put(at(version + 1)).await, Code::FailedPrecondition, "CONFLICT");
    client.put(at(version)).await.unwrap();
    let stale = pb::DeleteRequest { key: key("a"), condition: versioned(version), ..Default::default() };
    refused(client.delete(stale).await, Code::FailedPrecondition, "CONFLICT");

    let ttl = Some(pb::Expiry { at: Some(expiry::At::TtlMs(60_000)) });
    for durability in 0..=4 {
        let period_ms = if durability == 3 { 50 } else { 0 };
        let options = Some(pb::WriteOptions { durability, period_ms, ..Default::default() });
        client.put(pb::PutRequest { expiry: ttl, options, ..put("b", "x") }).await.unwrap();
    }
    let entry = client.get(get("b")).await.unwrap().into_inner().entry.unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    assert!((now + 30_000..=now + 60_000).contains(&entry.expires_at_ms.unwrap()));
    let past = Some(pb::Expiry { at: Some(expiry::At::AtMs(1)) });
    client.put(pb::PutRequest { expiry: past, ..put("b", "x") }).await.unwrap();
    assert_eq!(client.get(get("b")).await.unwrap().into_inner().entry, None);
    for at in [i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        let last = Some(pb::Expiry { at: Some(expiry::At::AtMs(at)) });
        client.put(pb::PutRequest { expiry: last, ..put("b", "x") }).await.unwrap();
        let entry = client.get(get("b")).await.unwrap().into_inner().entry.unwrap();
        assert_eq!(entry.expires_at_ms, Some(i64::MAX as u64));
    }
}

#[tokio::test]
async fn request_with_invalid_arguments_is_refused() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let options =
        |durability, period_ms| Some(pb::WriteOptions { durability, period_ms, ..Default::default() });
    let nothing = Some(pb::Condition { is: None });
    for wrong in [
        put("", "x"),
        put(&"k".repeat(65_537), "x"),
        pb::PutRequest { options: options(9, 0), ..put("a", "x") },
        pb::PutRequest { options: options(1, 5), ..put("a", "x") },
        pb::PutRequest { options: options(3, 60_001), ..put("a", "x") },
        pb::PutRequest { condition: nothing, ..put("a", "x") },
        pb::PutRequest {
            expiry: Some(pb::Expiry { at: Some(expiry::At::TtlMs(u64::MAX)) }),
            ..put("a", "x")
        },
        pb::PutRequest { expiry: Some(pb::Expiry { at: Some(expiry::At::TtlMs(0)) }), ..put("a", "x") },
    ] {
        refused(client.put(wrong).await, Code::InvalidArgument, "INVALID");
    }
    refused(client.get(get("")).await, Code::InvalidArgument, "INVALID");
    let empty = pb::BatchRequest::default();
    refused(client.batch(empty).await, Code::InvalidArgument, "INVALID");
    let keys = vec![key("a"); 1001];
    refused(client.multi_get(pb::MultiGetRequest { keys }).await, Code::InvalidArgument, "INVALID");
    assert!(running.store.is_empty());
    running.store.close().await.unwrap();
    refused(client.get(get("a")).await, Code::Unavailable, "CLOSED");
}

#[tokio::test]
async fn batches_are_whole_and_many_keys_are_read_in_order() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    client.put(put("old", "x")).await.unwrap();
    let write = |write| pb::Operation { write: Some(write) };
    let put_of = |at: &str, value: &'static str| {
        write(pb::operation::Write::Put(pb::operation::Put {
            key: key(at),
            value: value.into(),
            expiry: None,
        }))
    };
    let operations =
        vec![put_of("a", "1"), write(pb::operation::Write::Delete(key("old"))), put_of("b", "2")];
    client.batch(pb::BatchRequest { operations: operations.clone(), options: None }).await.unwrap();
    let keys = vec![key("b"), key("old"), key("a"), key("b")];
    let results = client.multi_get(pb::MultiGetRequest { keys }).await.unwrap().into_inner().results;
    let values: Vec<_> = results.into_iter().map(|result| result.entry.map(|entry| entry.value)).collect();
    assert_eq!(values, [Some(key("2")), None, Some(key("1")), Some(key("2"))]);
    let broken = [operations, vec![put_of("c", "3"), put_of("", "4")]].concat();
    let broken = pb::BatchRequest { operations: broken, options: None };
    refused(client.batch(broken).await, Code::InvalidArgument, "INVALID");
    assert_eq!(client.get(get("c")).await.unwrap().into_inner().entry, None);
}

fn swap(expected: Expected, replacement: Replacement) -> pb::CompareAndSwapRequest {
    let (expected, replacement) = (Some(expected), Some(replacement));
    pb::CompareAndSwapRequest { key: key("k"), expected, replacement, ..Default::default() }
}

#[tokio::test]
async fn compare_and_swap_swaps_what_is_expected_and_nothing_else() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let made = swap(Expected::Absent(true), Replacement::Put(key("1")));
    let first = client.compare_and_swap(made.clone()).await.unwrap().into_inner();
    assert!(first.swapped && first.version > 0);
    let again = client.compare_and_swap(made).await.unwrap().into_inner();
    assert!(!again.swapped);
    assert_eq!(
        (again.current.clone().unwrap().value, again.current.unwrap().version),
        (key("1"), first.version)
    );
    let by_value = swap(Expected::Value(key("1")), Replacement::Put(key("2")));
    let second = client.compare_and_swap(by_value.clone()).await.unwrap().into_inner();
    assert!(second.swapped && second.version > first.version);
    assert!(!client.compare_and_swap(by_value).await.unwrap().into_inner().swapped);
    let gone = swap(Expected::Version(second.version), Replacement::Delete(true));
    assert!(client.compare_and_swap(gone).await.unwrap().into_inner().swapped);
    assert_eq!(client.get(get("k")).await.unwrap().into_inner().entry, None);
    let senseless = swap(Expected::Absent(true), Replacement::Delete(true));
    refused(client.compare_and_swap(senseless).await, Code::InvalidArgument, "INVALID");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_swap_is_lost_among_many() {
    let running = Running::start(plain()).await;
    running.store.put("k", "0").await.unwrap();
    let adders = (0..8).map(|_| async {
        let mut client = running.client().await;
        for _ in 0..20 {
            loop {
                let now = client.get(get("k")).await.unwrap().into_inner().entry.unwrap().value;
                let next = std::str::from_utf8(&now).unwrap().parse::<u32>().unwrap() + 1;
                let next = Replacement::Put(key(&next.to_string()));
                if client
                    .compare_and_swap(swap(Expected::Value(now), next))
                    .await
                    .unwrap()
                    .into_inner()
                    .swapped
                {
                    break;
                }
            }
        }
    });
    futures_util::future::join_all(adders).await;
    assert_eq!(running.store.get("k").await.unwrap().unwrap(), "160");
}
