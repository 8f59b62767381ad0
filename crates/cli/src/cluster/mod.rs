//! `esker cluster`: the nodes and groups of a running cluster, as one of its nodes sees them.

pub(crate) mod node;
mod progress;
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
  esker cluster drain 10.0.0.7:6379
  esker cluster rebalance --dry-run
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
    /// Moves all groups away from a node, which then can be removed
    #[command(
        after_help = "Examples:\n  esker cluster drain 10.0.0.8:6379\n  esker cluster drain 10.0.0.8:6379 --cancel"
    )]
    Drain {
        /// Id, or RESP address, of the node.
        node: String,
        /// Let the node keep and get groups again.
        #[arg(long)]
        cancel: bool,
        #[command(flatten)]
        at: At,
    },
    /// Moves the copy of a group from one node to another
    #[command(after_help = "Examples:\n  esker cluster move 3 10.0.0.7:6379 10.0.0.9:6379")]
    Move {
        /// Number of the group, as esker cluster groups lists it.
        group: u8,
        /// Id, or RESP address, of the node that has a copy.
        from_node: String,
        /// Id, or RESP address, of the node that gets it.
        to_node: String,
        #[command(flatten)]
        at: At,
    },
    /// Evens out the number of groups of the nodes, by their capacity
    #[command(after_help = "Examples:\n  esker cluster rebalance --dry-run\n  esker cluster rebalance")]
    Rebalance {
        /// Print the moves, and make none.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        at: At,
    },
    /// Sets the number of copies of each group: 1, 3 or 5
    #[command(after_help = "Examples:\n  esker cluster replicas 5")]
    Replicas {
        /// The number of copies.
        copies: u8,
        #[command(flatten)]
        at: At,
    },
    /// Begins no copies of groups until esker cluster resume
    Pause(At),
    /// Lets copies of groups begin again
    Resume(At),
    /// Removes a node for good: a drained one, or with --dead one that is lost
    #[command(
        after_help = "Examples:\n  esker cluster remove 8f2c6a01b7d93e55 --from 10.0.0.7:6379\n  esker cluster remove 8f2c6a01b7d93e55 --dead"
    )]
    Remove {
        /// Id, or RESP address, of the node.
        node: String,
        /// The node has copies, and is lost for good; others get them.
        #[arg(long)]
        dead: bool,
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

    /// Returns the moves that balancing would make.
    fn planned(&self) -> Result<Vec<progress::Planned>, Failure> {
        let mut client = self.connect()?;
        let Answer::Text(text) = client.ask(&[b"CLUSTER", b"ESKER", b"REBALANCE", b"DRY-RUN"])? else {
            return Err(client.unexpected("CLUSTER ESKER REBALANCE").into());
        };
        serde_json::from_slice(&text).map_err(|error| {
            Failure::Failed(format!("{} sent moves that are not understood: {error}", self.from))
        })
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
        Verb::Remove { node, dead, at } => {
            let words = ["REMOVE", node, "DEAD"];
            let words = if *dead { &words[..] } else { &words[..2] };
            at.change(words, &format!("{node} is no node of the cluster any more"))
        }
        Verb::Drain { node, cancel: false, at } => at.change(
            &["DRAIN", node],
            &format!("{node} is being drained; esker cluster status shows what is left"),
        ),
        Verb::Drain { node, cancel: true, at } => {
            at.change(&["DRAIN", node, "CANCEL"], &format!("{node} keeps its groups"))
        }
        Verb::Move { group, from_node, to_node, at } => at.change(
            &["MOVE", &group.to_string(), from_node, to_node],
            &format!("group {group} moves to {to_node}; esker cluster status shows its progress"),
        ),
        Verb::Rebalance { dry_run: true, at } => say(&progress::planned(&at.state()?, &at.planned()?)),
        Verb::Rebalance { dry_run: false, at } => {
            at.change(&["REBALANCE"], "groups are being rebalanced; esker cluster status shows the progress")
        }
        Verb::Replicas { copies, at } => {
            let words = ["REPLICAS", &copies.to_string()];
            at.change(
                &words,
                &format!("each group gets {copies} copies; esker cluster status shows the progress"),
            )
        }
        Verb::Pause(at) => at.change(&["PAUSE"], "no copies are begun; those in progress are completed"),
        Verb::Resume(at) => at.change(&["RESUME"], "copies are begun again"),
    }
}

fn show(state: &State, json: bool, table: impl Fn(&State) -> String) -> Result<(), Failure> {
    say(&if json { state.as_json(show::problems(state).is_empty()) } else { table(state) })
}
