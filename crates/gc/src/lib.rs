//! Relocation, victim choice and pacing for Esker's log.
//!
//! Destaging and collecting are the same act: read a victim segment, keep the records that are still needed, append them
//! elsewhere, make that durable, swing the index, free the victim. They differ in how the victim is chosen
//! (`score`) and where the copies go (`place`). A full store that evicts drops what `evict` finds cold.

mod evict;
mod pace;
mod place;
mod plan;
mod relocate;
mod score;

pub use evict::{COLD_SHARE, COPY_SHARE, CopyBudget, Ghosts, LOOKS, Look, Reference, ends_probation};
pub use pace::{Pacer, Throttle};
pub use place::Placement;
pub use plan::{Span, Spans, copied_bytes, plan_reads};
pub use relocate::{Failed, Host, Move, Moves, Need, Outputs, Relocated, Victim, copy_needed};
pub use score::{Candidate, cost_benefit, oldest};
