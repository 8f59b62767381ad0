//! Publish and subscribe: who listens to which channels, and the messages that wait for each of them.
//!
//! A message is put into the mailbox of every subscriber at once, and no publisher waits for any of them. What waits in all
//! mailboxes is one part of the memory for clients. A subscriber whose mailbox holds more than an answer queue may is
//! dropped, and where all of them together hold too much, whoever has most waiting.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::budget::Share;

mod outbox;

pub(crate) use outbox::Outbox;

/// What a subscriber names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel,
    /// A pattern of names of channels.
    Pattern,
    /// A channel of its own namespace; Redis Cluster keeps these on one shard.
    Shard,
}

impl Kind {
    /// All of them, in the order of their discriminants.
    pub(crate) const ALL: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];
}

/// Says which names of channels are meant.
pub(crate) trait Matches: Send + Sync {
    fn matches(&self, channel: &[u8]) -> bool;
}

/// A message as one subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    /// The pattern that the channel's name matches, if it came by one.
    pub(crate) pattern: Option<Bytes>,
    pub(crate) channel: Bytes,
    pub(crate) payload: Bytes,
}

/// A key that a client keeps, and that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) key: Bytes,
    /// The number of the database that it changed in, where the client may not know yet that there is such a key.
    pub(crate) database: Option<u8>,
}

/// What waits in a mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Letter {
    Message(Message),
    /// A command that ran, for who watches all of them.
    Command(Bytes),
    /// Keys that changed, of those that the client keeps; nothing: all of them.
    Invalid(Option<Arc<[Stale]>>),
    /// Who was to be told of such keys has gone.
    BrokenRedirection(u64),
}

/// What a letter takes beside what it says: its place in a queue, which doubles when it grows, and two allocations.
const LETTER_BYTES: usize = 2 * size_of::<Letter>() + 128;

/// And what each key takes that it names.
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

/// Where the messages for one subscriber wait.
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
    overflows: Notify,
}

#[derive(Default)]
struct Waiting {
    letters: VecDeque<Letter>,
    bytes: usize,
    /// There were too many; it takes no more.
    overflown: bool,
}

/// Somebody who subscribed, and what it is woken by.
type Subscribers = BTreeMap<u64, Arc<Mailbox>>;

/// Different patterns of all clients. Each is matched with each message, which takes the publisher about a microsecond.
const PATTERNS_MAX: usize = 2000;

/// Patterns that a publisher matches while others go on.
type Listed = Arc<[(Bytes, Arc<dyn Matches>)]>;

#[derive(Default)]
struct Subscribed {
    channels: HashMap<Bytes, Subscribers>,
    shard_channels: HashMap<Bytes, Subscribers>,
    patterns: HashMap<Bytes, (Arc<dyn Matches>, Subscribers)>,
    /// The patterns as a publisher takes them with it; none if they changed since the last one did.
    listed: Option<Listed>,
    /// Who watches all commands.
    monitors: Subscribers,
    /// Who is told of keys that changed.
    keepers: Subscribers,
}

impl Subscribed {
    fn listed(&mut self) -> Listed {
        let Subscribed { patterns, listed, .. } = self;
        let list = || patterns.iter().map(|(name, (matches, _))| (name.clone(), matches.clone())).collect();
        listed.get_or_insert_with(list).clone()
    }
}

