//! Messages of PUBLISH on their way to the subscribers of other nodes: at most once, in order, and with bounded memory.
//!
//! Each other node has a queue, and one request on its way.

use bytes::Bytes;

use super::core::Node;
use crate::peers::PeerRequest;

impl Node {
    /// Queues a message for all other nodes that are reachable. The message is copied, because its memory belongs to a
    /// connection's buffer.
    pub(super) fn send_message(&self, channel: &[u8], text: &[u8]) {
        let message = (Bytes::copy_from_slice(channel), Bytes::copy_from_slice(text));
        let others =
            self.all_known().into_keys().filter(|node| *node != self.identity.node && self.is_up(*node));
        for to in others {
            if self.publishing.put(to, message.clone()) {
                let node = self.shared();
                self.runtime().spawn("publish", Box::pin(async move { node.send_messages(to).await }));
            }
        }
    }

    async fn send_messages(&self, to: u64) {
        loop {
            let messages = self.publishing.take(to);
            if messages.is_empty() {
                return;
            }
            if let Err(why) = self.call(to, PeerRequest::Publish(messages)).await {
                tracing::debug!("messages for subscribers of node {to:016x} are lost: {why}");
            }
        }
    }
}
