//! `esker cluster`: the nodes and groups of a running cluster, as one of its nodes sees them.

pub(crate) mod node;
mod show;
mod state;

use std::time::Duration;

use crate::client::{Answer, Client, Login};
use crate::terminal::{Failure, say};

use self::state::State;

/// Default time limit of an answer. A transfer or a removal waits for other nodes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows and changes a running cluster, as docs/cluster.md describes.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker cluster status
  esker cluster groups --from 10.0.0.7:6379 --user ops
  esker cluster transfer 3 10.0.0.8:6379
  esker cluster remove 8f2c6a01b7d93e55

Exit code 0; of status 1 if a group has no leader or fewer copies than it should; 1 if a change failed; 2 if the call is wrong.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Says whether every group has a leader and all its copies
    Status(Shown),
    /// Lists the nodes: id, addresses, zone, groups that they lead
    Nodes(Shown),
    /// Lists the groups: slots, leader, voters, lag
    Groups(Shown),
    /// Prints the command that starts another node of this cluster
    Add(At),
    /// Says how the last nodes of a cluster that lost its majority go on
    Recover(At),
    /// Makes a node the leader of a group
    #[command(after_help = "Examples:\n  esker cluster transfer 3 10.0.0.8:6379")]
    Transfer {
        /// Number of the group, as esker cluster groups lists it.
        group: u8,
        /// Id, or RESP address, of the node.
        node: String,
        #[command(flatten)]
        at: At,
    },
    /// Removes a node for good; its store must not be started as a member again
    #[command(after_help = "Examples:\n  esker cluster remove 8f2c6a01b7d93e55 --from 10.0.0.7:6379")]
    Remove {
        /// Id, or RESP address, of the node.
        node: String,
        #[command(flatten)]
        at: At,
    },
}

/// The node that is asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  esker cluster add --from 10.0.0.7:6379")]
struct At {
    /// RESP address of a node: HOST:PORT, or a port of this machine.
    #[arg(long, default_value = "127.0.0.1:6379", value_name = "ADDR")]
    from: String,
    #[command(flatten)]
    login: Login,
}

/// A node that is asked, and the form of the answer.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  esker cluster status\n  esker cluster groups --from 10.0.0.7:6379 --json"
)]
struct Shown {
    #[command(flatten)]
    at: At,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl At {
    fn connect(&self) -> Result<Client, Failure> {
        self.login.connect(&self.from, PATIENCE)
    }

    fn state(&self) -> Result<State, Failure> {
        let mut client = self.connect()?;
        match client.ask(&[b"CLUSTER", b"ESKER", b"STATUS"])? {
            Answer::Text(text) => State::parse(&text).map_err(|error| {
                Failure::Failed(format!("{} sent a state that is not understood: {error}", self.from))
            }),
            _ => Err(client.unexpected("CLUSTER ESKER STATUS").into()),
        }
    }

    /// Asks for a change.
    fn change(&self, words: &[&str], done: &str) -> Result<(), Failure> {
        let words: Vec<&[u8]> =
            ["CLUSTER", "ESKER"].iter().chain(words).map(|word| word.as_bytes()).collect();
        let mut client = self.connect()?;
        match client.ask(&words)? {
            Answer::Text(_) => say(&format!("{done}\n")),
            _ => Err(client.unexpected("CLUSTER ESKER").into()),
        }
    }
}

pub(crate) fn run(Arguments { verb }: &Arguments) -> Result<(), Failure> {
    match verb {
        Verb::Status(Shown { at, json }) => {
            let state = at.state()?;
            say(&if *json {
                state.as_json(show::problems(&state).is_empty())
            } else {
                show::status(&state)
            })?;
            match show::problems(&state).len() {
                0 => Ok(()),
                count => Err(Failure::Failed(format!("{count} problems (see docs/cluster.md)"))),
            }
        }
        Verb::Nodes(Shown { at, json }) => show(&at.state()?, *json, show::nodes),
        Verb::Groups(Shown { at, json }) => show(&at.state()?, *json, show::groups),
        Verb::Add(at) => say(&show::add(&at.state()?)),
        Verb::Recover(at) => say(&show::recover(&at.state()?)),
        Verb::Transfer { group, node, at } => {
            at.change(&["TRANSFER", &group.to_string(), node], &format!("{node} leads group {group}"))
        }
        Verb::Remove { node, at } => {
            at.change(&["REMOVE", node], &format!("{node} is no node of the cluster any more"))
        }
    }
}

fn show(state: &State, json: bool, table: impl Fn(&State) -> String) -> Result<(), Failure> {
    say(&if json { state.as_json(show::problems(state).is_empty()) } else { table(state) })
}
