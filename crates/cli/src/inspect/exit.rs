//! How an inspection ends.

use crate::terminal::Failure;

/// How a verb ended that did its work.
pub(crate) enum Outcome {
    Well,
    NotWell,
}

/// What kept an inspection from its work, in one line.
pub(crate) fn failure(error: esker_inspect::InspectError) -> Failure {
    match error.is_of_the_call() {
        true => Failure::Usage(error.to_string()),
        false => Failure::Failed(error.to_string()),
    }
}
