//! Timing of programs, reads and erases on a medium, and the latency that the host sees.

mod choice;
mod clients;
mod latencies;
mod nand;
mod profiles;
mod timing;

pub use choice::Choice;
pub(crate) use clients::Clients;
pub use clients::Timed;
pub use latencies::{Latencies, Recorder};
pub use nand::Medium;
pub use profiles::{PROFILES, Profile};
pub use timing::Timing;
