//! Messages between the nodes of a cluster.

use std::sync::Arc;

use bytes::Bytes;
use esker_cluster::view::{ClusterView, MessageWatch};

use super::{Channels, Kind, Outbox};

impl MessageWatch for Channels {
    fn published(&self, channel: &[u8], text: &[u8]) {
        self.publish(Kind::Channel, channel, text);
    }
}

impl Channels {
    /// Exchanges messages with the other nodes of a cluster from now on.
    pub(crate) fn relay(self: &Arc<Channels>, view: &Arc<dyn ClusterView>) {
        if self.others.set(view.clone()).is_ok() {
            view.watch_messages(self.clone());
        }
    }

    /// As [`publish`](Self::publish), and sends a message of a plain channel to all nodes of a cluster. Returns the number of
    /// deliveries on this node, as Redis Cluster does.
    pub(crate) fn publish_everywhere(&self, kind: Kind, channel: &Bytes, payload: &Bytes) -> usize {
        if kind == Kind::Channel
            && let Some(others) = self.others.get()
        {
            others.publish(channel.clone(), payload.clone());
        }
        self.publish(kind, channel, payload)
    }

    /// Publishes all messages of an outbox.
    pub(crate) fn publish_all(&self, outbox: Outbox) {
        for (kind, channel, payload) in outbox.messages {
            self.publish_everywhere(kind, &channel, &payload);
        }
    }
}
