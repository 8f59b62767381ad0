//! Reads from replicas: how old a value may be when its leader, or the replica, is cut off.

use std::time::Duration;

use esker_cluster::view::ClusterView;
use esker_device::Runtime;

use crate::machines::{Machines, Running};
use crate::support::Tiers;

/// The only data group of these clusters.
const GROUP: u8 = 1;
/// The staleness that the settings allow.
const STALENESS: Duration = Duration::from_millis(500);

/// Returns the machine that leads the group, and the others.
fn leader_and_others(machines: &Machines) -> (u64, Vec<u64>) {
    let leads = |machine: &u64| machines.running(*machine).node.check_leads(0).is_ok();
    let (leaders, others): (Vec<_>, Vec<_>) = machines.numbers().into_iter().partition(leads);
    assert_eq!(leaders.len(), 1, "one leads");
    (leaders[0], others)
}

/// Returns true if a read of the replica would be answered now.
fn is_recent(running: &Running) -> bool {
    running.node.mark(GROUP).is_some_and(|mark| running.node.is_recent(GROUP, &mark))
}

/// Reads a key from a replica as the server does; `None` if it is not recent.
async fn read(running: &Running, key: &str) -> Option<Option<Vec<u8>>> {
    let mark = running.node.mark(GROUP)?;
    let found = running.store.get(key).await.ok()?;
    running.node.is_recent(GROUP, &mark).then(|| found.map(|value| value.to_vec()))
}

#[test]
fn replica_that_is_cut_off_answers_for_the_staleness_alone() {
    let machines = Machines::of(31, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let (leader, others) = leader_and_others(&machines);
        let (leading, replica) = (machines.running(leader), machines.running(others[0]));
        leading.store.put("key", "old").await.expect("a majority has it");
        assert_eq!(read(&replica, "key").await, None, "nothing was confirmed");
        let _kept = replica.node.keep_recent().await;
        machines.until("the replica is recent", || is_recent(&replica)).await;
        assert_eq!(read(&replica, "key").await, Some(Some(b"old".to_vec())));
        let mark = replica.node.mark(GROUP).expect("it has the group");
        for other in machines.numbers().into_iter().filter(|other| *other != others[0]) {
            machines.net.cut(others[0], other);
            machines.net.cut(other, others[0]);
        }
        leading.store.put("key", "new").await.expect("a majority has it");
        assert_eq!(read(&replica, "key").await, Some(Some(b"old".to_vec())), "it may be stale for a while");
        world.sleep(STALENESS).await;
        assert_eq!(read(&replica, "key").await, None, "it is too old");
        assert!(!replica.node.is_recent(GROUP, &mark), "a value that was read in time is too old as well");
        machines.net.mend();
        machines.until("the replica is recent again", || is_recent(&replica)).await;
        assert_eq!(read(&replica, "key").await, Some(Some(b"new".to_vec())));
    });
    machines.end();
}

#[test]
fn replica_beside_a_leader_without_a_majority_is_not_recent() {
    let mut machines = Machines::of(32, 1, 5, Tiers::Fast);
    machines.set_replicas(5);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let (leader, others) = leader_and_others(&machines);
        let (leading, replica) = (machines.running(leader), machines.running(others[0]));
        leading.store.put("key", "old").await.expect("a majority has it");
        let _kept = replica.node.keep_recent().await;
        machines.until("the replica is recent", || is_recent(&replica)).await;
        for one in [leader, others[0]] {
            for other in &others[1..] {
                machines.net.cut(one, *other);
                machines.net.cut(*other, one);
            }
        }
        let elected =
            || others[1..].iter().find(|other| machines.running(**other).node.check_leads(0).is_ok());
        machines.until("the others elect a leader", || elected().is_some()).await;
        let elected = machines.running(*elected().expect("a leader"));
        elected.store.put("key", "new").await.expect("a majority has it");
        world.sleep(STALENESS * 2).await;
        assert!(leading.node.check_leads(0).is_ok(), "the old leader does not know of the new one");
        for machine in [&leading, &replica] {
            assert_eq!(read(machine, "key").await, None);
        }
        machines.net.mend();
        machines.until("the replica follows the new leader", || is_recent(&replica)).await;
        assert_eq!(read(&replica, "key").await, Some(Some(b"new".to_vec())));
    });
    machines.end();
}

#[test]
fn leaders_are_asked_only_while_clients_read_from_replicas() {
    let machines = Machines::of(33, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let questions = || machines.figure(1, "replica_questions_total");
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(questions(), 0.0);
        let kept = machines.running(1).node.keep_recent().await;
        assert_eq!(machines.figure(1, "replica_clients"), 1.0);
        world.sleep(Duration::from_secs(5)).await;
        assert!(questions() > 20.0, "{} questions in 5 s", questions());
        drop(kept);
        world.sleep(Duration::from_secs(2)).await;
        let before = questions();
        world.sleep(Duration::from_secs(5)).await;
        assert_eq!(questions(), before);
    });
    machines.end();
}
