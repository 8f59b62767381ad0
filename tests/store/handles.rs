//! Handles and futures: closing, dropping every handle, dropping a future halfway, other threads.

use std::future::Future;
use std::task::{Context, Waker};

use bytes::Bytes;
use esker::{Blocking, Condition, Cursor, Error, ErrorKind, Options, Store, WriteOptions};

use crate::support::opening::{if_absent, one_put, opens_with_its_key, small, temp, two_tiers};

#[test]
fn a_closed_store_refuses_everything_and_reopens_at_once() {
    let dir = temp();
    let options = || small(Options::directory(dir.path().join("store")));
    let store = Blocking::open(options()).expect("the store opens");
    let other = store.clone();
    assert!(!store.store().is_closed());
    store.put("k", "v").expect("the put succeeds");
    store.close().expect("the store closes");
    assert!(store.store().is_closed() && other.store().is_closed());
    #[track_caller]
    fn closed<T>(result: Result<T, Error>) {
        let error = result.err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(!error.is_retryable());
    }
    for store in [&store, &other] {
        closed(store.get("k"));
        closed(store.get("not there"));
        closed(store.get_entry("k"));
        closed(store.get_many(&["k"]).remove(0));
        closed(store.put("k", "w"));
        closed(store.put_with("k", "w", if_absent()));
        closed(store.delete("k"));
        closed(store.write(one_put(b"k", b"w")));
        closed(store.scan(Cursor::START, 10));
        closed(store.scan_keys(Cursor::START, 10, 1 << 20));
        closed(store.clear());
        closed(store.flush());
        store.close().expect("closing again is fine");
        assert_eq!(store.store().stats().activity.puts, 1, "numbers can still be asked for");
    }
    // No handle was dropped, and no call waits.
    for _ in 0..5 {
        opens_with_its_key(options());
    }
}

#[test]
fn a_store_whose_handles_are_dropped_can_be_opened_again() {
    let dir = temp();
    let options = || small(Options::directory(dir.path().join("store")));
    for round in 0..5u8 {
        let store = Blocking::open(options()).expect("the store opens");
        let found = store.get("k").expect("the get succeeds");
        assert_eq!(found.as_deref(), round.checked_sub(1).as_ref().map(std::slice::from_ref));
        store.put("k", vec![round]).expect("the put succeeds");
    }
}

/// Compiles only for values that may be sent to another thread.
fn may_be_sent<T: Send>(it: T) -> T {
    it
}

#[test]
fn futures_may_be_sent_to_other_threads() {
    fn both<T: Send + Sync + Clone + 'static>(_: &T) {}
    let dir = temp();
    let open = may_be_sent(Store::open(small(Options::directory(dir.path().join("store")))));
    let store = esker_device::block_on(open).expect("the store opens");
    both(&store);
    both(&store.blocking());
    let all = async {
        may_be_sent(store.put("k", "v")).await?;
        may_be_sent(store.put_with("k2", "v", if_absent())).await?;
        may_be_sent(store.write(one_put(b"a", b"b"))).await?;
        may_be_sent(store.get("k")).await?;
        may_be_sent(store.get_entry("k")).await?;
        may_be_sent(store.get_many(&["k"])).await;
        may_be_sent(store.contains("k")).await?;
        may_be_sent(store.scan(Cursor::START, 10)).await?;
        may_be_sent(store.scan_keys(Cursor::START, 10, 1 << 20)).await?;
        may_be_sent(store.delete("k")).await?;
        may_be_sent(store.delete_with("k2", WriteOptions::default())).await?;
        may_be_sent(store.insert_if_absent("k", "v")).await?;
        may_be_sent(store.compare_and_swap("k", "v", "1")).await?;
        may_be_sent(store.increment("k", 1)).await?;
        may_be_sent(store.get_or_insert("k", || "v")).await?;
        may_be_sent(store.update(&["k"], WriteOptions::new(), |_| (one_put(b"k", b"w"), ()))).await?;
        let mut batch = one_put(b"k", b"v");
        batch.require("k", Condition::IfPresent);
        may_be_sent(store.write_with(batch, WriteOptions::new())).await?;
        may_be_sent(may_be_sent(store.stream()).next()).await.expect("there is one")?;
        may_be_sent(may_be_sent(store.stream_keys()).next()).await.expect("there is one")?;
        may_be_sent(store.flush()).await?;
        may_be_sent(store.clear()).await?;
        may_be_sent(store.close()).await
    };
    esker_device::block_on(may_be_sent(all)).expect("all of it succeeds");
}

/// Polls a future `polls` times and drops it.
fn poll_and_drop(future: impl Future, polls: usize) {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if future.as_mut().poll(&mut context).is_ready() {
            return;
        }
    }
}

#[test]
fn a_future_that_is_dropped_leaves_the_store_usable() {
    let dir = temp();
    let options = || two_tiers(dir.path()).indirection_unit_bytes(16 << 10);
    let store = Blocking::open(options()).expect("the store opens");
    let versions = ["one", "two", "three"].map(|v| Bytes::from(v.repeat(9000)));
    for round in 0..200usize {
        let key = format!("key {}", round % 10);
        let value = versions[round % 3].clone();
        let polls = round % 4;
        let s = store.store();
        match round % 5 {
            0 => poll_and_drop(s.put(key, value.slice(..3)), polls),
            // A large value: it reserves the key, and takes another path.
            1 => poll_and_drop(s.put(key, value), polls),
            2 => poll_and_drop(s.put_with(key, value, if_absent()), polls),
            3 => poll_and_drop(s.delete(key), polls),
            _ => poll_and_drop(s.write(one_put(key.as_bytes(), &value[..3])), polls),
        }
    }
    // No key stays reserved, and every existing value is complete.
    let check = |store: &Blocking| {
        for n in 0..10 {
            let found = store.get(format!("key {n}")).expect("the get succeeds");
            let whole = |f: &Bytes| versions.iter().any(|v| f == v || f == &v.slice(..3));
            assert!(found.as_ref().is_none_or(whole), "key {n} holds {} bytes", found.map_or(0, |f| f.len()));
        }
    };
    check(&store);
    store.flush().expect("the store can be flushed");
    for n in 0..10 {
        store.put(format!("key {n}"), versions[0].clone()).expect("the put succeeds");
        store.delete(format!("key {n}")).expect("the delete succeeds");
        store.put_with(format!("key {n}"), "v", if_absent()).expect("the key is absent");
        store.put(format!("key {n}"), versions[n % 3].clone()).expect("the put succeeds");
    }
    store.close().expect("the store closes");
    let store = Blocking::open(options()).expect("the store opens");
    check(&store);
    assert_eq!(store.store().len(), 10);
    store.close().expect("the store closes");
}
