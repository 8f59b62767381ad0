//! Errors of looking into a store.

use esker_device::DeviceError;
use esker_engine::Error as EngineError;
use esker_log::Damage;

/// An error of looking into a store or repairing it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The paths or arguments of the call are wrong: they name no store, or only part of one.
    #[error("{0}")]
    Call(String),
    /// The store exists, but is too damaged for the request.
    #[error("{0}")]
    Damaged(String),
    /// A device cannot be read.
    #[error(
        "{path} cannot be read at {offset}: {source}; check the device and its cables, or read a copy of it"
    )]
    Read {
        /// The file or device.
        path: String,
        /// Byte offset.
        offset: u64,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The engine returned an error.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, InspectError>;

impl InspectError {
    /// Returns the error for a record whose value this build cannot decompress. Returns `None` if `damage` is damage.
    pub(crate) fn of_codec(damage: Damage, segment: u64, offset: u32) -> Option<InspectError> {
        let Damage::MissingCodec(codec) = damage else { return None };
        let feature = codec.name();
        let what = format!("the value at offset {offset} of segment {segment} is compressed with {feature}");
        Some(InspectError::Engine(EngineError::MissingFeature { feature, what }))
    }

    pub(crate) fn call(what: impl Into<String>) -> InspectError {
        InspectError::Call(what.into())
    }

    /// Returns true if the call or its environment is wrong, and not the store.
    pub fn is_of_the_call(&self) -> bool {
        match self {
            InspectError::Call(_) | InspectError::Device(_) => true,
            InspectError::Engine(error) => {
                use EngineError::{Invalid, Locked, MissingFeature};
                matches!(error, Invalid { .. } | Locked { .. } | MissingFeature { .. })
            }
            InspectError::Damaged(_) | InspectError::Read { .. } => false,
        }
    }
}
