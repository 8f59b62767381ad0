//! The implementations of all verbs, one file per group of verbs.
//!
//! [`admit`] decides whether a command may run; [`runs`] maps every verb to its function. A new verb needs a function
//! here, a line there, and a row in `verbs/table.rs`.

use super::session::Session;
use super::session::view::View;
use super::wire::commands::Command;
use super::wire::reply::Replies;
use crate::service::Service;

pub(super) mod acl;
pub(super) mod admit;
pub(super) mod bitfield;
pub(super) mod bits;
pub(super) mod client;
pub(super) mod config;
pub(super) mod connection;
mod counters;
pub(in crate::resp) mod databases;
pub(super) mod describe;
pub(super) mod dump;
pub(super) mod durability;
mod expiry;
pub(crate) mod hyperloglog;
pub(super) mod info;
pub(super) mod iterate;
pub(super) mod keys;
pub(super) mod lcs;
pub(super) mod lengths;
mod long_double;
mod multi;
pub(super) mod object;
mod observe;
mod pauses;
pub(super) mod pubsub;
mod ranges;
mod rights;
pub(super) mod runs;
pub(super) mod script;
mod server;
pub(super) mod set;
mod strings;
mod subcommands;
pub(super) mod tracking;
pub(super) mod users;

/// Answers a command without waiting.
pub(super) type Answer = fn(Command<'_>, &mut Session, &Service, &mut Replies);

/// Answers a command on keys from a view of them, and may write to it.
pub(super) type OnKeys = fn(Command<'_>, &mut View, &mut Replies);
