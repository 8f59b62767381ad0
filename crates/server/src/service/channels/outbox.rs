//! Messages to publish later.

use bytes::Bytes;

use super::{Kind, Message};

/// Messages held back until the changes that caused them have taken effect.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(super) messages: Vec<(Kind, Bytes, Bytes)>,
    bytes: usize,
}

impl Outbox {
    pub(crate) fn put(&mut self, kind: Kind, channel: Bytes, payload: Bytes) {
        self.bytes += size_of::<Message>() + channel.len() + payload.len();
        self.messages.push((kind, channel, payload));
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the current position, for [`cut`](Self::cut).
    pub(crate) fn mark(&self) -> OutboxMark {
        OutboxMark { messages: self.messages.len(), bytes: self.bytes }
    }

    /// Removes the messages added since a mark.
    pub(crate) fn cut(&mut self, mark: OutboxMark) {
        self.messages.truncate(mark.messages);
        self.bytes = mark.bytes;
    }
}

/// A position in an [`Outbox`].
#[derive(Clone, Copy, Default)]
pub(crate) struct OutboxMark {
    messages: usize,
    bytes: usize,
}
