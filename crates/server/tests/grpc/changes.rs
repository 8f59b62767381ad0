//! Writes that depend on the existing entry, and reads without values.

use std::time::Duration;

use tonic::Code;

use crate::client::pb::touch_request::Becomes;
use crate::client::pb::{self, condition, expiry};
use crate::client::{Client, Running, get, key, now_ms, plain, put, refused};

fn ttl(ms: u64) -> Option<pb::Expiry> {
    Some(pb::Expiry { at: Some(expiry::At::TtlMs(ms)) })
}

fn at(ms: u64) -> Option<pb::Expiry> {
    Some(pb::Expiry { at: Some(expiry::At::AtMs(ms)) })
}

fn versioned(version: u64) -> Option<pb::Condition> {
    Some(pb::Condition { is: Some(condition::Is::Version(version)) })
}

async fn entry(client: &mut Client, at: &str) -> Option<pb::Entry> {
    client.get(get(at)).await.unwrap().into_inner().entry
}

async fn head(client: &mut Client, at: &str) -> Option<pb::Entry> {
    client.head(pb::HeadRequest { key: key(at) }).await.unwrap().into_inner().entry
}

#[tokio::test]
async fn a_head_is_an_entry_without_its_value() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    assert_eq!(head(&mut client, "a").await, None);
    let far = now_ms() + 100_000;
    for (value, expiry) in [(vec![7; 3], None), (vec![7; 2 << 20], at(far))] {
        client.put(pb::PutRequest { expiry, ..put("a", value) }).await.unwrap();
        let whole = entry(&mut client, "a").await.unwrap();
        assert_eq!(head(&mut client, "a").await, Some(pb::Entry { value: key(""), ..whole }));
    }
    refused(client.head(pb::HeadRequest::default()).await, Code::InvalidArgument, "INVALID");
}

#[tokio::test]
async fn a_put_keeps_the_expiry_and_returns_what_was_there() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let far = now_ms() + 100_000;
    let wanted = |value: &'static str, expiry| pb::PutRequest {
        keep_expiry: true,
        return_previous: true,
        expiry,
        ..put("a", value)
    };
    // An absent key gets the given expiry.
    let first = client.put(wanted("1", at(far))).await.unwrap().into_inner();
    assert_eq!(first.previous, None);
    let now = entry(&mut client, "a").await.unwrap();
    assert_eq!((now.version, now.expires_at_ms), (first.version, Some(far)));
    let second = client.put(wanted("2", at(far + 5))).await.unwrap().into_inner();
    assert_eq!(second.previous, Some(now));
    let now = entry(&mut client, "a").await.unwrap();
    assert_eq!((&now.value[..], now.version, now.expires_at_ms), (&b"2"[..], second.version, Some(far)));
    assert!(second.version > first.version);
    let stale = pb::PutRequest { condition: versioned(first.version), ..wanted("3", None) };
    let about = refused(client.put(stale).await, Code::FailedPrecondition, "CONFLICT");
    assert_eq!(about["current_version"], second.version.to_string());
    // A plain put does not keep the expiry, and returns no previous entry.
    let third = client.put(put("a", "4")).await.unwrap().into_inner();
    assert_eq!((third.previous, entry(&mut client, "a").await.unwrap().expires_at_ms), (None, None));
    let keep = pb::PutRequest { keep_expiry: true, ..put("a", "5") };
    assert_eq!(client.put(keep).await.unwrap().into_inner().previous, None);

    let delete = pb::DeleteRequest { key: key("a"), return_previous: true, ..Default::default() };
    let now = entry(&mut client, "a").await;
    let stale = pb::DeleteRequest { condition: versioned(1), ..delete.clone() };
    refused(client.delete(stale).await, Code::FailedPrecondition, "CONFLICT");
    let gone = client.delete(delete.clone()).await.unwrap().into_inner();
    assert_eq!((gone.existed, gone.previous), (true, now));
    let gone = client.delete(delete).await.unwrap().into_inner();
    assert_eq!((gone.existed, gone.previous), (false, None));
    assert_eq!(entry(&mut client, "a").await, None);
}

