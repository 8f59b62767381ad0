//! The state of CLIENT TRACKING of a client.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::service::clients::{Client, KeptKeys};
use crate::service::tracking::{HELD_BYTES_MAX, How, Tracker, Tracking};

/// Bytes of a prefix beside its name: its entry here, its entry among all prefixes, and its share of their listener
/// lists.
const PREFIX_BYTES: usize = 512;

/// The options of CLIENT TRACKING. BROADCASTS and OPT_IN or OPT_OUT exclude each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::resp) struct Options {
    pub(in crate::resp) broadcasts: bool,
    pub(in crate::resp) opt_in: bool,
    pub(in crate::resp) opt_out: bool,
    pub(in crate::resp) no_loop: bool,
}

/// CLIENT TRACKING is on until this value is dropped.
pub(crate) struct KeepsKeys {
    tracking: Arc<Tracking>,
    client: Arc<Client>,
    tracker: Arc<Tracker>,
    pub(in crate::resp) options: Options,
    /// True if CLIENT CACHING applies to the next command.
    pub(in crate::resp) caching: bool,
    /// True if invalidations are held back until the running command is answered.
    holds: bool,
    redirect: Option<u64>,
    prefixes: BTreeSet<Bytes>,
    prefix_bytes: usize,
}

impl KeepsKeys {
    pub(in crate::resp) fn new(
        tracking: &Arc<Tracking>,
        client: &Arc<Client>,
        options: Options,
        redirect: Option<Arc<Client>>,
    ) -> KeepsKeys {
        let id = redirect.as_ref().map(|client| client.id);
        let tracker = tracking.begin(client, how(options, redirect));
        let (tracking, client) = (tracking.clone(), client.clone());
        let (caching, prefixes) = (false, BTreeSet::new());
        let keeps = KeepsKeys {
            tracking,
            client,
            tracker,
            options,
            caching,
            holds: false,
            redirect: id,
            prefixes,
            prefix_bytes: 0,
        };
        keeps.note();
        keeps
    }

    /// Changes the options and the redirection.
    pub(in crate::resp) fn change(&mut self, options: Options, redirect: Option<Arc<Client>>) {
        self.options = options;
        self.redirect = redirect.as_ref().map(|client| client.id);
        self.tracking.change(&self.tracker, how(options, redirect));
        self.note();
    }

    /// Returns a prefix of the client that begins with `prefix`, or that `prefix` begins with.
    pub(in crate::resp) fn overlap(&self, prefix: &[u8]) -> Option<&Bytes> {
        let all = self.prefixes.get(&b""[..]);
        let before = self.prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Included(prefix))).next_back();
        let behind = self.prefixes.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded)).next();
        all.or(before.filter(|name| prefix.starts_with(name)))
            .or(behind.filter(|name| name.starts_with(prefix)))
    }

    pub(in crate::resp) fn add_prefix(&mut self, prefix: &[u8]) {
        let prefix = Bytes::copy_from_slice(prefix);
        self.tracking.add_prefix(&self.tracker, &prefix);
        let bytes = PREFIX_BYTES + 2 * prefix.len();
        self.prefix_bytes += if self.prefixes.insert(prefix) { bytes } else { 0 };
    }

    pub(in crate::resp) fn prefixes(&self) -> &BTreeSet<Bytes> {
        &self.prefixes
    }

    /// Returns the id of the client that receives the invalidations in place of this one; 0 if there is none.
    pub(in crate::resp) fn redirect(&self) -> u64 {
        self.redirect.unwrap_or(0)
    }

    pub(in crate::resp) fn is_broken(&self) -> bool {
        self.tracker.is_broken()
    }

    pub(in crate::resp) fn held_bytes(&self) -> usize {
        let held = if self.redirect.is_some() { HELD_BYTES_MAX } else { 0 };
        self.prefix_bytes + held
    }

    /// Returns true if keys that are read now must be remembered.
    pub(in crate::resp) fn remembers(&self) -> bool {
        let Options { broadcasts, opt_in, opt_out, .. } = self.options;
        !(broadcasts || opt_in && !self.caching || opt_out && self.caching)
    }

    /// Remembers keys that the client is about to read.
    pub(in crate::resp) fn remember<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.tracking.remember(&self.tracker, keys);
    }

    /// Notes that a command begins to run. If invalidations are redirected, they are held back from now on.
    pub(in crate::resp) fn begin_command(&mut self) {
        if self.redirect.is_some() {
            self.tracking.begin_command(&self.tracker);
            self.holds = true;
        }
    }

    /// Notes that the command is answered: invalidations held back since its beginning are released, even if the
    /// redirection has ended.
    pub(in crate::resp) fn end_command(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.tracking.end_command(&self.tracker);
        }
    }

    fn note(&self) {
        let (broadcasts, redirect) = (self.options.broadcasts, self.redirect());
        self.client.note_kept(Some(KeptKeys { broadcasts, redirect, is_broken: false }));
    }
}

fn how(options: Options, redirect: Option<Arc<Client>>) -> How {
    let Options { broadcasts, no_loop, .. } = options;
    How { broadcasts, no_loop, redirect }
}

impl Drop for KeepsKeys {
    fn drop(&mut self) {
        self.tracking.end(&self.tracker, self.prefixes.iter());
        self.client.note_kept(None);
    }
}
