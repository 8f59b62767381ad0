//! Why a measurement was not made.

use std::fmt::Display;
use std::process::ExitCode;

/// What keeps a command from its result.
#[derive(Debug)]
pub enum Failure {
    /// The call is wrong; nothing was changed.
    Usage(String),
    /// Something failed on the way.
    Failed(String),
}

/// A result, or why there is none.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// The call is wrong; the text says what about it.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// Something failed; `what` says what was being done.
    pub fn failed(what: &str, error: impl Display) -> Failure {
        Failure::Failed(format!("{what}: {error}"))
    }

    /// Prints it to stderr as said by `program`: exit code 2 if the call is wrong, 1 if something failed.
    pub fn report(self, program: &str) -> ExitCode {
        let (code, text) = match self {
            Failure::Usage(text) => (2, text),
            Failure::Failed(text) => (1, text),
        };
        eprintln!("{program}: {text}");
        ExitCode::from(code)
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