#[tokio::test]
async fn numbers_are_added_to_within_their_bounds() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let add = |by| pb::IncrementRequest { key: key("n"), by, ..Default::default() };
    let first = client.increment(add(None)).await.unwrap().into_inner();
    assert_eq!((first.value, first.expires_at_ms), (1, None));
    let second = client.increment(add(Some(-5))).await.unwrap().into_inner();
    let now = entry(&mut client, "n").await.unwrap();
    assert_eq!((second.value, &now.value[..], now.version), (-4, &b"-4"[..], second.version));
    assert_eq!(client.increment(add(Some(0))).await.unwrap().into_inner().value, -4);

    for (by, min, max) in [(1, None, Some(-4)), (-1, Some(-4), None), (i64::MIN, None, None)] {
        let beyond = pb::IncrementRequest { min, max, ..add(Some(by)) };
        let about = refused(client.increment(beyond).await, Code::OutOfRange, "OUT_OF_RANGE");
        assert_eq!(about["value"], "-4");
    }
    let at_most = pb::IncrementRequest { max: Some(-3), ..add(Some(1)) };
    assert_eq!(client.increment(at_most).await.unwrap().into_inner().value, -3);
    let empty = pb::IncrementRequest { min: Some(2), max: Some(1), ..add(None) };
    refused(client.increment(empty).await, Code::InvalidArgument, "INVALID");

    let of_new =
        pb::IncrementRequest { key: key("new"), initial: Some(100), by: Some(10), ..Default::default() };
    assert_eq!(client.increment(of_new.clone()).await.unwrap().into_inner().value, 110);
    assert_eq!(client.increment(of_new).await.unwrap().into_inner().value, 120);

    for wrong in ["", "x", "1.5", "+1", "01", " 1", "9223372036854775808"] {
        let version = client.put(put("text", wrong)).await.unwrap().into_inner().version;
        let add = pb::IncrementRequest { key: key("text"), ..Default::default() };
        let about = refused(client.increment(add).await, Code::FailedPrecondition, "NOT_A_NUMBER");
        assert_eq!(about["current_version"], version.to_string());
        assert_eq!(entry(&mut client, "text").await.unwrap().value, wrong);
    }
}

/// The window of a rate limiter begins with the first count and ends as planned, however often it is counted.
#[tokio::test]
async fn a_window_ends_when_it_was_to() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let far = now_ms() + 100_000;
    let count = |expiry, keep_expiry| pb::IncrementRequest {
        key: key("n"),
        expiry,
        keep_expiry,
        ..Default::default()
    };
    for (given, keep, expected) in [
        (at(far), true, Some(far)),
        (at(far + 7), true, Some(far)),
        (None, false, Some(far)),
        (at(far + 9), false, Some(far + 9)),
        (None, true, Some(far + 9)),
    ] {
        let counted = client.increment(count(given, keep)).await.unwrap().into_inner();
        assert_eq!(counted.expires_at_ms, expected);
        assert_eq!(entry(&mut client, "n").await.unwrap().expires_at_ms, expected);
    }
    client.increment(count(ttl(1), false)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let anew = client.increment(count(None, true)).await.unwrap().into_inner();
    assert_eq!((anew.value, anew.expires_at_ms), (1, None));
}

#[tokio::test]
async fn a_touch_changes_the_expiry_and_nothing_else() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let touch = |becomes| pb::TouchRequest { key: key("a"), becomes: Some(becomes), ..Default::default() };
    let far = now_ms() + 100_000;
    let later = || touch(Becomes::Expiry(at(far).unwrap()));
    assert_eq!(client.touch(later()).await.unwrap().into_inner(), pb::TouchResponse::default());
    assert_eq!(entry(&mut client, "a").await, None, "a touch makes no key");

    let written = client.put(put("a", "value")).await.unwrap().into_inner().version;
    let first = client.touch(later()).await.unwrap().into_inner();
    assert!(first.existed && first.version > written && first.expires_at_ms == Some(far));
    let now = entry(&mut client, "a").await.unwrap();
    assert_eq!((&now.value[..], now.version, now.expires_at_ms), (&b"value"[..], first.version, Some(far)));
    // The key has that expiry already, so nothing is written.
    assert_eq!(client.touch(later()).await.unwrap().into_inner(), first);
    let stale = pb::TouchRequest { condition: versioned(written), ..touch(Becomes::Persistent(true)) };
    refused(client.touch(stale).await, Code::FailedPrecondition, "CONFLICT");
    let for_ever = client.touch(touch(Becomes::Persistent(true))).await.unwrap().into_inner();
    assert!(for_ever.version > first.version && for_ever.expires_at_ms.is_none());
    assert_eq!(entry(&mut client, "a").await.unwrap().expires_at_ms, None);
    client.touch(touch(Becomes::Expiry(at(1).unwrap()))).await.unwrap();
    assert_eq!(entry(&mut client, "a").await, None);

    let absent = pb::Condition { is: Some(condition::Is::Absent(true)) };
    for wrong in [
        pb::TouchRequest { becomes: None, ..touch(Becomes::Persistent(true)) },
        touch(Becomes::Persistent(false)),
        touch(Becomes::Expiry(pb::Expiry { at: None })),
        pb::TouchRequest { condition: Some(absent), ..later() },
    ] {
        refused(client.touch(wrong).await, Code::InvalidArgument, "INVALID");
    }
}

/// Concurrent with RESP's INCR, an update of the same store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_among_many() {
    let running = Running::start(plain()).await;
    let adders = (0..6).map(|_| async {
        let mut client = running.client().await;
        let mut seen = Vec::new();
        for _ in 0..30 {
            let add = pb::IncrementRequest { key: key("n"), ..Default::default() };
            seen.push(client.increment(add).await.unwrap().into_inner().value);
            running.store.increment("n", 1).await.unwrap();
        }
        seen
    });
    let mut seen = futures_util::future::join_all(adders).await.concat();
    assert_eq!(running.store.get("n").await.unwrap().unwrap(), "360");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 180, "two were told the same sum");
}
