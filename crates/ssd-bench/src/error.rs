//! What can go wrong while the engine runs on a modelled drive.

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The drive or the workload cannot be modelled.
    #[error(transparent)]
    Model(#[from] esker_ssd_model::Error),
    /// The engine refused something, or failed.
    #[error("the engine on the modelled drive: {0}")]
    Engine(#[from] esker_engine::Error),
    /// The store would be fuller than it may be.
    #[error(
        "{wanted} bytes of records do not fit: users may fill {limit} of {namespace} bytes; lower the reserve or the fill"
    )]
    TooFull {
        /// What the records take.
        wanted: u64,
        /// What users may fill.
        limit: u64,
        /// What the drive has.
        namespace: u64,
    },
    /// A read returned something else than what was put.
    #[error("key {number} does not have the value that was put")]
    Wrong {
        /// Which key.
        number: u64,
    },
}

impl Error {
    /// Whether the call is at fault, rather than what happened on the way.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Model(error) => error.is_usage(),
            Error::TooFull { .. } => true,
            Error::Engine(_) | Error::Wrong { .. } => false,
        }
    }
}
