//! Writes the epoch of the next sequence numbers and the expiry watermarks into the superblocks while the store is open. A
//! watermark is written within a second after an expiry was reported by it. A task of its own, because a step of the reclaimer
//! may take as long as a relocation.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::waiting::woken_or_after;
use crate::write::Writer;

/// Writes watermarks until the store closes, which writes the last of them.
pub(crate) async fn run(writer: Arc<Writer>) {
    let (space, catalog) = (&writer.space, &writer.catalog);
    loop {
        let raised = space.watermarks.notified();
        if space.health.check_writable().is_err() {
            return;
        }
        let saved = async {
            space.reserve_numbers().await?;
            catalog.save_watermarks().await
        };
        match saved.await {
            Ok(()) => {}
            Err(Error::Closed { .. }) => return,
            Err(error) => return space.latch(&error),
        }
        woken_or_after(&*space.runtime, raised, catalog.watermarks_due()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use esker_log::SEQUENCE_EPOCH_SHIFT;

    use super::*;
    use crate::base::durability::Durability;
    use crate::testing::{EPOCH, Plan};

    #[test]
    fn epoch_is_raised_before_numbers_of_the_next_one_are_given_out() {
        let bench = Plan::new(3).build();
        let end = (EPOCH + 1) << SEQUENCE_EPOCH_SHIFT;
        bench.space.sequence.store(end - 50, Ordering::Release);
        bench.start();
        bench.writer.tasks.spawn("watermarks", run(bench.writer.clone()));
        bench.run(bench.sleep(std::time::Duration::from_secs(1)));
        for number in 0..100 {
            let key = format!("key {number}");
            let sequence = bench.run(bench.put(&key, &[1; 500], Durability::Sync)).expect("it is put");
            let epoch = bench.run(bench.space.superblocks.all())[0].epoch;
            assert!(sequence >> SEQUENCE_EPOCH_SHIFT <= epoch, "{sequence} is not of epoch {epoch}");
        }
        assert!(
            bench.space.sequence.load(Ordering::Acquire) > end,
            "numbers of the next epoch were given out"
        );
        let found = bench.run(bench.get("key 99")).expect("it can be read");
        assert!(found.is_some_and(|(_, sequence)| sequence > end));
    }
}
