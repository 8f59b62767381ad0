//! Why a measurement was not made.

use std::fmt::Display;

/// What keeps a command from its result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call is wrong; nothing was changed.
    Usage(String),
    /// Something failed on the way.
    Failed(String),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// Something failed; `what` says what was being done.
    pub(crate) fn failed(what: &str, error: impl Display) -> Failure {
        Failure::Failed(format!("{what}: {error}"))
    }
}

impl From<esker_engine::Error> for Failure {
    fn from(error: esker_engine::Error) -> Failure {
        match error.kind() {
            esker_engine::ErrorKind::Invalid | esker_engine::ErrorKind::Locked => {
                Failure::Usage(error.to_string())
            }
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<esker_device::DeviceError> for Failure {
    fn from(error: esker_device::DeviceError) -> Failure {
        Failure::Failed(error.to_string())
    }
}
