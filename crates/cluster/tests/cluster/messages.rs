//! Messages of PUBLISH between nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_cluster::view::{ClusterView, MessageWatch};
use esker_device::Runtime;
use parking_lot::Mutex;

use crate::machines::Machines;
use crate::support::Tiers;

#[derive(Default)]
struct Heard(Mutex<Vec<(Bytes, Bytes)>>);

impl MessageWatch for Heard {
    fn published(&self, channel: &[u8], text: &[u8]) {
        self.0.lock().push((Bytes::copy_from_slice(channel), Bytes::copy_from_slice(text)));
    }
}

#[test]
fn messages_reach_all_other_nodes_in_order() {
    let mut machines = Machines::of(31, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let heard: Vec<Arc<Heard>> = (1..=3).map(|_| Arc::default()).collect();
        for (machine, heard) in (1..).zip(&heard) {
            machines.running(machine).node.watch_messages(heard.clone());
        }
        let node = machines.running(1).node;
        let message = |number: u32| (Bytes::from("channel"), Bytes::from(vec![number as u8; 2000]));
        for number in 0..200 {
            let (channel, text) = message(number);
            node.publish(channel, text);
        }
        let expected: Vec<_> = (0..200).map(message).collect();
        machines
            .until("both have heard all", || heard[1..].iter().all(|heard| *heard.0.lock() == expected))
            .await;
        assert!(heard[0].0.lock().is_empty(), "a node does not hear itself");
        // Those for a node that is away are lost, and later ones arrive.
        machines.crash(3);
        world.sleep(Duration::from_secs(5)).await;
        node.publish("lost".into(), "text".into());
        machines.start(3).await;
        machines.running(3).node.watch_messages(heard[2].clone());
        let (channel, last) = (Bytes::from("last"), Bytes::from("text"));
        machines
            .until("the node that was away hears again", || {
                node.publish(channel.clone(), last.clone());
                heard[2].0.lock().last() == Some(&(channel.clone(), last.clone()))
            })
            .await;
        assert!(!heard[2].0.lock().iter().any(|(channel, _)| channel == "lost"));
    });
    machines.end();
}
