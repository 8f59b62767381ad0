#![doc = include_str!("../README.md")]

pub use esker_engine::*;
