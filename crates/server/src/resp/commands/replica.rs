//! Commands on the address for reads from replicas: READONLY and READWRITE, and the check of a command before it runs.
//!
//! After READONLY, commands that only read keys are answered by the replica of their group, whether it leads or not. Everything
//! else on keys is sent to the leader. Commands about all keys, transactions and scripts without keys are refused: a replica
//! has a part of the keys, each as of another moment.

use super::slots::keys;
use crate::resp::session::Session;
use crate::resp::verb::facts::{Databases, Group};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, NO_CLUSTER};
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::cluster::Cluster;

/// READONLY. Without effect on the other addresses, where leaders answer.
pub(super) async fn read_only(
    command: Command<'_>,
    session: &mut Session,
    service: &Service,
    replies: &mut Replies,
) {
    let Some(cluster) = &service.cluster else {
        let refused = session.commands.find(command).and_then(|verb| verb.without_cluster);
        return replies.error(refused.unwrap_or(NO_CLUSTER));
    };
    if let Some(replica) = session.replica.as_mut().filter(|replica| !replica.is_read_only()) {
        replica.kept = Some(cluster.view.keep_recent().await);
    }
    replies.simple("OK");
}

/// READWRITE.
pub(super) fn read_write(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if let Some(replica) = &mut session.replica {
        replica.kept = None;
    }
    replies.simple("OK");
}

/// Returns true if a replica may answer the command.
fn is_read(verb: &Verb) -> bool {
    verb.only_reads() && matches!(verb.run, Run::Read(_) | Run::Usage(_))
}

/// Returns true for a command without keys that depends on keys.
fn needs_leader(verb: &Verb) -> bool {
    let is_of_all = matches!(verb.databases, Databases::Current | Databases::All);
    let is_script = matches!(verb.run, Run::Script(_));
    is_of_all || is_script || verb.group == Group::Transactions || verb.is_in("write")
}

/// Checks a command on the address for reads from replicas. Returns the error reply of one that is not answered here.
pub(super) fn check(
    verb: &Verb,
    command: Command<'_>,
    session: &Session,
    cluster: &Cluster,
) -> Result<(), String> {
    let slot = cluster.slot_of(keys(verb, command)).map_err(|error| error_text::of_cluster(&error))?;
    let is_read_only = session.replica.as_ref().is_some_and(|replica| replica.is_read_only());
    match slot {
        Some(slot) if is_read_only && is_read(verb) && cluster.holds(slot) => Ok(()),
        Some(slot) => Err(error_text::of_cluster(&cluster.place_of(slot))),
        None if needs_leader(verb) => Err(format!(
            "ERR this address answers reads of keys alone: send {} to the address of a leader",
            verb.name.to_ascii_uppercase()
        )),
        None => Ok(()),
    }
}
