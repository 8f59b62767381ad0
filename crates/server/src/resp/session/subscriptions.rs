//! The subscriptions of a client.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::resp::wire::glob::Parts;
use crate::service::channels::{Channels, Kind, Matches};
use crate::service::clients::Client;

/// Bytes of a subscription beside its name: its entry here, its entry among all channels, and the name's entry there.
const SUBSCRIPTION_BYTES: usize = 320;

/// Bytes of a pattern in the pattern lists of publishers: the latest list, and an older one that a publisher still
/// holds.
const LISTED_BYTES: usize = 96;

/// Limit of the patterns of one client. A publisher, and a writer whose keys cause events, matches every pattern of
/// all clients, at about a microsecond each.
const PATTERNS_MAX: usize = 1000;

const TOO_MANY_PATTERNS: &str =
    "ERR the client has 1000 patterns, the most that a client may have: subscribe to channels by name";
const TOO_MANY_PATTERNS_OF_ALL: &str = "ERR all clients together have 2000 different patterns, the most that there may be: subscribe to channels by name";

/// Patterns that the client had not subscribed to before, compiled.
pub(in crate::resp) type NewPatterns = HashMap<Bytes, Arc<Parts>>;

impl Matches for Parts {
    fn matches(&self, channel: &[u8]) -> bool {
        Parts::matches(self, channel)
    }
}

/// The subscriptions of a client. Dropping this value ends them.
pub(crate) struct Subscriptions {
    channels: Arc<Channels>,
    client: Arc<Client>,
    /// Subscribed names, indexed by the discriminant of [`Kind`].
    names: [BTreeSet<Bytes>; 3],
    /// True after MONITOR.
    monitors: bool,
    bytes: usize,
}

impl Subscriptions {
    pub(in crate::resp) fn new(channels: &Arc<Channels>, client: &Arc<Client>) -> Subscriptions {
        let (channels, client) = (channels.clone(), client.clone());
        Subscriptions { channels, client, names: Default::default(), monitors: false, bytes: 0 }
    }

    /// Subscribes to a channel, unless the client has subscribed to it.
    pub(in crate::resp) fn add(&mut self, kind: Kind, name: &[u8]) {
        if self.names[kind as usize].contains(name) {
            return;
        }
        let bytes = Bytes::copy_from_slice(name);
        self.channels.subscribe(kind, &bytes, self.client.id, &self.client.mailbox);
        self.keep(kind, bytes);
    }

    /// Subscribes to all the patterns, or to none of them. Returns the new ones; their subscriptions begin at once, and
    /// [`keep_pattern`](Self::keep_pattern) counts each of them when it is answered.
    ///
    /// # Errors
    /// If a pattern or one of its parts is too long, or if there would be too many patterns.
    pub(in crate::resp) fn begin_patterns<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Result<NewPatterns, &'static str> {
        let own = &self.names[Kind::Pattern as usize];
        let mut new = HashMap::new();
        for name in names.filter(|name| !own.contains(*name)) {
            if new.contains_key(name) {
                continue;
            }
            if own.len() + new.len() == PATTERNS_MAX {
                return Err(TOO_MANY_PATTERNS);
            }
            new.insert(Bytes::copy_from_slice(name), Arc::new(Parts::new(name)?));
        }
        if !self.channels.subscribe_patterns(&new, self.client.id, &self.client.mailbox) {
            return Err(TOO_MANY_PATTERNS_OF_ALL);
        }
        Ok(new)
    }

    /// Counts a pattern that is one of the new ones.
    pub(in crate::resp) fn keep_pattern(&mut self, name: &[u8], new: &mut NewPatterns) {
        if let Some((name, pattern)) = new.remove_entry(name) {
            self.bytes += pattern.held_bytes() + LISTED_BYTES;
            self.keep(Kind::Pattern, name);
        }
    }

    fn keep(&mut self, kind: Kind, name: Bytes) {
        self.bytes += SUBSCRIPTION_BYTES + 2 * name.len();
        self.names[kind as usize].insert(name);
        self.note();
    }

    /// Ends a subscription. Returns its name, or `None` if there was none. Queued messages are still delivered, until
    /// [`discard`](Self::discard).
    pub(in crate::resp) fn remove(&mut self, kind: Kind, name: &[u8]) -> Option<Bytes> {
        let name = self.names[kind as usize].take(name)?;
        self.channels.unsubscribe(kind, &name, self.client.id);
        let pattern = if kind == Kind::Pattern { Parts::new(&name).ok() } else { None };
        let held = pattern.map_or(0, |pattern| pattern.held_bytes() + LISTED_BYTES);
        self.bytes = self.bytes.saturating_sub(SUBSCRIPTION_BYTES + 2 * name.len() + held);
        self.note();
        Some(name)
    }

    /// Removes the queued messages of ended subscriptions.
    pub(in crate::resp) fn discard(&self, kind: Kind, ended: &HashSet<Bytes>) {
        if !ended.is_empty() {
            self.channels.discard(&self.client.mailbox, kind, ended);
        }
    }

    /// Returns the names of a kind, sorted.
    pub(in crate::resp) fn names(&self, kind: Kind) -> Vec<Bytes> {
        self.names[kind as usize].iter().cloned().collect()
    }

    /// Returns the number of subscriptions as their answers report it: shard channels are counted separately.
    pub(in crate::resp) fn count(&self, kind: Kind) -> usize {
        let of = |kind: Kind| self.names[kind as usize].len();
        if kind == Kind::Shard { of(Kind::Shard) } else { of(Kind::Channel) + of(Kind::Pattern) }
    }

    /// Starts MONITOR.
    pub(in crate::resp) fn monitor(&mut self) {
        if !std::mem::replace(&mut self.monitors, true) {
            self.channels.monitor(self.client.id, &self.client.mailbox);
            self.bytes += SUBSCRIPTION_BYTES;
        }
    }

    pub(in crate::resp) fn monitors(&self) -> bool {
        self.monitors
    }

    pub(in crate::resp) fn len(&self) -> usize {
        self.names.iter().map(BTreeSet::len).sum()
    }

    pub(in crate::resp) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Updates the counts that other connections see.
    fn note(&self) {
        self.client.note_subscriptions(Kind::ALL.map(|kind| self.names[kind as usize].len()));
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for kind in Kind::ALL {
            for name in &self.names[kind as usize] {
                self.channels.unsubscribe(kind, name, self.client.id);
            }
        }
        self.channels.end_monitor(self.client.id);
        self.client.note_subscriptions([0; 3]);
        self.channels.discard_all(&self.client.mailbox);
    }
}
