//! Errors of the engine on a modelled drive.

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The drive or the workload cannot be modelled.
    #[error(transparent)]
    Model(#[from] esker_ssd_model::Error),
    /// The engine refused an operation, or failed.
    #[error("the engine on the modelled drive: {0}")]
    Engine(#[from] esker_engine::Error),
    /// The records would exceed the store's user limit.
    #[error(
        "{wanted} bytes of records do not fit: users may fill {limit} of {namespace} bytes; lower the reserve or the fill"
    )]
    TooFull {
        /// Bytes of the records.
        wanted: u64,
        /// Bytes that users may fill.
        limit: u64,
        /// Bytes of the namespace.
        namespace: u64,
    },
    /// A read returned another value than was put.
    #[error("key {number} does not have the value that was put")]
    Wrong {
        /// Number of the key.
        number: u64,
    },
}

impl Error {
    /// True if the call was wrong, false for failures during execution.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Model(error) => error.is_usage(),
            Error::TooFull { .. } => true,
            Error::Engine(_) | Error::Wrong { .. } => false,
        }
    }
}
