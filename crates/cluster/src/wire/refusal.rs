//! Refusals of connections, their reasons and their log lines.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::input::{get_text, put_text};

/// The reason why a node does not accept another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RefusalReason {
    /// No version of the protocol is common to both.
    Version = 1,
    /// The secrets differ, or only one has one.
    Secret = 2,
    /// It is a member of another cluster.
    OtherCluster = 3,
    /// It is no member of the cluster: it was removed, or is not known yet.
    UnknownNode = 4,
    /// Its store is not the one with which it joined: the disk was wiped or replaced.
    OtherStore = 5,
    /// It does not continue its sighting: the disk was rolled back.
    OldStarts = 6,
    /// Another process with a copy of its store is connected.
    Copy = 7,
    /// The connection leads back to the node itself.
    Oneself = 8,
    /// The node that was asked is not a member of a cluster yet.
    NotMember = 9,
    /// Another node was expected at the address.
    OtherNode = 10,
    /// Too many connections have not authenticated yet.
    TooMany = 11,
    /// The bytes are not of this protocol, or exceed a limit.
    Malformed = 12,
    /// The TLS handshake failed: no certificate of the cluster's authorities, or no TLS at all.
    Tls = 13,
}

impl RefusalReason {
    const ALL: [RefusalReason; 13] = [
        RefusalReason::Version,
        RefusalReason::Secret,
        RefusalReason::OtherCluster,
        RefusalReason::UnknownNode,
        RefusalReason::OtherStore,
        RefusalReason::OldStarts,
        RefusalReason::Copy,
        RefusalReason::Oneself,
        RefusalReason::NotMember,
        RefusalReason::OtherNode,
        RefusalReason::TooMany,
        RefusalReason::Malformed,
        RefusalReason::Tls,
    ];
}

/// A refusal with its text for both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: RefusalReason,
    pub(super) text: String,
}

/// Maximum length of the text of a refusal, in bytes.
const TEXT_BYTES_MAX: usize = 500;

impl Refusal {
    pub(super) fn new(reason: RefusalReason, text: impl Into<String>) -> Refusal {
        Refusal { reason, text: text.into() }
    }

    pub(super) fn put(&self, to: &mut Vec<u8>) {
        to.put_u8(self.reason as u8);
        let end = (0..=TEXT_BYTES_MAX.min(self.text.len())).rev().find(|at| self.text.is_char_boundary(*at));
        put_text(to, &self.text[..end.unwrap_or(0)]);
    }

    pub(super) fn decode(mut from: Bytes) -> Option<Refusal> {
        let number = from.try_get_u8().ok()?;
        let reason = RefusalReason::ALL.into_iter().find(|reason| *reason as u8 == number)?;
        let text = get_text(&mut from)?;
        // A text of another node ends up in logs and answers.
        let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        from.is_empty().then_some(Refusal { reason, text })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Minimum time between two log lines about refusals of one kind.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Counts refusals, and limits the rate of their log lines.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<(bool, RefusalReason), Kept>>);

#[derive(Debug, Default)]
struct Kept {
    count: u64,
    written: Option<Instant>,
    left_out: u64,
}

impl Refusals {
    /// Notes a refusal, by this node or by the peer.
    pub(super) fn note(&self, by_us: bool, peer: &str, refusal: &Refusal) {
        let Some(left_out) = self.turn(by_us, refusal.reason) else { return };
        let (reason, text) = (refusal.reason, &refusal.text);
        match by_us {
            true => tracing::warn!(peer, ?reason, left_out, "connection of another node refused: {text}"),
            false => tracing::warn!(peer, ?reason, left_out, "another node refused this one: {text}"),
        }
    }

    /// Counts a refusal. Returns the number of lines left out since the last one if a line may be written now.
    fn turn(&self, by_us: bool, reason: RefusalReason) -> Option<u64> {
        let mut all = self.0.lock();
        let kept = all.entry((by_us, reason)).or_default();
        kept.count += 1;
        if kept.written.is_some_and(|written| written.elapsed() < LINE_INTERVAL) {
            kept.left_out += 1;
            return None;
        }
        kept.written = Some(Instant::now());
        Some(std::mem::take(&mut kept.left_out))
    }

    /// Returns the number of refusals for a reason, by this node (`true`) or by others.
    pub(super) fn count(&self, by_us: bool, reason: RefusalReason) -> u64 {
        self.0.lock().get(&(by_us, reason)).map_or(0, |kept| kept.count)
    }
}
