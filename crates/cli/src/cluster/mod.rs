//! `esker cluster`: the nodes and groups of a running cluster, as one of its nodes sees them.

mod at;
mod backup;
pub(crate) mod node;
mod progress;
mod show;
mod state;
mod upgrade;

use crate::terminal::{Failure, say};

use self::at::At;
use self::state::State;

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
    Backup(backup::Backup),
    Verify(backup::Verify),
    Restore(backup::Restore),
    /// Shows or ends a rolling upgrade (docs/upgrade.md)
    #[command(
        subcommand,
        after_help = "Examples:\n  esker cluster upgrade status --from 10.0.0.7:6379\n  esker cluster upgrade finalize"
    )]
    Upgrade(Upgrade),
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

/// A step of a rolling upgrade.
#[derive(clap::Subcommand)]
enum Upgrade {
    /// Shows the level of the protocol between nodes, and the program of each node
    #[command(after_help = "Examples:\n  esker cluster upgrade status --from 10.0.0.7:6379")]
    Status(At),
    /// Uses the level of the new programs: earlier ones are refused from then on
    #[command(after_help = "Examples:\n  esker cluster upgrade finalize --from 10.0.0.7:6379")]
    Finalize(At),
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
        Verb::Backup(given) => backup::backup(given),
        Verb::Verify(given) => backup::verify(given),
        Verb::Restore(given) => backup::restore(given),
        Verb::Upgrade(Upgrade::Status(at)) => say(&upgrade::programs(&at.state()?)),
        Verb::Upgrade(Upgrade::Finalize(at)) => {
            at.change(&["FINALIZE"], "the upgrade is finalized; esker cluster upgrade status shows the level")
        }
        Verb::Pause(at) => at.change(&["PAUSE"], "no copies are begun; those in progress are completed"),
        Verb::Resume(at) => at.change(&["RESUME"], "copies are begun again"),
    }
}

fn show(state: &State, json: bool, table: impl Fn(&State) -> String) -> Result<(), Failure> {
    say(&if json { state.as_json(show::problems(state).is_empty()) } else { table(state) })
}
