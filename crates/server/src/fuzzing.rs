//! Entry points for fuzzing: functions that accept any bytes. A panic is a failure.

pub use crate::grpc::fuzzed::messages as grpc;
pub use crate::resp::fuzzed::{commands as resp, pattern as glob};
pub use crate::resp::fuzzed_hyperloglog::value as hyperloglog;
