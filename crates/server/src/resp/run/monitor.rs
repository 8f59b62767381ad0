//! The lines that MONITOR receives.

use std::fmt::Write;

use bytes::Bytes;

use super::transaction::databases_of;
use crate::base::address::Address;
use crate::resp::session::{Session, slow};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::service::{Service, wall_clock_us};

/// Limits of the arguments shown of a command, and of the bytes of one: a line is built in memory, and there may be
/// many monitors.
const ARGUMENTS_MAX: usize = 128;
const ARGUMENT_BYTES_MAX: usize = 1024;

/// Reports a group of commands to monitors, if there are any.
pub(super) struct Shown {
    /// The database before the group, which may select another.
    database: Option<u8>,
}

impl Shown {
    /// Begins the report of the group that begins with `verb`. Queued commands are reported when their EXEC begins.
    pub(super) fn begin(is_queued: bool, verb: &Verb, session: &Session, service: &Service) -> Shown {
        let is_shown = !is_queued && service.channels.are_monitored();
        if is_shown && matches!(verb.run, Run::Exec) {
            tell_queued(session, service);
        }
        Shown { database: is_shown.then(|| session.database()) }
    }

    /// Reports the commands that ran.
    pub(super) fn end<'a>(
        self,
        commands: impl Iterator<Item = Command<'a>>,
        session: &Session,
        service: &Service,
    ) {
        let Some(database) = self.database else { return };
        for command in commands {
            if let Some(verb) = session.commands.find(command) {
                tell(verb, command, database, session, service);
            }
        }
    }
}

/// Reports the commands of a transaction that is about to run.
fn tell_queued(session: &Session, service: &Service) {
    let Some(transaction) = &session.transaction else { return };
    let databases = databases_of(transaction.commands(), session, service);
    for ((verb, copied), database) in transaction.commands().iter().zip(databases) {
        tell(verb, copied.command(), database, session, service);
    }
}

/// Reports a command. Commands for administrators are not shown, as in Redis.
fn tell(verb: &Verb, command: Command<'_>, database: u8, session: &Session, service: &Service) {
    if !verb.is_of_admins() {
        service.channels.tell_monitors(&line(verb, command, database, session, wall_clock_us()));
    }
}

fn line(verb: &Verb, command: Command<'_>, database: u8, session: &Session, now_us: u64) -> Bytes {
    let (seconds, rest, peer) = (now_us / 1_000_000, now_us % 1_000_000, &session.peer);
    let peer = match peer {
        Address::Local { socket, .. } => format!("unix:{}", socket.display()),
        Address::Network(address) => address.to_string(),
    };
    let mut line = format!("{seconds}.{rest:06} [{database} {peer}]");
    for argument in slow::shortened(command, verb.has_secrets, ARGUMENTS_MAX, ARGUMENT_BYTES_MAX) {
        line.push_str(" \"");
        argument.iter().for_each(|byte| escape(*byte, &mut line));
        line.push('"');
    }
    line.into()
}

fn escape(byte: u8, line: &mut String) {
    match byte {
        b'\\' | b'"' => line.extend(['\\', byte.into()]),
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        b' '..=b'~' => line.push(byte.into()),
        _ => {
            let _ = write!(line, "\\x{byte:02x}");
        }
    }
}
