//! The segments that a lane fills: when the next one is made ready, and who waits for it.

use esker_log::{Entry, OpenSegment, Stream, Tier as TierName};

use super::Lane;
use crate::error::Error;
use crate::gate::Gate;
use crate::heads::Head;

impl Lane {
    /// How full the open segment is when the next one is made ready: early enough that nobody waits for it, and not
    /// before, so that a store that holds little takes little room.
    pub(super) fn spare_from_bytes(&self) -> u32 {
        self.shape.segment_bytes / 2
    }

    /// Whether a spare segment is missing.
    pub(crate) fn wants_spare(&self) -> bool {
        let state = self.state.lock();
        let wanted = match self.may_part {
            true => state.heads.any_fuller_than(self.spare_from_bytes()),
            false => state.heads.fuller_than(Head::MAIN, self.spare_from_bytes()),
        };
        state.spare.is_none() && !state.stopping && wanted
    }

    /// Provides the next segment.
    pub(crate) fn put_spare(&self, segment: OpenSegment, piece: usize) {
        let room = {
            let mut state = self.state.lock();
            state.lacks_room = false;
            state.spare = Some((segment, piece));
            std::mem::replace(&mut state.room, Gate::new())
        };
        room.open(Ok(()));
    }

    /// Tells writers who wait for room that there will be none.
    pub(crate) fn refuse_waiting(&self, error: Error) {
        let mut state = self.state.lock();
        state.lacks_room = false;
        let room = std::mem::replace(&mut state.room, Gate::new());
        drop(state);
        room.open(Err(error));
    }

    /// Whether writers wait for room, or soon will. Of large values there may never be any.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let state = self.state.lock();
        let is_wanted = state.lacks_room || self.stream != Stream::LARGE;
        state.heads.is_empty() && state.spare.is_none() && is_wanted
    }

    /// Entries of its open segments.
    pub(crate) fn open_entries(&self, which: impl Fn(&Entry) -> bool) -> Vec<(TierName, u32, Entry)> {
        let mut state = self.state.lock();
        let mut found = Vec::new();
        for head in [Head::MAIN, Head::LASTING] {
            let Some(segment) = state.heads.open(head) else { continue };
            let entries = segment.entries().iter().filter(|entry| which(entry));
            found.extend(entries.map(|entry| (self.shape.tier, segment.name().slot, *entry)));
        }
        found
    }
}
