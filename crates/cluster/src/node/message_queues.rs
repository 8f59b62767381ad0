//! Queues of messages for the subscribers of other nodes. Messages for a node that is slow or not reachable are dropped once its
//! queue is full, as Redis drops those for a slow subscriber.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::view::MessageWatch;

/// Maximum bytes of messages that wait for a node, beyond one message.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// Bytes of messages after which a request is full.
const REQUEST_BYTES: usize = 64 << 10;
/// Bytes that each message takes beside its channel and text.
const MESSAGE_BYTES: usize = 2 * size_of::<Bytes>();

/// A channel and a text.
pub(super) type Message = (Bytes, Bytes);

fn bytes_of((channel, text): &Message) -> usize {
    MESSAGE_BYTES + channel.len() + text.len()
}

/// Messages that wait for a node.
#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    bytes: usize,
    /// True while a task sends them.
    is_sending: bool,
}

impl Queue {
    /// Adds a message, unless the queue is full. Returns true if a task is needed that sends it.
    fn put(&mut self, message: Message) -> bool {
        if self.bytes > QUEUE_BYTES_MAX {
            return false;
        }
        self.bytes += bytes_of(&message);
        self.messages.push_back(message);
        !std::mem::replace(&mut self.is_sending, true)
    }

    /// Takes the messages of the next request; none if the task that sends them ends.
    fn take(&mut self) -> Vec<Message> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < REQUEST_BYTES
            && let Some(message) = self.messages.pop_front()
        {
            bytes += bytes_of(&message);
            taken.push(message);
        }
        self.bytes -= bytes;
        self.is_sending = !taken.is_empty();
        taken
    }
}

/// Messages from and to other nodes.
#[derive(Default)]
pub(super) struct Publishing {
    queues: Mutex<BTreeMap<u64, Queue>>,
    watch: Mutex<Option<Arc<dyn MessageWatch>>>,
}

impl Publishing {
    pub(super) fn watch(&self, watch: Arc<dyn MessageWatch>) {
        *self.watch.lock() = Some(watch);
    }

    /// Queues a message for a node. Returns true if a task is needed that sends it.
    pub(super) fn put(&self, node: u64, message: Message) -> bool {
        self.queues.lock().entry(node).or_default().put(message)
    }

    /// Takes the messages of the next request to a node; none if the task that sends them ends.
    pub(super) fn take(&self, node: u64) -> Vec<Message> {
        self.queues.lock().entry(node).or_default().take()
    }

    /// Delivers messages of another node.
    pub(super) fn receive(&self, messages: &[Message]) {
        let watch = self.watch.lock().clone();
        for (channel, text) in messages {
            watch.iter().for_each(|watch| watch.published(channel, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: usize, bytes: usize) -> Message {
        (Bytes::from(number.to_string()), Bytes::from(vec![0; bytes]))
    }

    #[test]
    fn full_queue_drops_messages_and_one_task_sends_the_others() {
        let mut queue = Queue::default();
        assert!(queue.put(message(0, 100)), "a task is needed");
        for number in 1..1000 {
            assert!(!queue.put(message(number, 10 << 10)), "it is there already");
        }
        assert!(queue.bytes <= QUEUE_BYTES_MAX + (11 << 10), "{}", queue.bytes);
        let mut taken = Vec::new();
        loop {
            let messages = queue.take();
            if messages.is_empty() {
                break;
            }
            assert!(messages.iter().map(bytes_of).sum::<usize>() < REQUEST_BYTES + (11 << 10));
            taken.extend(messages.into_iter().map(|(channel, _)| channel));
        }
        let expected: Vec<_> = (0..taken.len()).map(|number| Bytes::from(number.to_string())).collect();
        assert!(taken == expected && taken.len() > 300 && queue.bytes == 0, "{taken:?}");
        assert!(queue.put(message(0, 1)), "a task is needed again");
    }
}
