//! The state of the screen: the last sample, whether it is current, and the history.

use std::collections::VecDeque;

use esker_server::status::{State, Status};

use super::question::Heard;
use crate::client::Trouble;

/// Number of samples in the history.
const HISTORY: usize = 300;

/// The state of the screen.
pub(super) struct Screen {
    pub(super) address: String,
    /// The last sample.
    pub(super) status: Option<Status>,
    /// The reason why the last sample is not current.
    pub(super) trouble: Option<String>,
    /// Operations per second, the newest last.
    pub(super) operations: VecDeque<u64>,
}

impl Screen {
    pub(super) fn new(address: &str) -> Screen {
        Screen { address: address.to_owned(), status: None, trouble: None, operations: VecDeque::new() }
    }

    /// Takes an answer. Returns an error if the call should end: an error before the first sample may be
    /// a mistake in the call, while a later one may be temporary, as during a restart of the server.
    pub(super) fn hear(&mut self, heard: Result<Heard, Trouble>) -> Result<(), String> {
        match heard {
            Ok(Heard { status, .. }) if status.state == State::Recovering => {
                self.trouble = Some(status.reason);
            }
            Ok(Heard { status, .. }) => {
                let rates = &status.rates;
                self.operations.push_back((rates.gets + rates.puts + rates.deletes) as u64);
                if self.operations.len() > HISTORY {
                    self.operations.pop_front();
                }
                (self.status, self.trouble) = (Some(status), None);
            }
            Err(Trouble::Refused(why) | Trouble::Failed(why)) if self.status.is_none() => return Err(why),
            Err(Trouble::Loading(why)) => self.trouble = Some(format!("recovering: {why}")),
            Err(Trouble::Away(why) | Trouble::Refused(why) | Trouble::Failed(why)) => {
                self.trouble = Some(format!("reconnecting: {why}"));
            }
        }
        Ok(())
    }
}
