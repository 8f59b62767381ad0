//! Charts: write amplification as a function of one property of a workload or a drive.

mod draw;
mod kind;
mod sweep;

pub use draw::draw;
pub use kind::ChartKind;
pub use sweep::{Line, Sweep, sweep};
