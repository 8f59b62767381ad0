//! Keyspace notifications: events of keys, published on channels named after the key and after the event.
//!
//! Commands produce their events, which are published once the change is visible. The store reports keys that expire or are
//! evicted, and writes that are not RESP commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use esker_engine::{Cause, Change};

use super::channels::{Channels, Kind, Outbox};
pub(crate) use crate::base::keyspace_events::KeyspaceEvents;

/// An event of a key.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Number of the key's database.
    pub(crate) database: u8,
    pub(crate) class: KeyspaceEvents,
    pub(crate) name: &'static str,
    pub(crate) key: Bytes,
}

/// Publishes events.
pub(crate) struct Events {
    /// Bits of the published events.
    told: AtomicU32,
    channels: Arc<Channels>,
}

impl Events {
    pub(crate) fn new(told: KeyspaceEvents, channels: Arc<Channels>) -> Events {
        Events { told: AtomicU32::new(told.bits()), channels }
    }

    /// Returns the configured events.
    pub(crate) fn setting(&self) -> KeyspaceEvents {
        KeyspaceEvents::of_bits(self.told.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, events: KeyspaceEvents) {
        self.told.store(events.bits(), Ordering::Relaxed);
    }

    /// Returns the events to publish: none if no channel kind is selected.
    pub(crate) fn wanted(&self) -> KeyspaceEvents {
        let set = self.setting();
        let on_any = set.has(KeyspaceEvents::BY_KEY.and(KeyspaceEvents::BY_EVENT));
        if on_any { set } else { KeyspaceEvents::default() }
    }

    /// Returns true if any event is published that only the store can report.
    pub(crate) fn need_the_store(&self) -> bool {
        let of_store = [KeyspaceEvents::EVICTED, KeyspaceEvents::STRING, KeyspaceEvents::GENERIC];
        self.wanted().has(of_store.into_iter().fold(KeyspaceEvents::EXPIRED, KeyspaceEvents::and))
    }

    /// Publishes events in order.
    pub(crate) fn publish(&self, events: impl IntoIterator<Item = Event>) {
        for Event { database, class, name, key } in events {
            self.tell(database, class, name, &key, |channel, payload| {
                self.channels.publish(Kind::Channel, channel, payload);
            });
        }
    }

    /// Adds events to an outbox, to be published later.
    pub(crate) fn put(&self, events: impl IntoIterator<Item = Event>, outbox: &mut Outbox) {
        for Event { database, class, name, key } in events {
            self.tell(database, class, name, &key, |channel, payload| {
                outbox.put(Kind::Channel, Bytes::copy_from_slice(channel), Bytes::copy_from_slice(payload));
            });
        }
    }

    /// Publishes a lookup of a missing key.
    pub(crate) fn missed(&self, database: u8, key: &[u8]) {
        self.tell(database, KeyspaceEvents::MISS, "keymiss", key, |channel, payload| {
            self.channels.publish(Kind::Channel, channel, payload);
        });
    }

    /// Publishes a change reported by the store: an expiry, an eviction, or a write that is not a RESP command. `database`
    /// returns the database of the change's keyspace.
    pub(crate) fn changed(&self, change: &Change<'_>, database: impl FnOnce() -> u8) {
        let (class, name) = match change.cause {
            Cause::Expired => (KeyspaceEvents::EXPIRED, "expired"),
            Cause::Evicted => (KeyspaceEvents::EVICTED, "evicted"),
            // RESP commands produce their own events.
            _ if change.origin != 0 => return,
            Cause::Put => (KeyspaceEvents::STRING, "set"),
            Cause::Deleted => (KeyspaceEvents::GENERIC, "del"),
            _ => return,
        };
        let expires = change.cause == Cause::Put && change.expires_at_ms.is_some();
        let told = if expires { class.and(KeyspaceEvents::GENERIC) } else { class };
        if !self.wanted().has(told) {
            return;
        }
        let database = database();
        let tell = |class, name| {
            self.tell(database, class, name, change.key, |channel, payload| {
                self.channels.publish(Kind::Channel, channel, payload);
            });
        };
        tell(class, name);
        if expires {
            tell(KeyspaceEvents::GENERIC, "expire");
        }
    }

    fn tell(
        &self,
        database: u8,
        class: KeyspaceEvents,
        name: &str,
        key: &[u8],
        mut send: impl FnMut(&[u8], &[u8]),
    ) {
        let set = self.setting();
        if !set.has(class) {
            return;
        }
        if set.has(KeyspaceEvents::BY_KEY) {
            let channel = [format!("{OF_KEY}{database}{BEHIND}").as_bytes(), key].concat();
            send(&channel, name.as_bytes());
        }
        if set.has(KeyspaceEvents::BY_EVENT) {
            send(format!("{OF_EVENT}{database}{BEHIND}{name}").as_bytes(), key);
        }
    }
}

/// Channel name parts around the database number.
const OF_KEY: &str = "__keyspace@";
const OF_EVENT: &str = "__keyevent@";
const BEHIND: &str = "__:";

/// Returns the database whose events go to a channel of this name, if it is an event channel.
pub(crate) fn database_of(channel: &[u8]) -> Option<u8> {
    let begins = |name: &str| channel.strip_prefix(name.as_bytes());
    let rest = begins(OF_KEY).or_else(|| begins(OF_EVENT))?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let (number, rest) = rest.split_at(end);
    let number = std::str::from_utf8(number).ok()?.parse().ok()?;
    rest.starts_with(BEHIND.as_bytes()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_events_tell_the_database() {
        let expected: [(&str, Option<u8>); 9] = [
            ("__keyspace@0__:key", Some(0)),
            ("__keyspace@15__:", Some(15)),
            ("__keyevent@3__:set", Some(3)),
            ("__keyevent@3__", None),
            ("__keyevent@__:set", None),
            ("__keyevent@300__:set", None),
            ("__keyevent@3*__:set", None),
            ("news", None),
            ("", None),
        ];
        for (channel, database) in expected {
            assert_eq!(database_of(channel.as_bytes()), database, "{channel}");
        }
    }
}
