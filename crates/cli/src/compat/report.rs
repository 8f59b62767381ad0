//! Counts the served and the unserved commands, options and scripts, and prints the counts.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use esker_server::served::{Caller, Unserved, check_command, check_name, check_script};
use serde_json::{Value, json};

use super::{advice, script};
use crate::terminal::Failure;

/// Distinct scripts whose checks are remembered.
const SCRIPTS_MAX: usize = 10_000;

/// The place of a command in the input.
#[derive(Clone, Copy, Debug)]
pub(super) enum At<'n> {
    Line { name: &'n str, number: u64 },
    Byte { name: &'n str, at: u64 },
    File { name: &'n str },
}

impl At<'_> {
    fn text(self) -> String {
        match self {
            At::Line { name, number } => format!("{name}:{number}"),
            At::Byte { name, at } => format!("{name}, byte {at}"),
            At::File { name } => name.to_owned(),
        }
    }
}

/// One kind of refusal.
#[derive(Debug)]
struct Refusal {
    calls: u64,
    /// The place of the first one.
    first: String,
    advice: &'static str,
    family: Option<&'static str>,
    is_ignored: bool,
}

/// The results of all inputs.
#[derive(Debug)]
pub(super) struct Report {
    ignored: Vec<String>,
    /// Calls by command.
    served: BTreeMap<&'static str, u64>,
    /// Refusals by command and error text.
    refused: BTreeMap<(String, String), Refusal>,
    /// The outcome of the scripts that were compiled, by their text.
    scripts: HashMap<Vec<u8>, bool>,
    files: u64,
    skipped: u64,
}

impl Report {
    /// Begins a report that ignores refusals of some commands.
    ///
    /// # Errors
    /// If a name to ignore is empty.
    pub(super) fn new(ignored: &[String]) -> Result<Report, Failure> {
        if ignored.iter().any(String::is_empty) {
            return Err(Failure::Usage("--ignore needs the name of a command, such as debug".to_owned()));
        }
        Ok(Report {
            ignored: ignored.iter().map(|name| name.to_ascii_lowercase()).collect(),
            served: BTreeMap::new(),
            refused: BTreeMap::new(),
            scripts: HashMap::new(),
            files: 0,
            skipped: 0,
        })
    }

    /// Checks a call of a command, and the script that it has.
    pub(super) fn command(&mut self, words: &[&[u8]], caller: Caller<'_>, at: At<'_>) {
        let checked = check_command(words, caller);
        let text = match checked {
            Ok("eval" | "eval_ro") => words.get(1),
            Ok("script|load") => words.get(2),
            _ => None,
        };
        self.count(checked, 1, at);
        if let Some(text) = text {
            self.script(text, at);
        }
    }

    /// Checks a command of which only the name is known.
    pub(super) fn name(&mut self, name: &str, calls: u64, caller: Caller<'_>, at: At<'_>) {
        self.count(check_name(name, caller), calls, at);
    }

    /// Checks a script once: its text, and the commands that it names.
    pub(super) fn script(&mut self, text: &[u8], at: At<'_>) {
        if self.scripts.contains_key(text) {
            return;
        }
        let compiled = check_script(text);
        let mut is_served = compiled.is_ok();
        if let Err(unserved) = compiled {
            self.refuse(unserved, 1, at);
        }
        for (_, name) in script::named(text) {
            let checked = check_name(name, Caller::Script(None));
            is_served &= checked.is_ok();
            // Calls are counted where they run.
            if let Err(unserved) = checked {
                self.refuse(unserved, 1, at);
            }
        }
        if self.scripts.len() < SCRIPTS_MAX {
            self.scripts.insert(text.to_vec(), is_served);
        }
    }

    /// Counts the strings of an RDB file.
    pub(super) fn strings(&mut self, count: u64) {
        if count > 0 {
            self.serve("values of type string", count);
        }
    }

    /// Counts the values of an RDB file that Esker cannot hold, by type or reason.
    pub(super) fn values(&mut self, kind: &str, count: u64, at: At<'_>) {
        let families = [
            ("list", "lists"),
            ("hash", "hashes"),
            ("set", "sets"),
            ("sorted set", "sorted sets"),
            ("stream", "streams"),
            ("library of functions", "functions"),
        ];
        let family = families.iter().find(|(name, _)| *name == kind).map(|(_, family)| *family);
        let error = "esker import leaves them out".to_owned();
        self.refuse(Unserved { command: format!("values of type {kind}"), family, error }, count, at);
    }

    /// Counts a file of code.
    pub(super) fn file(&mut self) {
        self.files += 1;
    }

    /// Counts a file of code that is too long.
    pub(super) fn skipped(&mut self) {
        self.skipped += 1;
    }

    fn count(&mut self, checked: Result<&'static str, Unserved>, calls: u64, at: At<'_>) {
        match checked {
            Ok(name) => self.serve(name, calls),
            Err(unserved) => self.refuse(unserved, calls, at),
        }
    }

    fn serve(&mut self, name: &'static str, calls: u64) {
        let sum = self.served.entry(name).or_default();
        *sum = sum.saturating_add(calls);
    }

    fn refuse(&mut self, unserved: Unserved, calls: u64, at: At<'_>) {
        let (advice, family) = (advice::of(&unserved), unserved.family);
        let of_command = unserved.command.split('|').next().unwrap_or_default();
        let is_ignored = self.ignored.iter().any(|name| *name == unserved.command || name == of_command);
        let refusal = || Refusal { calls: 0, first: at.text(), advice, family, is_ignored };
        let key = (unserved.command, unserved.error);
        let sum = &mut self.refused.entry(key).or_insert_with(refusal).calls;
        *sum = sum.saturating_add(calls);
    }

    /// Returns true if all refusals are of commands that the caller ignores.
    pub(super) fn all_served(&self) -> bool {
        self.refused.values().all(|refusal| refusal.is_ignored)
    }

    /// Returns the refusals, the most frequent ones first.
    fn ordered(&self) -> Vec<(&str, &str, &Refusal)> {
        let rows = self.refused.iter().map(|((name, error), refusal)| (&**name, &**error, refusal));
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(_, _, refusal)| std::cmp::Reverse(refusal.calls));
        rows
    }

    fn scripts_served(&self) -> (usize, usize) {
        (self.scripts.values().filter(|is_served| **is_served).count(), self.scripts.len())
    }

    /// Returns the report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let served = self.served.values().copied().fold(0, u64::saturating_add);
        let all = self.refused.values().map(|refusal| refusal.calls).fold(served, u64::saturating_add);
        let _ = writeln!(text, "served: {served} of {all} calls, {} commands", self.served.len());
        let mut names: Vec<_> = self.served.iter().collect();
        names.sort_by_key(|(_, calls)| std::cmp::Reverse(**calls));
        for (name, calls) in names {
            let _ = writeln!(text, "  {calls:>12}  {name}");
        }
        if let (served, all @ 1..) = self.scripts_served() {
            let _ = writeln!(text, "scripts: {served} of {all} served");
        }
        if self.skipped > 0 {
            let _ = writeln!(text, "skipped: {} files of more than 4 MiB", self.skipped);
        }
        if self.refused.is_empty() {
            text.push_str("not served: nothing\n");
            return text;
        }
        text.push_str("not served:\n");
        for (name, error, refusal) in self.ordered() {
            let Refusal { calls, first, advice, is_ignored, .. } = refusal;
            let ignored = if *is_ignored { " (ignored)" } else { "" };
            let _ = writeln!(text, "  {calls:>12}  {name}{ignored}: {error}");
            let _ = writeln!(text, "{:16}first at {first}", "");
            let _ = writeln!(text, "{:16}instead: {advice}", "");
        }
        text
    }

    /// Returns the report for programs, as one line.
    pub(super) fn json(&self) -> String {
        let refused = self.ordered().into_iter().map(|(command, error, refusal)| {
            json!({
                "command": command, "error": error, "calls": refusal.calls, "first": refusal.first,
                "family": refusal.family, "instead": refusal.advice, "ignored": refusal.is_ignored,
            })
        });
        let (served, all) = self.scripts_served();
        let report = json!({
            "all_served": self.all_served(),
            "served": self.served,
            "not_served": refused.collect::<Vec<Value>>(),
            "scripts": { "served": served, "all": all },
            "files": self.files,
            "files_skipped": self.skipped,
        });
        report.to_string() + "\n"
    }
}
