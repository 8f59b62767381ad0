//! Publish and subscribe: the subscribers of channels, and the pending messages of each.
//!
//! A message goes to the mailboxes of all subscribers at once, and publishers never wait for subscribers. The messages pending in
//! all mailboxes share one part of the memory for clients. A subscriber is closed if its mailbox exceeds the limit of a reply
//! queue. If the shared memory runs out, the subscriber with the most pending bytes is closed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use esker_cluster::view::ClusterView;
use tokio::sync::Notify;

use crate::budget::Share;

mod outbox;
mod relay;

pub(crate) use outbox::Outbox;

/// Kind of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    /// A pattern over channel names.
    Pattern,
    /// A shard channel, in a separate namespace; Redis Cluster keeps these on one shard.
    Shard,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub(crate) const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];
}

/// A pattern that selects channel names.
pub(crate) trait Matches: Send + Sync {
    fn matches(&self, channel: &[u8]) -> bool;
}

/// A message as delivered to one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// The matched pattern, if the message was delivered through one.
    pub(crate) pattern: Option<Bytes>,
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

/// A changed key that a client caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) key: Bytes,
    /// Database of the change, if the client may not have seen the key yet.
    pub(crate) database: Option<u8>,
}

/// An item in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    Message(Message),
    /// A command that ran, for MONITOR.
    Command(Bytes),
    /// Changed keys that the client caches; `None`: all keys.
    Invalid(Option<Arc<[Stale]>>),
    /// The client that received the invalidations has disconnected.
    BrokenRedirection(u64),
}

/// Memory of a letter beyond its content, in bytes: its slot in a queue that doubles when it grows, and two allocations.
const LETTER_BYTES: usize = 2 * size_of::<Letter>() + 128;

/// Additional memory per key in a letter, in bytes.
const KEY_BYTES: usize = size_of::<Stale>() + 64;

impl Letter {
    pub(super) fn bytes(&self) -> usize {
        let said = match self {
            Letter::Message(Message { pattern, channel, payload, .. }) => {
                pattern.as_ref().map_or(0, Bytes::len) + channel.len() + payload.len()
            }
            Letter::Command(line) => line.len(),
            Letter::Invalid(keys) => {
                keys.iter().flat_map(|keys| keys.iter()).map(|stale| KEY_BYTES + stale.key.len()).sum()
            }
            Letter::BrokenRedirection(_) => 0,
        };
        LETTER_BYTES + said
    }
}

/// Queue of pending letters for one subscriber.
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    overflows: Notify,
}

#[derive(Default)]
struct Waiting {
    letters: VecDeque<Letter>,
    bytes: usize,
    /// True after an overflow: the mailbox accepts no more letters.
    overflown: bool,
}

/// Mailboxes of subscribers by client id.
type Subscribers = BTreeMap<u64, Arc<Mailbox>>;

/// Maximum number of distinct patterns of all clients. Every message is matched with every pattern, at about a microsecond each
/// for the publisher.
const PATTERNS_MAX: usize = 2000;

/// Snapshot of the patterns, which a publisher matches without the lock.
type Listed = Arc<[(Bytes, Arc<dyn Matches>)]>;

#[derive(Default)]
struct Subscribed {
    channels: HashMap<Bytes, Subscribers>,
    shard_channels: HashMap<Bytes, Subscribers>,
    patterns: HashMap<Bytes, (Arc<dyn Matches>, Subscribers)>,
    /// Snapshot of the patterns; `None` if they changed since it was taken.
    listed: Option<Listed>,
    /// Subscribers of MONITOR.
    monitors: Subscribers,
    /// Clients that receive invalidations.
    keepers: Subscribers,
}

impl Subscribed {
    fn listed(&mut self) -> Listed {
        let Subscribed { patterns, listed, .. } = self;
        let list = || patterns.iter().map(|(name, (matches, _))| (name.clone(), matches.clone())).collect();
        listed.get_or_insert_with(list).clone()
    }
}

