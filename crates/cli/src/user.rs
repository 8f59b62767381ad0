//! `esker user`: makes and changes the file of users. Passwords come from the terminal without an echo,
//! or from stdin. A server reads the file at its start and on a reload, so each change ends with a hint
//! about that.

use std::io::{BufRead, IsTerminal, stdin};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker_server::{Right, UserEntry, UserFile};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::terminal::{Failure, note, say};

/// Makes and changes the file of users that `esker serve --users` reads.
#[derive(Args)]
#[command(after_help = "\
Examples:
  esker user add ann --users users.toml --rights read,write --prefix app:   asks for a password
  esker user list --users users.toml
  systemctl reload esker                                                    for a running server to know of it")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Adds a user. The password is asked for, or read from stdin.
    #[command(after_help = "\
Examples:
  esker user add ann --users users.toml                                     reads and writes all keys
  echo \"$SECRET\" | esker user add bob --users users.toml --rights read
  esker user add grafana --users users.toml --rights monitor
  esker user add robot --users users.toml --rights admin --certificate-only")]
    Add {
        #[command(flatten)]
        who: Who,
        /// Rights of the user: some of read, write, monitor and admin, with commas.
        #[arg(long, value_name = "RIGHTS", value_delimiter = ',', value_parser = right, default_value = "read,write")]
        rights: Vec<Right>,
        /// Limit the user to keys with this prefix; can be given several times.
        #[arg(long, value_name = "PREFIX")]
        prefix: Vec<String>,
        /// Let the user use only these databases: their numbers, with commas.
        #[arg(long, value_name = "NUMBERS", value_delimiter = ',', value_parser = crate::inspect::database)]
        databases: Vec<u8>,
        /// Give no password: only a certificate that names the user logs in.
        #[arg(long)]
        certificate_only: bool,
    },
    /// Changes a user's password.
    #[command(after_help = "Examples:\n  esker user passwd ann --users users.toml")]
    Passwd {
        #[command(flatten)]
        who: Who,
    },
    /// Removes a user.
    #[command(after_help = "Examples:\n  esker user remove ann --users users.toml")]
    Remove {
        #[command(flatten)]
        who: Who,
    },
    /// Lists the users and their rights.
    #[command(after_help = "Examples:\n  esker user list --users users.toml")]
    List {
        #[command(flatten)]
        file: File,
    },
}

#[derive(Args)]
struct File {
    /// The file of users.
    #[arg(long, value_name = "PATH")]
    users: PathBuf,
}

#[derive(Args)]
struct Who {
    #[command(flatten)]
    file: File,
    /// The user's name.
    name: String,
}

fn right(text: &str) -> Result<Right, String> {
    Right::parse(text).ok_or_else(|| "a right is read, write, monitor or admin".to_owned())
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Add { who, rights, prefix, databases, certificate_only } => {
            let path = &who.file.users;
            let mut file = if path.exists() { read(path)? } else { UserFile::default() };
            if file.users().contains_key(&who.name) {
                return Err(usage(format!("user {} already exists", who.name)));
            }
            if rights.contains(&Right::Admin) && !prefix.is_empty() {
                return Err(usage(
                    "admin and --prefix contradict each other: an admin reaches every key".to_owned(),
                ));
            }
            if rights.contains(&Right::Admin) && !databases.is_empty() {
                return Err(usage(
                    "admin and --databases contradict each other: an admin uses every database".to_owned(),
                ));
            }
            let mut entry = UserEntry { rights, prefixes: prefix, databases, ..UserEntry::default() };
            // The name is checked before the password prompt.
            file.set(&who.name, entry.clone()).map_err(|what| usage(what.to_owned()))?;
            if !certificate_only {
                entry
                    .set_password(&ask_password(&who.name)?)
                    .map_err(|error| Failure::Failed(error.to_string()))?;
                file.set(&who.name, entry).map_err(|what| usage(what.to_owned()))?;
            }
            write(&file, path)
        }
        Verb::Passwd { who } => {
            let mut file = read(&who.file.users)?;
            let found = file.users().get(&who.name).cloned();
            let mut entry = found.ok_or_else(|| usage(format!("there is no user {}", who.name)))?;
            entry
                .set_password(&ask_password(&who.name)?)
                .map_err(|error| Failure::Failed(error.to_string()))?;
            file.set(&who.name, entry).map_err(|what| usage(what.to_owned()))?;
            write(&file, &who.file.users)
        }
        Verb::Remove { who } => {
            let mut file = read(&who.file.users)?;
            if !file.remove(&who.name) {
                return Err(usage(format!("there is no user {}", who.name)));
            }
            write(&file, &who.file.users)
        }
        Verb::List { file } => {
            let mut lines = String::new();
            for (name, entry) in read(&file.users)?.users() {
                let how = match (entry.off, &entry.password_hash) {
                    (true, _) => "off",
                    (false, Some(_)) => "password",
                    (false, None) => "certificate",
                };
                let databases: Vec<_> = entry.databases.iter().map(u8::to_string).collect();
                let databases = match databases.is_empty() {
                    true => String::new(),
                    false => format!(" databases={}", databases.join(",")),
                };
                lines.push_str(&format!("{name} {}{databases} login={how}\n", what_it_may(entry)));
            }
            say(&lines)
        }
    }
}

/// Formats rights and prefixes, or the rules given by ACL SETUSER.
fn what_it_may(entry: &UserEntry) -> String {
    if let Some(commands) = &entry.commands {
        let reach = [&entry.keys[..], &entry.channels].concat();
        return format!("rules={:?}", [&reach[..], std::slice::from_ref(commands)].concat().join(" "));
    }
    let rights: Vec<_> = entry.rights.iter().map(|right| right.name()).collect();
    let keys: Vec<_> = entry.prefixes.iter().map(|prefix| format!("{prefix}*")).collect();
    let keys = if keys.is_empty() { "*".to_owned() } else { keys.join(",") };
    format!("rights={} keys={keys}", rights.join(","))
}

fn usage(text: String) -> Failure {
    Failure::Usage(text)
}

fn read(path: &Path) -> Result<UserFile, Failure> {
    UserFile::read(path).map_err(|error| usage(error.to_string()))
}

/// Writes the file, and prints how a running server reloads it.
fn write(file: &UserFile, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    file.write(path).map_err(|error| Failure::Failed(format!("cannot write {shown}: {error}")))?;
    say(&format!(
        "wrote {shown}; a running server uses it after a reload: systemctl reload esker, or kill -HUP its process\n"
    ))
}

/// Reads a password: twice from a terminal, or one line of stdin.
fn ask_password(name: &str) -> Result<String, Failure> {
    let password = if stdin().is_terminal() {
        let first = ask_hidden(&format!("Password of {name}: "))?;
        if first != ask_hidden("Again: ")? {
            return Err(usage("the two passwords differ".to_owned()));
        }
        first
    } else {
        read_line()?
    };
    if password.is_empty() { Err(usage("an empty password is none".to_owned())) } else { Ok(password) }
}

fn ask_hidden(prompt: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot ask for a password: {error}"));
    note(prompt);
    let before = tcgetattr(stdin()).map_err(|error| failed(error.into()))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(stdin(), OptionalActions::Flush, &silent).map_err(|error| failed(error.into()))?;
    let line = read_line();
    let restored = tcsetattr(stdin(), OptionalActions::Flush, &before);
    note("\n");
    restored.map_err(|error| failed(error.into()))?;
    line
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::Failed(format!("cannot read a password: {error}")))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
