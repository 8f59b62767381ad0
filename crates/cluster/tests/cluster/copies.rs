//! Copies of a group for a backup.

use esker_cluster::changes::decode_changes;
use esker_cluster::view::{ClusterView, CopyStep};

use crate::machines::Machines;
use crate::support::Tiers;

#[test]
fn copy_has_what_was_written_while_its_keys_were_read() {
    let machines = Machines::of(43, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let leads = |machine: &u64| machines.running(*machine).node.check_leads(0).is_ok();
        let leader = machines.numbers().into_iter().find(leads).expect("one leads");
        let running = machines.running(leader);
        running.store.put("key", "before").await.expect("a majority has it");
        let step = |step| running.node.copy(1, step);
        let begun = step(CopyStep::Begin).await.expect("it leads");
        let keys = step(CopyStep::Keys { copy: begun.copy, cursor: 0 }).await.expect("it runs");
        assert_eq!((keys.count, keys.next), (1, None));
        running.store.put("key", "after").await.expect("a majority has it");
        let log = step(CopyStep::Log { copy: begun.copy, after: begun.index }).await.expect("it runs");
        assert_eq!(log.count, 1, "the log of the copy has the write");
        let changes = decode_changes(&log.changes).expect("they are whole");
        let newest = changes.last().and_then(|change| change.value.as_ref()).map(|value| &value.bytes[..]);
        assert_eq!(newest, Some(&b"after"[..]));
    });
    machines.end();
}
