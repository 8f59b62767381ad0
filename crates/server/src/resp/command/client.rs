//! CLIENT: what the server knows of the connection.
//!
//! Subcommands that are not here must answer with an error and nothing worse: clients ask for `TRACKING` and
//! `MAINT_NOTIFICATIONS` on trial and go without when they are refused.

use super::connection::{BAD_NAME, is_name};
use super::{Plan, is, shown, unknown_subcommand, wrong_arguments};
use crate::resp::frame::Command;

/// Name, number of arguments with both words, and what it becomes.
type Subcommand = (&'static str, usize, fn(Command<'_>) -> Plan);

pub(super) fn plan(command: Command<'_>) -> Plan {
    let subcommands: [Subcommand; 4] = [
        ("id", 2, |_| id()),
        ("getname", 2, |_| get_name()),
        ("setname", 3, set_name),
        ("setinfo", 4, set_info),
    ];
    for (name, arguments, plan) in subcommands {
        if is(command.argument(1), name) {
            if command.len() != arguments {
                return Plan::Refuse(wrong_arguments(&format!("client|{name}")));
            }
            return plan(command);
        }
    }
    unknown_subcommand("CLIENT", command)
}

fn id() -> Plan {
    Plan::Answer(|_, session, _, replies| replies.integer(session.id as i64))
}

fn get_name() -> Plan {
    Plan::Answer(|_, session, _, replies| {
        replies.bulk_or_null(Some(session.name.as_slice()).filter(|name| !name.is_empty()));
    })
}

fn set_name(command: Command<'_>) -> Plan {
    if !is_name(command.argument(2)) {
        return Plan::Refuse(BAD_NAME.to_owned());
    }
    Plan::Answer(|command, session, _, replies| {
        session.name = command.argument(2).to_vec();
        replies.simple("OK");
    })
}

/// Libraries introduce themselves with one attribute per call. Nothing reads it yet, but it must be good and be OK.
fn set_info(command: Command<'_>) -> Plan {
    let attribute = command.argument(2);
    let Some(known) = ["lib-name", "lib-ver"].into_iter().find(|known| is(attribute, known)) else {
        return Plan::Refuse(format!("ERR Unrecognized option '{}'", shown(attribute, 128)));
    };
    if !is_name(command.argument(3)) {
        return Plan::Refuse(format!("ERR {known} cannot contain spaces, newlines or special characters."));
    }
    Plan::Answer(|_, _, _, replies| replies.simple("OK"))
}
