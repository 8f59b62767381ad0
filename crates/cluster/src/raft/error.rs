//! Errors of a replica.

use std::fmt;

/// Why a replica does not serve its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// Node that leads the group, if one is known. This node itself if it leads but has not applied every earlier entry.
    pub leader: Option<u64>,
}

/// Why a request to a replica has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// This node does not lead the group, or not yet, or no longer in the term of the proposal. Nothing was done.
    NotReady(NotReady),
    /// No majority has answered in time. Nothing was done.
    NoMajority(String),
    /// The request contradicts the state of the group. Nothing was done.
    Refused(String),
    /// The outcome is unknown: it may be done now, later or never.
    Uncertain(String),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::NotReady(NotReady { leader: Some(leader) }) => {
                write!(f, "the node does not serve the group; node {leader} leads it")
            }
            GroupError::NotReady(NotReady { leader: None }) => f.write_str("the group has no known leader"),
            GroupError::NoMajority(why) => write!(f, "no majority of the group has answered: {why}"),
            GroupError::Refused(why) => f.write_str(why),
            GroupError::Uncertain(why) => write!(f, "the outcome is unknown: {why}"),
        }
    }
}

impl std::error::Error for GroupError {}
