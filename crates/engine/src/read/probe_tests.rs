use bytes::Bytes;

use crate::base::durability::Durability;
use crate::catalog::cache::Cached;
use crate::read::Reader;
use crate::read::probe::Probe;
use crate::testing::{Bench, Plan};

fn started(plan: Plan) -> (Bench, Reader) {
    let bench = plan.build();
    bench.start();
    let reader = Reader::new(bench.writer.clone());
    (bench, reader)
}

/// Puts a key of database 0.
async fn put(bench: &Bench, key: &str, value: &[u8]) {
    bench.put(key, value, Durability::None).await.expect("there is room");
}

async fn get_probed(reader: &Reader, probe: &Probe<'_>) -> Option<Bytes> {
    reader.get_probed(*probe).await.expect("nothing is damaged").map(Cached::into_value)
}

#[test]
fn probed_get_returns_the_current_value() {
    let (bench, reader) = started(Plan::new(1));
    bench.run(async {
        let absent = reader.probe(0, b"key");
        assert_eq!(get_probed(&reader, &absent).await, None);
        put(&bench, "key", b"first").await;
        let first = reader.probe(0, b"key");
        assert!(first.pointer.is_some() && absent.pointer.is_none());
        assert_eq!(get_probed(&reader, &absent).await.as_deref(), Some(&b"first"[..]), "it was put since");
        assert_eq!(get_probed(&reader, &first).await.as_deref(), Some(&b"first"[..]));
        put(&bench, "key", b"second").await;
        assert_eq!(get_probed(&reader, &first).await.as_deref(), Some(&b"second"[..]), "it was replaced");
        assert!(bench.delete("key").await.expect("it is deleted"));
        assert_eq!(get_probed(&reader, &first).await, None, "it was deleted");
        assert_eq!(get_probed(&reader, &reader.probe(0, b"")).await, None, "no key is empty");
    });
}

#[test]
fn probed_get_follows_a_swap_of_databases() {
    let (bench, reader) = started(Plan::new(2));
    bench.run(async {
        put(&bench, "key", b"of 0").await;
        let (of_0, of_9) = (reader.probe(0, b"key"), reader.probe(9, b"key"));
        bench.writer.swap_databases(0, 9).await.expect("they are swapped");
        // The pointer is current, but in the keyspace that is now of database 9.
        assert_eq!(get_probed(&reader, &of_0).await, None);
        assert_eq!(get_probed(&reader, &of_9).await.as_deref(), Some(&b"of 0"[..]));
        put(&bench, "key", b"new of 0").await;
        assert_eq!(get_probed(&reader, &of_0).await.as_deref(), Some(&b"new of 0"[..]));
        bench.writer.swap_databases(0, 9).await.expect("they are swapped back");
        assert_eq!(get_probed(&reader, &of_0).await.as_deref(), Some(&b"of 0"[..]));
        assert_eq!(get_probed(&reader, &of_9).await.as_deref(), Some(&b"new of 0"[..]));
    });
}

/// Two keys share the index slot, and the pointer in it changes from one to the other.
#[test]
fn probed_get_distinguishes_keys_of_one_index_slot() {
    let (bench, reader) = started(Plan { hash_bits: Some(4), ..Plan::new(3) });
    let names: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
    bench.run(async {
        for name in &names {
            put(&bench, name, name.as_bytes()).await;
        }
        let probes: Vec<Probe<'_>> = names.iter().map(|name| reader.probe(0, name.as_bytes())).collect();
        for round in 0..2 {
            for (number, (name, probe)) in names.iter().zip(&probes).enumerate() {
                assert_eq!(get_probed(&reader, probe).await.as_deref(), Some(name.as_bytes()), "{round}");
                // The next puts displace other keys, whose probes are older.
                put(&bench, &names[(number + 7) % names.len()], names[(number + 7) % names.len()].as_bytes())
                    .await;
            }
        }
        for (name, probe) in names.iter().zip(&probes) {
            assert!(bench.delete(name).await.expect("it is deleted"));
            assert_eq!(get_probed(&reader, probe).await, None);
        }
    });
}

#[test]
fn peek_many_returns_probes_of_keys_not_accepted() {
    let (bench, reader) = started(Plan::new(4));
    let names: Vec<String> = (0..40).map(|number| format!("key {number}")).collect();
    bench.run(async {
        for name in &names {
            put(&bench, name, name.as_bytes()).await;
        }
        for accepted in [0, 1, 15, 16, 17, 39, 40] {
            let (mut seen, mut left) = (0, Vec::new());
            let see = |view: Option<crate::read::peek::View<'_>>| {
                assert_eq!(view.map(|view| view.value), Some(names[seen].as_bytes()));
                let accepts = seen < accepted;
                seen += usize::from(accepts);
                accepts
            };
            let keys = names.iter().map(|name| name.as_bytes());
            let count = reader.peek_many(0, keys, see, |probe| left.push(probe)).expect("it is open");
            assert_eq!(count, accepted);
            let row_end = (accepted / 16 * 16 + 16).min(names.len());
            let keys: Vec<&[u8]> = left.iter().map(Probe::key).collect();
            let expected: Vec<&[u8]> = names[accepted..row_end].iter().map(|name| name.as_bytes()).collect();
            assert_eq!(keys, expected, "the rest of the row");
            for probe in &left {
                assert_eq!(get_probed(&reader, probe).await.as_deref(), Some(probe.key()));
            }
        }
    });
}
