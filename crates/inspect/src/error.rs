//! Why a store cannot be looked at.

use esker_device::DeviceError;
use esker_engine::Error as EngineError;

/// Why a store cannot be looked at, or repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The call names something that is no store, or not all of one.
    #[error("{0}")]
    Call(String),
    /// The store is there, and too damaged for what was asked.
    #[error("{0}")]
    Damaged(String),
    /// A device cannot be read.
    #[error(
        "{path} cannot be read at {offset}: {source}; check the device and its cables, or read a copy of it"
    )]
    Read {
        /// The file or device.
        path: String,
        /// Where.
        offset: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// What a call returns.
pub type Result<T> = std::result::Result<T, InspectError>;

impl InspectError {
    pub(crate) fn call(what: impl Into<String>) -> InspectError {
        InspectError::Call(what.into())
    }

    /// Whether the call or its surroundings are wrong, and not the store.
    pub fn is_of_the_call(&self) -> bool {
        match self {
            InspectError::Call(_) | InspectError::Device(_) => true,
            InspectError::Engine(error) => {
                matches!(error, EngineError::Invalid { .. } | EngineError::Locked { .. })
            }
            InspectError::Damaged(_) | InspectError::Read { .. } => false,
        }
    }
}
