//! What is fuzzed of the protocols: functions that take any bytes. A panic is what fuzzing looks for.

pub use crate::grpc::fuzzed::messages as grpc;
pub use crate::resp::fuzzed::{commands as resp, pattern as glob};
pub use crate::resp::fuzzed_hyperloglog::value as hyperloglog;
