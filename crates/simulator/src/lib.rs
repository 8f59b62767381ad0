//! Simulated histories of a store: clients, device faults, power failures, kills and interrupted openings from one
//! seed, checked against a model of the store's contents.
//!
//! * A [`Plan`] describes a history before it runs. [`Plan::draw`] derives one from a seed.
//! * [`run`] executes a plan and returns the states that it [reached](Reached), or the failure.
//! * [`shrink`] reduces a failing plan to a minimal one.
//! * [`Config`] and [`World`] are small stores on devices of a simulated world, also for other tests.
//!
//! `cargo run --release -p esker-simulator -- --help` is the program. Design: `docs/decisions/0020-the-simulator.md`.

mod client;
mod config;
mod coverage;
mod generate;
mod model;
mod plan;
mod run;
mod scan;
mod shrink;
mod store;
mod swapping;
mod value;

pub use config::{Config, Tiers};
pub use coverage::{RARE, Reached};
pub use generate::Shape;
pub use plan::{
    DeviceFault, End, FaultKind, Interruption, Level, Life, Media, Op, OpKind, Opening, Plan, ScanKind,
    SlotKeys,
};
pub use run::{Failure, run};
pub use shrink::shrink;
pub use store::World;
pub use value::{VALUE_BYTES_MIN, any_value, stamp_of, value};
