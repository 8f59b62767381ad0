//! Charts: write amplification as a function of one property of a workload or a drive.

mod kind;
mod svg;
mod sweep;

pub use kind::ChartKind;
pub use svg::draw;
pub use sweep::{Line, Sweep, sweep};
