//! Errors of a replicated store that depend on the state of its cluster.

use std::fmt;

use crate::base::error::ErrorKind;

/// Why a node of a cluster cannot answer a request.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterError {
    /// Another node leads the group. Nothing was done.
    Elsewhere {
        /// The hash slot of the key, or the first one of the group.
        slot: u16,
        /// Address of the other node for clients of the Redis protocol.
        to: String,
    },
    /// The group has no leader that is known, or no majority. Nothing was done.
    NoLeader {
        /// The hash slot of the key, or the first one of the group.
        slot: u16,
        /// The cause, such as a missing majority.
        why: String,
    },
    /// This node leads the group, but has not applied all earlier entries yet. Nothing was done.
    NotReady {
        /// The hash slot of the key, or the first one of the group.
        slot: u16,
    },
    /// An earlier write of one of the keys has no outcome yet, because its group has had no majority for a while. Nothing was
    /// done.
    KeyInDoubt,
    /// The keys of one write are in several groups. Nothing was done.
    SeveralGroups,
    /// The write was proposed, and its outcome is unknown: it may be done now, later or never. A client that repeats it
    /// may do it twice.
    Uncertain {
        /// The cause.
        why: String,
    },
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterError::Elsewhere { slot, to } => {
                write!(f, "slot {slot} is led by the node at {to}; ask it")
            }
            ClusterError::NoLeader { slot, why } => {
                write!(f, "slot {slot} has no leader: {why}; try again later")
            }
            ClusterError::NotReady { slot } => {
                write!(
                    f,
                    "the node has just become the leader of slot {slot}, and is not ready yet; try again"
                )
            }
            ClusterError::KeyInDoubt => f.write_str(
                "an earlier write of a key has had no outcome for 10 s, because no majority of its group answers; nothing was done, \
                 try again later",
            ),
            ClusterError::SeveralGroups => {
                f.write_str("the keys are in several groups; use keys with one {hash tag}")
            }
            ClusterError::Uncertain { why } => {
                write!(f, "the write may or may not have happened: {why}; read the keys before repeating it")
            }
        }
    }
}

impl ClusterError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            ClusterError::Elsewhere { .. } => ErrorKind::Elsewhere,
            ClusterError::NoLeader { .. } | ClusterError::NotReady { .. } | ClusterError::KeyInDoubt => {
                ErrorKind::Unavailable
            }
            ClusterError::SeveralGroups => ErrorKind::Invalid,
            ClusterError::Uncertain { .. } => ErrorKind::Uncertain,
        }
    }
}