/// All subscriptions.
pub(crate) struct Channels {
    subscribed: Mutex<Subscribed>,
    /// Number of subscriptions, so that a message without subscribers costs nothing.
    count: AtomicUsize,
    /// Number of MONITOR clients, so that commands cost nothing without any.
    monitors: AtomicUsize,
    /// Maximum pending bytes of a mailbox.
    mailbox_bytes_max: usize,
    /// Pending bytes of all mailboxes and the share that pays for them; no share if there was no room for it at the start.
    held: Mutex<(usize, Option<Share>)>,
    /// The other nodes of a cluster.
    others: OnceLock<Arc<dyn ClusterView>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channels {
    pub(crate) fn new(mailbox_bytes_max: usize, share: Option<Share>) -> Channels {
        Channels {
            subscribed: Mutex::default(),
            count: AtomicUsize::new(0),
            monitors: AtomicUsize::new(0),
            mailbox_bytes_max,
            held: Mutex::new((0, share)),
            others: OnceLock::new(),
        }
    }

    /// Creates the mailbox of a new subscriber.
    pub(crate) fn mailbox() -> Arc<Mailbox> {
        let (arrived, overflows) = (Notify::new(), Notify::new());
        Arc::new(Mailbox { waiting: Mutex::default(), arrived, overflows })
    }

    /// Subscribes to a channel. The subscriber must not be subscribed to it already.
    pub(crate) fn subscribe(&self, kind: Kind, name: &Bytes, subscriber: u64, mailbox: &Arc<Mailbox>) {
        let mut subscribed = lock(&self.subscribed);
        let channels = match kind {
            Kind::Shard => &mut subscribed.shard_channels,
            Kind::Channel | Kind::Pattern => &mut subscribed.channels,
        };
        channels.entry(name.clone()).or_default().insert(subscriber, mailbox.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Subscribes to all channels whose names match one of the patterns. Returns false, and subscribes to none of them, if that
    /// would exceed [`PATTERNS_MAX`] different patterns.
    pub(crate) fn subscribe_patterns<M: Matches + 'static>(
        &self,
        new: &HashMap<Bytes, Arc<M>>,
        subscriber: u64,
        mailbox: &Arc<Mailbox>,
    ) -> bool {
        let mut subscribed = lock(&self.subscribed);
        let Subscribed { patterns, listed, .. } = &mut *subscribed;
        let others = new.keys().filter(|pattern| !patterns.contains_key(*pattern)).count();
        if patterns.len() + others > PATTERNS_MAX {
            return false;
        }
        if others > 0 {
            *listed = None;
        }
        for (pattern, matches) in new {
            let entry = patterns.entry(pattern.clone());
            let (_, subscribers) = entry.or_insert_with(|| (matches.clone(), Subscribers::new()));
            subscribers.insert(subscriber, mailbox.clone());
        }
        self.count.fetch_add(new.len(), Ordering::Relaxed);
        true
    }

    /// Ends an existing subscription.
    pub(crate) fn unsubscribe(&self, kind: Kind, name: &Bytes, subscriber: u64) {
        let mut subscribed = lock(&self.subscribed);
        let Subscribed { channels, shard_channels, patterns, listed, .. } = &mut *subscribed;
        let subscribers = match kind {
            Kind::Channel => channels.get_mut(name),
            Kind::Shard => shard_channels.get_mut(name),
            Kind::Pattern => patterns.get_mut(name).map(|(_, subscribers)| subscribers),
        };
        let Some(subscribers) = subscribers else { return };
        if subscribers.remove(&subscriber).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        if subscribers.is_empty() {
            match kind {
                Kind::Channel => drop(channels.remove(name)),
                Kind::Shard => drop(shard_channels.remove(name)),
                Kind::Pattern => {
                    patterns.remove(name);
                    *listed = None;
                }
            }
        }
    }

    /// Delivers a message to all subscribers of a channel. Returns the number of deliveries, which counts a subscriber once for
    /// each of its patterns.
    pub(crate) fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let (channel, payload) = (Bytes::copy_from_slice(channel), Bytes::copy_from_slice(payload));
        let (subscribed, matching) = self.matching(kind, &channel);
        let mut receivers = 0;
        let mut send = |subscribers: &Subscribers, pattern: Option<&Bytes>| {
            for mailbox in subscribers.values() {
                let (channel, payload) = (channel.clone(), payload.clone());
                let message = Message { kind, pattern: pattern.cloned(), channel, payload };
                receivers += usize::from(self.put(mailbox, Letter::Message(message), &subscribed));
            }
        };
        let channels = match kind {
            Kind::Shard => &subscribed.shard_channels,
            Kind::Channel | Kind::Pattern => &subscribed.channels,
        };
        if let Some(subscribers) = channels.get(&channel) {
            send(subscribers, None);
        }
        for pattern in &matching {
            if let Some((_, subscribers)) = subscribed.patterns.get(pattern) {
                send(subscribers, Some(pattern));
            }
        }
        receivers
    }

    /// Returns the patterns that match a channel name, and the lock for the delivery. The lock is not held while matching,
    /// because all connections share it, and there may be many patterns and a long name. A subscription made meanwhile takes
    /// effect after the message.
    fn matching(&self, kind: Kind, channel: &[u8]) -> (MutexGuard<'_, Subscribed>, Vec<Bytes>) {
        let mut subscribed = lock(&self.subscribed);
        if kind != Kind::Channel || subscribed.patterns.is_empty() {
            return (subscribed, Vec::new());
        }
        let listed = subscribed.listed();
        drop(subscribed);
        let matching = listed.iter().filter(|(_, matches)| matches.matches(channel));
        let matching = matching.map(|(pattern, _)| pattern.clone()).collect();
        (lock(&self.subscribed), matching)
    }

    /// Returns the number of deliveries that a message would have now.
    pub(crate) fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let by_name = self.subscribers(kind, channel);
        let (subscribed, matching) = self.matching(kind, channel);
        let matching = matching.iter().filter_map(|pattern| subscribed.patterns.get(pattern));
        by_name + matching.map(|(_, subscribers)| subscribers.len()).sum::<usize>()
    }