/// All channels that somebody listens to.
pub(crate) struct Channels {
    subscribed: Mutex<Subscribed>,
    /// Subscriptions, so that a message for nobody costs nothing.
    count: AtomicUsize,
    /// Who watches all commands, so that those cost nothing where nobody does.
    monitors: AtomicUsize,
    /// What may wait in a mailbox.
    mailbox_bytes_max: usize,
    /// Memory of what waits in all of them; none if there was no room for it at the start.
    held: Mutex<(usize, Option<Share>)>,
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
        }
    }

    /// A mailbox for a new subscriber.
    pub(crate) fn mailbox() -> Arc<Mailbox> {
        let (arrived, overflows) = (Notify::new(), Notify::new());
        Arc::new(Mailbox { waiting: Mutex::default(), arrived, overflows })
    }

    /// Subscribes to a channel. The name was not subscribed to by this subscriber.
    pub(crate) fn subscribe(&self, kind: Kind, name: &Bytes, subscriber: u64, mailbox: &Arc<Mailbox>) {
        let mut subscribed = lock(&self.subscribed);
        let channels = match kind {
            Kind::Shard => &mut subscribed.shard_channels,
            Kind::Channel | Kind::Pattern => &mut subscribed.channels,
        };
        channels.entry(name.clone()).or_default().insert(subscriber, mailbox.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Subscribes to all channels whose names match one of some patterns. Returns false, and subscribes to none of them, if there
    /// would be more than [`PATTERNS_MAX`] different patterns.
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

    /// Ends a subscription that there is.
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

    /// Puts a message into the mailboxes of all who listen to its channel; how many those are, and a subscriber once for each
    /// of its patterns.
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

    /// The patterns that a channel's name matches, and the lock, for what follows. It is not held while they are matched: all
    /// share it, and there may be many patterns and a long name. Whoever subscribes meanwhile does so after the message.
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

    /// How many would get a message, were it published now.
    pub(crate) fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let by_name = self.subscribers(kind, channel);
        let (subscribed, matching) = self.matching(kind, channel);
        let matching = matching.iter().filter_map(|pattern| subscribed.patterns.get(pattern));
        by_name + matching.map(|(_, subscribers)| subscribers.len()).sum::<usize>()
    }

    /// Publishes what was kept back.
    pub(crate) fn publish_all(&self, outbox: Outbox) {
        for (kind, channel, payload) in outbox.messages {
            self.publish(kind, &channel, &payload);
        }
    }

    /// From now on all commands are told to this subscriber.
    pub(crate) fn monitor(&self, subscriber: u64, mailbox: &Arc<Mailbox>) {
        lock(&self.subscribed).monitors.insert(subscriber, mailbox.clone());
        self.monitors.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what was begun.
    pub(crate) fn end_monitor(&self, subscriber: u64) {
        if lock(&self.subscribed).monitors.remove(&subscriber).is_some() {
            self.monitors.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether anybody watches all commands.
    pub(crate) fn are_monitored(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Tells a command to who watches all of them.
    pub(crate) fn tell_monitors(&self, line: &Bytes) {
        let subscribed = lock(&self.subscribed);
        for mailbox in subscribed.monitors.values() {
            self.put(mailbox, Letter::Command(line.clone()), &subscribed);
        }
    }

    /// From now on this client may be told of keys that changed.
    pub(crate) fn listen(&self, client: u64, mailbox: &Arc<Mailbox>) {
        lock(&self.subscribed).keepers.insert(client, mailbox.clone());
    }

    /// Puts a letter into one mailbox.
    pub(crate) fn send(&self, mailbox: &Mailbox, letter: Letter) {
        self.put(mailbox, letter, &lock(&self.subscribed));
    }

    /// Whether the letter waits in the mailbox now.
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
            // Whoever has most waiting makes room, and that may be this one.
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

    /// Too much waits in a mailbox: it is emptied, and whoever it belongs to is told.
    fn overflow(&self, mailbox: &Mailbox) {
        let emptied = {
            let mut waiting = lock(&mailbox.waiting);
            std::mem::replace(&mut *waiting, Waiting { overflown: true, ..Waiting::default() })
        };
        self.give_back(emptied.bytes);
        mailbox.overflows.notify_one();
    }

    /// Takes memory for so much more that waits; false if there is none.
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

    /// Takes the next letter out of a mailbox, by whom it belongs to.
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

    /// What waits for subscriptions that have ended is not delivered any more.
    pub(crate) fn discard(&self, mailbox: &Mailbox, kind: Kind, ended: &HashSet<Bytes>) {
        let is_of_it = |message: &Message| match (kind, &message.pattern) {
            (Kind::Pattern, Some(pattern)) => ended.contains(pattern),
            (Kind::Pattern, None) | (_, Some(_)) => false,
            (_, None) => message.kind == kind && ended.contains(&message.channel),
        };
        self.retain(mailbox, |letter| !matches!(letter, Letter::Message(message) if is_of_it(message)));
    }

    /// The same of all subscriptions.
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

    /// A client is gone.
    pub(crate) fn forget(&self, client: u64, mailbox: &Mailbox) {
        lock(&self.subscribed).keepers.remove(&client);
        self.overflow(mailbox);
    }

    /// Names that somebody subscribed to, of channels or shard channels.
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

    /// Bytes of all names of a kind, and how many there are.
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

    /// How many subscribed to a channel by its name.
    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let subscribed = lock(&self.subscribed);
        let channels = if kind == Kind::Shard { &subscribed.shard_channels } else { &subscribed.channels };
        channels.get(name).map_or(0, BTreeMap::len)
    }
}

/// Too much had waited for a subscriber.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overflown;

impl Mailbox {
    /// Completes when something has arrived since it last did.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Completes when too much has arrived.
    pub(crate) async fn overflows(&self) {
        self.overflows.notified().await;
    }

    /// Bytes of the next letter, if one waits.
    pub(crate) fn next_bytes(&self) -> Result<Option<usize>, Overflown> {
        let waiting = lock(&self.waiting);
        if waiting.overflown { Err(Overflown) } else { Ok(waiting.letters.front().map(Letter::bytes)) }
    }
}

#[cfg(test)]
#[path = "channels/tests.rs"]
mod tests;
