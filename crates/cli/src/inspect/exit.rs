//! Outcome of an inspection.

use crate::terminal::Failure;

/// The outcome of a verb that ran to its end.
pub(crate) enum Outcome {
    Well,
    NotWell,
}

/// Converts an error of an inspection to one line.
pub(crate) fn failure(error: esker_inspect::InspectError) -> Failure {
    match error.is_of_the_call() {
        true => Failure::Usage(error.to_string()),
        false => Failure::Failed(error.to_string()),
    }
}
