//! Memory budget of users: a part of the memory for clients, so that users cannot make the server exceed `memory`.

use std::sync::OnceLock;

/// Divisor: part of the memory for clients that users may take.
const USERS_PART: usize = 8;

/// The users would exceed their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// They exceed their part of the memory for clients.
    #[error(
        "all users together would take {bytes} bytes, and may take {limit} (an eighth of client-memory); remove users or \
         patterns, or raise client-memory"
    )]
    Limit {
        /// Memory of the users, in bytes.
        bytes: usize,
        /// Limit, in bytes.
        limit: usize,
    },
    /// The memory is in use by clients.
    #[error(
        "all users together would take {bytes} bytes, which clients use now; try again later, or raise client-memory"
    )]
    UsedUp {
        /// Memory of the users, in bytes.
        bytes: usize,
    },
}

/// Sets the bytes that users hold of the memory for clients. Returns false if the memory is used up.
pub(crate) type Hold = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// Memory of all users.
pub(super) struct Room {
    limit: usize,
    /// Set once the memory for clients exists, which is after the store is opened.
    hold: OnceLock<Hold>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("limit", &self.limit).finish()
    }
}

impl Room {
    /// `client_bytes`: memory for all clients.
    pub(super) fn new(client_bytes: usize) -> Room {
        Room { limit: client_bytes / USERS_PART, hold: OnceLock::new() }
    }

    /// Charges the memory of users to `hold` from now on, beginning with `bytes`.
    pub(super) fn hold_by(&self, hold: Hold, bytes: usize) {
        // Cannot fail: a new budget has more than the part of users.
        hold(bytes);
        let _ = self.hold.set(hold);
    }

    /// Sets the memory of users to `bytes` in total.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing changes then. A decrease is never refused.
    pub(super) fn take(&self, bytes: usize, before: usize) -> Result<(), NoRoom> {
        if bytes > before && bytes > self.limit {
            return Err(NoRoom::Limit { bytes, limit: self.limit });
        }
        let has_room = self.hold.get().is_none_or(|hold| hold(bytes));
        if has_room || bytes <= before { Ok(()) } else { Err(NoRoom::UsedUp { bytes }) }
    }
}
