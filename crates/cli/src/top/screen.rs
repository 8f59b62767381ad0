//! What is shown: what was heard last, whether that is of now, and what was heard before.

use std::collections::VecDeque;

use esker_server::status::{State, Status};

use super::question::Heard;
use crate::client::Trouble;

/// Samples that are kept.
const HISTORY: usize = 300;

/// What is shown.
pub(super) struct Screen {
    pub(super) address: String,
    /// The last that was heard.
    pub(super) status: Option<Status>,
    /// Why that is not of now.
    pub(super) trouble: Option<String>,
    /// Operations a second, the newest last.
    pub(super) operations: VecDeque<u64>,
}

impl Screen {
    pub(super) fn new(address: &str) -> Screen {
        Screen { address: address.to_owned(), status: None, trouble: None, operations: VecDeque::new() }
    }

    /// Takes what was heard; an error if it is of no use to go on. What was refused at first may have been a mistake in the
    /// call; later it is a server that is not itself yet.
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
