//! Time: what programs, reads and erases take on a medium, and what of that the host notices.

mod choice;
mod latencies;
mod nand;
mod profiles;
mod timing;

pub use choice::Choice;
pub use latencies::{Latencies, Recorder};
pub use nand::Medium;
pub use profiles::{PROFILES, Profile};
pub use timing::Timing;
