//! A node: the part of a cluster in one server process. See `docs/decisions/0051-groups.md`, section Nodes, and
//! `0052-placement.md`.
//!
//! * `open`: the start: `identity` is durable in the log; `joining` founds or joins; replicas of all groups are started.
//!   `recover` makes a node the only one, after a majority is lost.
//! * `replicator`, `viewing`, `handler`: the node as the engine, the server and other nodes see it.
//! * `members`: joins and removals, made by the leader of the meta group.
//! * `reports`, `reported`: reports of nodes about themselves and the groups that they lead; `placing`: which nodes hold which
//!   groups.
//! * `reconcile`: the task that changes each group's members and leader to those of `plan`; `retiring`: gives space back.
//! * `following`, `followed`: keeps replicas recent while clients read from them.
//! * `healing`, `damaged`: heals damaged records from the other copies; `searching`: finds their keys.
//! * `publishing`, `message_queues`: messages of PUBLISH for the subscribers of other nodes.
//! * `topology`, `metrics`: nodes, groups and figures at one moment.
//! * `core`: the state that these share.

mod core;
mod damaged;
mod error;
mod followed;
mod following;
mod handler;
mod healing;
mod identity;
mod joining;
mod members;
mod message_queues;
mod metrics;
mod noting;
mod open;
mod placing;
mod plan;
mod publishing;
mod reconcile;
mod recover;
mod replicator;
mod reported;
mod reports;
mod retiring;
mod searching;
mod settings;
mod states;
mod topology;
mod upgrading;
mod viewing;

pub use self::core::Node;
pub use error::NodeError;
pub use joining::OTHER_CLUSTER;
pub use settings::{Begin, NodeSettings};
