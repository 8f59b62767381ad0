//! Relocation, victim selection and pacing for Esker's log.
//!
//! Destaging and collecting are the same operation: read a victim segment, append the records still needed to another
//! segment, make the copies durable, swing the index, free the victim. They differ in the choice of victims (`score`)
//! and in the destination of the copies (`place`). A full cache store drops the records that `evict` finds cold.

mod evict;
mod low_water;
mod pace;
mod place;
mod plan;
mod relocate;
mod score;

pub use evict::{COLD_SHARE, COPY_SHARE, CopyBudget, Ghosts, LOOKS, Look, Reference, ends_probation};
pub use low_water::{CALM, LowWater};
pub use pace::{Pacer, Rate, Throttle};
pub use place::Placement;
pub use plan::{Span, Spans, copied_bytes, plan_reads};
pub use relocate::{
    Failed, Inputs, Move, Moves, Need, NoMemory, Opening, Output, Outputs, Relocated, Source, Target, Victim,
    copy_needed, frame_memory,
};
pub use score::{Candidate, cost_benefit, oldest};
