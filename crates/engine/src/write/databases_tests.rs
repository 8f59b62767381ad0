use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;

use crate::base::durability::Durability;
use crate::catalog::Catalog;
use crate::catalog::cache::Entry;
use crate::testing::{Bench, Plan};
use crate::write::batch::Batch;
use crate::write::options::{Condition, WriteOptions};

fn started(plan: Plan) -> Bench {
    let bench = plan.build();
    bench.start();
    bench
}

async fn put(bench: &Bench, database: u8, key: &str, value: &[u8], durability: Durability) {
    let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
    let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value));
    bench.writer.put(database, key, value, options).await.expect("there is room");
}

/// Returns the value of a key in a database.
async fn get(bench: &Bench, database: u8, key: &str) -> Option<Bytes> {
    let hash = bench.catalog.hash_in(database, key.as_bytes());
    let found = bench.catalog.look_up(key.as_bytes(), &hash).await.expect("nothing is damaged");
    found.map(|found| Bytes::copy_from_slice(found.record.value()))
}

fn live_bytes(catalog: &Catalog) -> u64 {
    catalog.space.live_bytes()
}

#[test]
fn live_bytes_are_known_after_clear_of_one_database() {
    for hash_bits in [None, Some(4)] {
        let bench = started(Plan { hash_bits, ..Plan::new(1) });
        bench.run(async {
            for number in 0..100 {
                let key = format!("key {number}");
                put(&bench, 0, &key, &[1; 200], Durability::None).await;
                put(&bench, 5, &key, &vec![2; 100 + number], Durability::None).await;
            }
            let both = live_bytes(&bench.catalog);
            bench.writer.clear(5..6).await.expect("it can be cleared");
            let left = live_bytes(&bench.catalog);
            let (of_first, cleared) = (100 * 240, both - left);
            let most = both - of_first;
            assert!(
                cleared > most * 9 / 10 && cleared < most * 11 / 10,
                "{cleared} of {most}, {hash_bits:?}"
            );
            assert_eq!((bench.catalog.index.len(), get(&bench, 5, "key 7").await), (100, None));
            assert_eq!(get(&bench, 0, "key 7").await.as_deref(), Some(&[1; 200][..]));
            put(&bench, 5, "key 7", b"again", Durability::None).await;
            assert_eq!(get(&bench, 5, "key 7").await.as_deref(), Some(&b"again"[..]));
            bench.writer.clear(0..16).await.expect("it can be cleared");
            assert_eq!(
                (live_bytes(&bench.catalog), bench.catalog.index.len()),
                (0, 0),
                "the live bytes are exact"
            );
        });
    }
}

/// A write that begins before a swap is acknowledged takes effect before or after it: keys present when the swap is
/// acknowledged stay, unless the write is to the other keyspace.
#[test]
fn write_around_swap_lands_in_its_database() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..120 {
        let bench = started(Plan { slow: true, ..Plan::new(seed) });
        let kind = seed % 6;
        let swap = async {
            bench.sleep(Duration::from_micros(80)).await;
            bench.writer.swap_databases(0, 9).await.expect("it can be swapped");
            get(&bench, 9, "key").await
        };
        let write = async {
            bench.sleep(Duration::from_micros(seed * 2)).await;
            let (key, new) = (Bytes::from_static(b"key"), Bytes::from_static(b"new"));
            let durability = Some(if kind == 0 { Durability::Sync } else { Durability::None });
            let mut options = WriteOptions { durability, ..WriteOptions::default() };
            let mut batch = Batch::new();
            let writer = &bench.writer;
            match kind {
                0 | 1 => writer.put(0, key, new, options).await.map(drop),
                2 => {
                    options.condition = Condition::IfPresent;
                    writer.put(0, key, new, options).await.map(drop)
                }
                3 => writer.delete(0, key, options).await.map(drop),
                4 => {
                    batch.put(&key, new).put("other", "value");
                    writer.write(0, batch, options).await
                }
                _ => {
                    let named = writer.named([(0, &key[..])].into_iter());
                    let change = |_: &[Option<Entry>]| {
                        batch.put(&key, new);
                        (batch, ())
                    };
                    writer.update(0, named, options, change).await
                }
            }
        };
        bench.run(async {
            put(&bench, 0, "key", b"zero", Durability::Sync).await;
            put(&bench, 9, "key", b"nine", Durability::Sync).await;
            let (when_answered, written) = join(swap, write).await;
            written.expect("it is written");
            let new = if kind == 3 { None } else { Some(Bytes::from_static(b"new")) };
            let wanted = if when_answered.as_deref() == Some(b"zero") {
                after += 1;
                [new, when_answered.clone()]
            } else {
                before += 1;
                assert_eq!(when_answered, new, "seed {seed}");
                [Some(Bytes::from_static(b"nine")), new]
            };
            assert_eq!([get(&bench, 0, "key").await, get(&bench, 9, "key").await], wanted, "seed {seed}");
        });
    }
    assert!(before > 5 && after > 20, "writes came before and after: {before}, {after}");
}

/// A writer that waits for its keys during a swap holds the keys of the keyspace that its database has afterwards.
#[test]
fn writer_waiting_for_swap_reserves_keys_of_new_keyspace() {
    for kind in 0..3 {
        let bench = started(Plan { slow: true, ..Plan::new(kind) });
        let (catalog, writer) = (&bench.catalog, &bench.writer);
        let is_held = || {
            let stored = catalog.index.stored_hash(&catalog.hash_in(0, b"key"));
            writer.lane.try_reserve(vec![stored]).is_none()
        };
        let waiting = async {
            let key = Bytes::from_static(b"key");
            let kind_of_record = esker_log::Kind::Put;
            let record =
                || writer.prepare(kind_of_record, Some(0), key.clone(), Bytes::from_static(b"new"), None);
            let mut record = [record().expect("it can be put")];
            match kind {
                0 => {
                    let _reservation = writer.reserve(&mut record).await.expect("nothing fails");
                    assert!(is_held(), "a conditional put");
                }
                1 => {
                    let _turn = writer.turn(&mut record).await.expect("nothing fails");
                    assert!(is_held(), "a plain put");
                }
                _ => {
                    let named = writer.named([(0, &key[..])].into_iter());
                    let change = |entries: &[Option<Entry>]| {
                        let seen = entries[0].as_ref().map(|entry| entry.value.clone());
                        assert_eq!(seen.as_deref(), Some(&b"nine"[..]));
                        assert!(is_held(), "an update");
                        (Batch::new(), ())
                    };
                    writer.update(0, named, WriteOptions::default(), change).await.expect("nothing fails");
                }
            }
            assert_eq!(record[0].hash.keyspace() == catalog.keyspace(0), kind < 2);
        };
        bench.run(async {
            put(&bench, 0, "key", b"zero", Durability::Sync).await;
            put(&bench, 9, "key", b"nine", Durability::Sync).await;
            // Both are queued before either is granted, the swap first.
            let all = writer.lane.reserve_all().await.expect("nothing fails");
            let release = async {
                bench.sleep(Duration::from_micros(10)).await;
                drop(all);
            };
            let swap = writer.swap_databases(0, 9);
            let (swapped, (), ()) = futures_util::future::join3(swap, waiting, release).await;
            swapped.expect("nothing fails");
        });
    }
}
