//! Stores that the engine made, looked at from outside.

mod busy;
mod damage;
mod made;
mod many;
mod moved;
mod refused;
mod repairs;
mod sound;
