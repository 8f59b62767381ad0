//! The calls as users of the library meet them: what keys and values may be given as, single-step changes, conditions of
//! batches, time to live, iteration.

mod support;

use std::borrow::Cow;

use bytes::Bytes;
use esker::{Batch, Blocking, Options};

use support::opening::{small, temp};

fn open() -> (tempfile::TempDir, Blocking) {
    let dir = temp();
    let store = Blocking::open(small(Options::directory(dir.path().join("store")))).expect("the store opens");
    (dir, store)
}

#[test]
fn keys_and_values_may_be_borrowed_owned_or_shared() {
    let (_dir, store) = open();
    let (string, vec, bytes) = (String::from("key"), b"value".to_vec(), Bytes::from(vec![1u8; 3]));
    // What does not live for ever is borrowed too.
    store.put(string.as_str(), vec.as_slice()).expect("it is put");
    assert_eq!(store.get(&string).expect("it is read").as_deref(), Some(&vec[..]));
    store.put(&string, &vec).expect("it is put");
    store.put(&bytes, bytes.clone()).expect("it is put");
    assert_eq!(store.get(&bytes).expect("it is read"), Some(bytes.clone()));
    store.put(7u32.to_be_bytes(), b"array").expect("it is put");
    store.put(&8u32.to_be_bytes(), [1, 2, 3]).expect("it is put");
    store.put(Cow::from("cow"), Cow::from(&vec[..])).expect("it is put");
    assert_eq!(store.get("cow").expect("it is read").as_deref(), Some(&vec[..]));
    for key in ["a", "b"].iter() {
        store.put(key, format!("{key}!")).expect("it is put");
    }
    assert!(store.delete(&string).expect("it is deleted"));
    assert!(store.delete(7u32.to_be_bytes()).expect("it is deleted"));
    let mut batch = Batch::new();
    batch.put(string.as_str(), &vec).put_expiring(&string, &*vec, u64::MAX).delete(&bytes);
    store.write(batch).expect("it is written");
    assert_eq!(store.get("key").expect("it is read").as_deref(), Some(&b"value"[..]));
    assert_eq!(store.get(bytes).expect("it is read"), None);
    store.close().expect("it closes");
}
