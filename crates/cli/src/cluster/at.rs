//! The node of a running cluster that the verbs ask.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::progress::Planned;
use super::state::State;
use crate::client::{Answer, Client, Login, Trouble};
use crate::terminal::{Failure, say};

/// Default time limit of an answer. A transfer or a removal waits for other nodes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Time for which a change is asked for again while a group has no leader, and the pause between.
const LEADER_PATIENCE: Duration = Duration::from_secs(10);
const LEADER_PAUSE: Duration = Duration::from_millis(200);

/// The node that is asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  esker cluster add --from 10.0.0.7:6379")]
pub(super) struct At {
    /// RESP address of a node: HOST:PORT, or a port of this machine.
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDR")]
    pub(super) from: String,
    #[command(flatten)]
    pub(super) login: Login,
}

impl At {
    pub(super) fn connect(&self) -> Result<Client, Failure> {
        self.login.connect(&self.from, PATIENCE)
    }

    pub(super) fn state(&self) -> Result<State, Failure> {
        let mut client = self.connect()?;
        match client.ask(&[b"CLUSTER", b"ESKER", b"STATUS"])? {
            Answer::Text(text) => State::parse(&text).map_err(|error| {
                Failure::Failed(format!("{} sent a state that is not understood: {error}", self.from))
            }),
            _ => Err(client.unexpected("CLUSTER ESKER STATUS").into()),
        }
    }

    /// Returns the moves that balancing would make.
    pub(super) fn planned(&self) -> Result<Vec<Planned>, Failure> {
        let mut client = self.connect()?;
        let Answer::Text(text) = ask_leader(&mut client, &[b"CLUSTER", b"ESKER", b"REBALANCE", b"DRY-RUN"])?
        else {
            return Err(client.unexpected("CLUSTER ESKER REBALANCE").into());
        };
        serde_json::from_slice(&text).map_err(|error| {
            Failure::Failed(format!("{} sent moves that are not understood: {error}", self.from))
        })
    }

    /// Asks for a change.
    pub(super) fn change(&self, words: &[&str], done: &str) -> Result<(), Failure> {
        let words: Vec<&[u8]> =
            ["CLUSTER", "ESKER"].iter().chain(words).map(|word| word.as_bytes()).collect();
        let mut client = self.connect()?;
        match ask_leader(&mut client, &words)? {
            Answer::Text(_) => say(&format!("{done}\n")),
            _ => Err(client.unexpected("CLUSTER ESKER").into()),
        }
    }
}

/// Asks for something that the leader of the meta group does. While the leadership is handed over, nothing is done, and it is asked
/// again.
fn ask_leader(client: &mut Client, words: &[&[u8]]) -> Result<Answer, Trouble> {
    let began = Instant::now();
    loop {
        match client.ask(words) {
            Err(Trouble::Failed(why))
                if why.contains("has no leader") && began.elapsed() < LEADER_PATIENCE =>
            {
                sleep(LEADER_PAUSE);
            }
            answer => return answer,
        }
    }
}
