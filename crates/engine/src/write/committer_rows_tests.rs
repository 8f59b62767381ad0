//! Rows of puts that are acknowledged together.

use super::*;

/// Returns the puts of one row, each a thousand bytes long.
fn row(keys: impl Iterator<Item = usize>) -> Vec<(bytes::Bytes, bytes::Bytes, Option<u64>)> {
    keys.map(|number| (name(number).into(), vec![number as u8; 1000].into(), None)).collect()
}

/// The row takes several frames.
#[test]
fn a_row_of_puts_is_acknowledged_when_all_of_it_is_durable() {
    for seed in 0..10 {
        let bench = bench(seed);
        bench.run(async {
            bench.put("other", b"value", SYNC).await.expect("it is put");
            let results = bench.writer.put_many(0, row(0..50), sync()).await;
            let durable = bench.durable();
            for result in results {
                let sequence = result.expect("it is put");
                assert!(durable.iter().any(|entry| entry.sequence == sequence), "seed {seed}: {sequence}");
            }
        });
    }
}

/// Puts behind the reserved key wait as well, and each is acknowledged with its own sequence number.
#[test]
fn a_row_of_puts_waits_at_a_key_that_is_reserved() {
    let bench = bench(1);
    bench.run(async {
        bench.put("other", b"value", SYNC).await.expect("it is put");
        let stored = bench.catalog.index.stored_hash(&bench.catalog.hash_in(0, name(1).as_bytes()));
        let reservation = bench.writer.lane.reserve(vec![stored]).await.expect("nothing fails");
        let release = async {
            bench.sleep(Duration::from_micros(50)).await;
            drop(reservation);
        };
        let (results, ()) = join(bench.writer.put_many(0, row(0..4), sync()), release).await;
        let results: Vec<u64> = results.into_iter().map(|result| result.expect("it is put")).collect();
        let mut found = Vec::new();
        for number in 0..4 {
            let entry = bench.get(&name(number)).await.expect("it is read").expect("it is there");
            found.push(entry.1);
        }
        assert_eq!(results, found);
        assert!(found.is_sorted());
    });
}
