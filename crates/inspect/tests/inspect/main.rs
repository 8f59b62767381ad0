//! Stores that the engine made, looked at from outside.

mod damage;
mod made;
mod refused;
mod sound;
mod repairs;