    /// Starts sending all commands to this subscriber.
    pub(crate) fn monitor(&self, subscriber: u64, mailbox: &Arc<Mailbox>) {
        lock(&self.subscribed).monitors.insert(subscriber, mailbox.clone());
        self.monitors.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends MONITOR for a subscriber.
    pub(crate) fn end_monitor(&self, subscriber: u64) {
        if lock(&self.subscribed).monitors.remove(&subscriber).is_some() {
            self.monitors.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns true if any client runs MONITOR.
    pub(crate) fn are_monitored(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Sends a command to all MONITOR clients.
    pub(crate) fn tell_monitors(&self, line: &Bytes) {
        let subscribed = lock(&self.subscribed);
        for mailbox in subscribed.monitors.values() {
            self.put(mailbox, Letter::Command(line.clone()), &subscribed);
        }
    }

    /// Registers a client that may receive invalidations.
    pub(crate) fn listen(&self, client: u64, mailbox: &Arc<Mailbox>) {
        lock(&self.subscribed).keepers.insert(client, mailbox.clone());
    }

    /// Puts a letter into one mailbox.
    pub(crate) fn send(&self, mailbox: &Mailbox, letter: Letter) {
        self.put(mailbox, letter, &lock(&self.subscribed));
    }

    /// Puts a letter into a mailbox. Returns true if the letter is pending there.
    fn put(&self, mailbox: &Mailbox, letter: Letter, all: &Subscribed) -> bool {
        let bytes = letter.bytes();
        let mut overflows = {
            let waiting = lock(&mailbox.waiting);
            if waiting.overflown {
                return false;
            }
            waiting.bytes + bytes > self.mailbox_bytes_max
        };
        while !overflows && !self.hold(bytes) {
            // The mailbox with the most pending bytes gives way, possibly this one.
            let others = all.channels.values().chain(all.shard_channels.values());
            let others = others.chain(all.patterns.values().map(|(_, subscribers)| subscribers));
            let others = others.chain([&all.monitors, &all.keepers]).flat_map(BTreeMap::values);
            let fullest = others.max_by_key(|mailbox| lock(&mailbox.waiting).bytes);
            match fullest {
                Some(fullest) if lock(&fullest.waiting).bytes > 0 => self.overflow(fullest),
                _ => overflows = true,
            }
            overflows |= lock(&mailbox.waiting).overflown;
        }
        if overflows {
            self.overflow(mailbox);
            return false;
        }
        let mut waiting = lock(&mailbox.waiting);
        waiting.bytes += bytes;
        waiting.letters.push_back(letter);
        drop(waiting);
        mailbox.arrived.notify_one();
        true
    }

    /// Empties a mailbox that exceeds a limit, and notifies its owner.
    fn overflow(&self, mailbox: &Mailbox) {
        let emptied = {
            let mut waiting = lock(&mailbox.waiting);
            std::mem::replace(&mut *waiting, Waiting { overflown: true, ..Waiting::default() })
        };
        self.give_back(emptied.bytes);
        mailbox.overflows.notify_one();
    }

    /// Takes memory for `bytes` more pending bytes. Returns false if there is none.
    fn hold(&self, bytes: usize) -> bool {
        let (held, share) = &mut *lock(&self.held);
        let fits = share.as_mut().is_some_and(|share| share.try_hold(*held + bytes));
        if fits {
            *held += bytes;
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        let (held, share) = &mut *lock(&self.held);
        *held -= bytes;
        let held = *held;
        if let Some(share) = share {
            share.try_hold(held);
        }
    }

    /// Removes the next letter from a mailbox. Called by its owner.
    pub(crate) fn take(&self, mailbox: &Mailbox) -> Option<Letter> {
        let letter = {
            let mut waiting = lock(&mailbox.waiting);
            let letter = waiting.letters.pop_front()?;
            waiting.bytes -= letter.bytes();
            letter
        };
        self.give_back(letter.bytes());
        Some(letter)
    }

    /// Discards pending messages of ended subscriptions.
    pub(crate) fn discard(&self, mailbox: &Mailbox, kind: Kind, ended: &HashSet<Bytes>) {
        let is_of_it = |message: &Message| match (kind, &message.pattern) {
            (Kind::Pattern, Some(pattern)) => ended.contains(pattern),
            (Kind::Pattern, None) | (_, Some(_)) => false,
            (_, None) => message.kind == kind && ended.contains(&message.channel),
        };
        self.retain(mailbox, |letter| !matches!(letter, Letter::Message(message) if is_of_it(message)));
    }

    /// Discards pending messages of all subscriptions and of MONITOR.
    pub(crate) fn discard_all(&self, mailbox: &Mailbox) {
        self.retain(mailbox, |letter| !matches!(letter, Letter::Message(_) | Letter::Command(_)));
    }

    fn retain(&self, mailbox: &Mailbox, stays: impl Fn(&Letter) -> bool) {
        let discarded = {
            let mut waiting = lock(&mailbox.waiting);
            let before = waiting.bytes;
            waiting.letters.retain(stays);
            waiting.bytes = waiting.letters.iter().map(Letter::bytes).sum();
            before - waiting.bytes
        };
        self.give_back(discarded);
    }

    /// Removes a client that has disconnected.
    pub(crate) fn forget(&self, client: u64, mailbox: &Mailbox) {
        lock(&self.subscribed).keepers.remove(&client);
        self.overflow(mailbox);
    }

    /// Returns the subscribed names of channels or shard channels.
    pub(crate) fn names(&self, kind: Kind) -> Vec<Bytes> {
        let subscribed = lock(&self.subscribed);
        let mut names: Vec<Bytes> = match kind {
            Kind::Channel => subscribed.channels.keys().cloned().collect(),
            Kind::Shard => subscribed.shard_channels.keys().cloned().collect(),
            Kind::Pattern => subscribed.patterns.keys().cloned().collect(),
        };
        drop(subscribed);
        names.sort_unstable();
        names
    }

    /// Returns the total bytes and the number of all names of a kind.
    pub(crate) fn names_bytes(&self, kind: Kind) -> (usize, usize) {
        let subscribed = lock(&self.subscribed);
        let sum = |names: &mut dyn Iterator<Item = &Bytes>| {
            names.fold((0, 0), |(bytes, count), name| (bytes + name.len(), count + 1))
        };
        match kind {
            Kind::Channel => sum(&mut subscribed.channels.keys()),
            Kind::Shard => sum(&mut subscribed.shard_channels.keys()),
            Kind::Pattern => sum(&mut subscribed.patterns.keys()),
        }
    }

    /// Returns the number of subscribers to a channel by name.
    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let subscribed = lock(&self.subscribed);
        let channels = if kind == Kind::Shard { &subscribed.shard_channels } else { &subscribed.channels };
        channels.get(name).map_or(0, BTreeMap::len)
    }
}

/// The mailbox exceeded a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflown;

impl Mailbox {
    /// Completes when a letter has arrived since the last completion.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Completes when the mailbox overflows.
    pub(crate) async fn overflows(&self) {
        self.overflows.notified().await;
    }

    /// Returns the size of the next letter in bytes, if one is pending.
    pub(crate) fn next_bytes(&self) -> Result<Option<usize>, Overflown> {
        let waiting = lock(&self.waiting);
        if waiting.overflown { Err(Overflown) } else { Ok(waiting.letters.front().map(Letter::bytes)) }
    }
}

#[cfg(test)]
#[path = "channels/tests.rs"]
mod tests;
