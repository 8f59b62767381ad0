//! Simulated histories of a store: clients, faults of devices, power cuts, kills and interrupted openings from one seed, held
//! against a model of what a store must keep.
//!
//! * A [`Plan`] is a history before it happened. [`Plan::draw`] makes one from a seed.
//! * [`run`] runs one and says what it [reached](Reached), or what went wrong.
//! * [`shrink`] leaves out of a plan that fails whatever it fails without.
//! * [`Config`] and [`World`] are small stores on devices of a simulated world, for tests of other kinds, too.
//!
//! `cargo run --release -p esker-simulator -- --help` is the program. How it was decided: `docs/decisions/0020-the-simulator.md`.

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
