//! Which commands took long.
//!
//! Commands of a pipeline that went to the store together took that long together; the first of them is the one that is
//! written down.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::frame::Command;
use super::session::Session;
use crate::service::wall_clock_ms;

/// What took long, with its arguments as far as they are kept.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// Unix time.
    pub(crate) at_s: u64,
    pub(crate) took_us: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) peer: SocketAddr,
    pub(crate) name: Vec<u8>,
}

struct Entries {
    newest_last: VecDeque<Entry>,
    /// As it was asked for.
    length: usize,
    next_id: u64,
}

/// The last slow commands.
pub(crate) struct Slowlog {
    /// Commands that take so many microseconds are kept; none if it is negative.
    pub(crate) slower_than_us: AtomicI64,
    entries: Mutex<Entries>,
}

/// Redis' bounds: arguments of an entry, and bytes of one.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// However long the log is asked to be.
const LENGTH_MAX: usize = 10_000;

impl Default for Slowlog {
    fn default() -> Slowlog {
        let entries = Entries { newest_last: VecDeque::new(), length: 128, next_id: 0 };
        Slowlog { slower_than_us: AtomicI64::new(10_000), entries: Mutex::new(entries) }
    }
}

impl Slowlog {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_slow(&self, took_us: u64) -> bool {
        let threshold = self.slower_than_us.load(Ordering::Relaxed);
        u64::try_from(threshold).is_ok_and(|threshold| took_us >= threshold)
    }

    /// Writes a command down. Of one that may have secrets only the verb is kept.
    pub(crate) fn note(&self, command: Command<'_>, took_us: u64, secret: bool, session: &Session) {
        let mut arguments = Vec::new();
        for (index, argument) in command.arguments(0).enumerate() {
            if index + 1 == ARGUMENTS_MAX && command.len() > ARGUMENTS_MAX {
                let more = command.len() - index;
                arguments.push(format!("... ({more} more arguments)").into_bytes());
                break;
            }
            arguments.push(match argument.len().checked_sub(ARGUMENT_BYTES_MAX) {
                _ if secret && index > 0 => b"(redacted)".to_vec(),
                None | Some(0) => argument.to_vec(),
                Some(more) => {
                    let mut cut = argument[..ARGUMENT_BYTES_MAX].to_vec();
                    cut.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                    cut
                }
            });
        }
        let (peer, name) = (session.peer, session.client.name());
        let mut entries = self.lock();
        let id = entries.next_id;
        entries.next_id += 1;
        let at_s = wall_clock_ms() / 1000;
        entries.newest_last.push_back(Entry { id, at_s, took_us, arguments, peer, name });
        entries.shorten();
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        self.lock().newest_last.iter().rev().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().newest_last.len()
    }

    pub(crate) fn clear(&self) {
        self.lock().newest_last.clear();
    }

    pub(crate) fn length(&self) -> usize {
        self.lock().length
    }

    pub(crate) fn set_length(&self, length: usize) {
        let mut entries = self.lock();
        entries.length = length;
        entries.shorten();
    }
}

impl Entries {
    fn shorten(&mut self) {
        let excess = self.newest_last.len().saturating_sub(self.length.min(LENGTH_MAX));
        self.newest_last.drain(..excess);
    }
}
