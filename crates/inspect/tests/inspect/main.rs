//! Stores made by the engine, inspected from outside.

mod busy;
mod damage;
mod lost_superblocks;
mod made;
mod many;
mod moved;
mod passes;
mod rebuilt_superblocks;
mod refused;
mod repairs;
mod several_devices;
mod sound;
