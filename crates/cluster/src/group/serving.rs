//! Readiness and lease of a replica, in atomics that every command reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

use crate::raft::error::NotReady;
use crate::raft::member::{Brief, Role};

/// The part of the followers' lease that the leader uses: clocks may differ in speed, and followers begin later.
const USED: (u32, u32) = (4, 5);
/// Leases after the end of the last one for which a leader counts as followed by a majority.
const FOLLOWED: u32 = 2;
/// No term, and no node.
const NONE: u64 = u64::MAX;

/// Serving state: the term in which this replica serves its group, and the time until which no other one can.
pub(super) struct Serving {
    /// Lease of followers.
    lease: Duration,
    ready_term: AtomicU64,
    leader: AtomicU64,
    /// End of the lease in nanoseconds of the runtime's clock.
    lease_end: AtomicU64,
    is_alone: AtomicBool,
    /// Term in which the leadership was given up.
    given_up: AtomicU64,
}

impl Serving {
    pub(super) fn new(lease: Duration) -> Serving {
        Serving {
            lease,
            ready_term: AtomicU64::new(NONE),
            leader: AtomicU64::new(NONE),
            lease_end: AtomicU64::new(0),
            is_alone: AtomicBool::new(false),
            given_up: AtomicU64::new(NONE),
        }
    }

    /// Returns true if the replica is ready in a term, and was ready in another one.
    pub(super) fn changes_term(&self, brief: &Brief) -> bool {
        let before = self.ready_term.load(Ordering::Acquire);
        brief.is_ready && before != NONE && before != brief.term
    }

    /// Takes over the state of the replica. Returns true if the term in which it is ready has changed.
    pub(super) fn update(&self, brief: &Brief) -> bool {
        let ready = if brief.is_ready { brief.term } else { NONE };
        let end = brief.acked.filter(|_| brief.is_ready).map_or(0, |acked| {
            let (part, of) = USED;
            (acked + self.lease * part / of).as_nanos() as u64
        });
        self.lease_end.store(end, Ordering::Release);
        self.is_alone.store(brief.is_ready && brief.is_alone, Ordering::Release);
        self.leader.store(brief.leader.unwrap_or(NONE), Ordering::Release);
        self.ready_term.swap(ready, Ordering::AcqRel) != ready
    }

    /// Notes that the replica neither leads nor follows.
    pub(super) fn is_gone(&self) -> bool {
        let none = Brief {
            role: Role::Stopped,
            term: 0,
            leader: None,
            is_ready: false,
            is_alone: false,
            acked: None,
        };
        self.update(&none)
    }

    pub(super) fn leader(&self) -> Option<u64> {
        Some(self.leader.load(Ordering::Acquire)).filter(|leader| *leader != NONE)
    }

    pub(super) fn ready_term(&self) -> Result<u64, NotReady> {
        match self.ready_term.load(Ordering::Acquire) {
            NONE => Err(NotReady { leader: self.leader() }),
            term => Ok(term),
        }
    }

    /// Returns true if the lease is valid now; `None` if that depends on whether the only voter leads still.
    pub(super) fn has_lease(&self, now: Duration) -> Option<bool> {
        let Ok(term) = self.ready_term() else { return Some(false) };
        if self.has_given_up(term) && !planted(Bug::LeaseDuringTransfer) {
            return Some(false);
        }
        if (now.as_nanos() as u64) < self.lease_end.load(Ordering::Acquire) {
            return Some(true);
        }
        if self.is_alone.load(Ordering::Acquire) { None } else { Some(false) }
    }

    /// Returns true if the replica is ready, and a majority has answered within the last elections.
    pub(super) fn is_followed(&self, now: Duration) -> bool {
        let last = self.lease_end.load(Ordering::Acquire) + (self.lease * FOLLOWED).as_nanos() as u64;
        let is_heard = self.is_alone.load(Ordering::Acquire) || (now.as_nanos() as u64) < last;
        self.ready_term().is_ok() && (is_heard || planted(Bug::LostMajorityLeads))
    }

    /// Ends the lease for the rest of a term.
    pub(super) fn give_up(&self, term: u64) {
        self.given_up.store(term, Ordering::SeqCst);
    }

    pub(super) fn has_given_up(&self, term: u64) -> bool {
        self.given_up.load(Ordering::SeqCst) == term
    }
}
