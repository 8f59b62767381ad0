//! Beside a server, records move and slots are reused between reading the summaries and reading the
//! records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_device::{Buffer, Device, ReadAt};
use esker_engine::{Durability, Options, Store};
use esker_inspect::{StoreView, Watcher};
use esker_simulated::SimRuntime;

use crate::made::{SEGMENT_BYTES, device};

const KEYS: u64 = 300;

/// A device in two states, one after the other.
struct Changing {
    before: Vec<u8>,
    after: Vec<u8>,
    has_changed: AtomicBool,
}

impl ReadAt for Changing {
    fn path(&self) -> String {
        "changing".to_owned()
    }

    fn bytes(&self) -> u64 {
        self.before.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> std::io::Result<()> {
        let now = if self.has_changed.load(Ordering::Relaxed) { &self.after } else { &self.before };
        now.read_at(offset, buffer)
    }
}

/// Switches the device to its second state when the records are about to be read.
struct Changer(Arc<Changing>);

impl Watcher for Changer {
    fn begin(&self, what: &str, _: u64) {
        self.0.has_changed.fetch_or(what == "reading records", Ordering::Relaxed);
    }

    fn advance(&self, _: u64) {}
}

fn key(number: u64) -> String {
    format!("key-{number:03}")
}

/// Returns a store before and after all keys were overwritten and the segments of the old values were
/// freed and reused.
fn changing() -> Changing {
    let runtime = SimRuntime::new(3);
    let device = device(28, 4096);
    let options = Options::devices(None, Some(Arc::new(device.clone()) as Arc<dyn Device>))
        .segment_bytes(SEGMENT_BYTES)
        .indirection_unit_bytes(4096)
        .durability(Durability::None)
        .runtime(Arc::new(runtime.clone()))
        .memory_bytes(64 << 20);
    let store = runtime.run(Store::open(options)).expect("a new store opens");
    let write = |stamp: u64| {
        runtime.run(async {
            for number in 0..KEYS {
                let value = format!("{}#{stamp};", key(number)).repeat(100);
                store.put(key(number), value).await.expect("there is room");
            }
            store.flush().await.expect("it can be flushed");
        });
    };
    write(0);
    let before = device.snapshot();
    (1..9).for_each(write);
    runtime.run(store.compact()).expect("it can be compacted");
    let after = device.snapshot();
    runtime.crash();
    Changing { before, after, has_changed: AtomicBool::new(false) }
}

#[test]
fn view_looks_up_records_moved_after_summaries_were_read() {
    let device = Arc::new(changing());
    let view = StoreView::over(vec![device.clone()]).expect("it is a store");
    let mut found = BTreeMap::new();
    view.scan(None, 0, &Changer(device.clone()), |item| {
        let item = item.unwrap_or_else(|error| panic!("a healthy key: {error}"));
        let value = String::from_utf8(item.value).expect("it is text");
        let shown = found.insert(String::from_utf8(item.key).expect("it is text"), value);
        assert!(shown.is_none(), "each key once");
        Ok(ControlFlow::Continue(()))
    })
    .expect("it can be scanned");
    assert!(device.has_changed.load(Ordering::Relaxed));
    let keys: Vec<String> = (0..KEYS).map(key).collect();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), keys);
    assert!(found.iter().all(|(key, value)| value.starts_with(&format!("{key}#"))));
    let newer = found.values().filter(|value| !value.contains("#0;")).count();
    assert!(newer > 0, "some of them moved");

    // One key alone. The device is in its second state before the first read, so it switches back.
    device.has_changed.store(false, Ordering::Relaxed);
    for number in 0..KEYS {
        let view = StoreView::over(vec![device.clone()]).expect("it is a store");
        let item = view.get(0, key(number).as_bytes(), 0, &Changer(device.clone()));
        assert!(item.is_ok_and(|item| item.is_some()), "{number}");
        device.has_changed.store(false, Ordering::Relaxed);
    }
}
