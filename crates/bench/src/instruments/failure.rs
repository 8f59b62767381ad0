//! Failures of a measurement.

use std::fmt::Display;
use std::process::ExitCode;

/// The failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// The call is wrong; nothing was changed.
    Usage(String),
    /// Something failed on the way.
    Failed(String),
}

/// A result, or a failure.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A wrong call, with a description.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::Usage(text.into())
    }

    /// Returns a failure with exit code 1 and the text "`what`: `error`".
    pub fn failed(what: &str, error: impl Display) -> Failure {
        Failure::Failed(format!("{what}: {error}"))
    }

    /// Prints the failure to stderr with the program's name. Returns exit code 2 if the call is wrong,
    /// and 1 for other failures.
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
