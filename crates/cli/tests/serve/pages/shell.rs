//! A shell that runs the commands of a page, and the comparison of its output with the printed one: `…` stands for any text.

use std::os::unix::process::CommandExt;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// Time after which a command that did not print its output counts as failed.
const PATIENCE: Duration = Duration::from_secs(180);

/// A command of a page, and the lines that it prints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) command: String,
    pub(super) output: Vec<String>,
}

/// Returns true if a line is the printed one.
pub(super) fn is_like(line: &str, printed: &str) -> bool {
    let mut parts = printed.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut is_open = false;
    for part in parts {
        is_open = true;
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || (is_open && printed.ends_with('…'))
}

/// A shell that is given commands one after the other.
pub(super) struct Shell {
    process: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    pub(super) fn start(directory: &Path) -> Shell {
        let program = Path::new(env!("CARGO_BIN_EXE_esker")).parent().unwrap();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", program.display());
        let mut command = Command::new("bash");
        command.current_dir(directory).env_clear().env("PATH", path).arg("--norc");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.process_group(0).spawn().unwrap();
        let (commands, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Shell { process, commands, lines }
    }

    /// Runs a command, and waits for its lines. A command in the background prints them when it likes; the end of others is
    /// waited for. Fails if the output is not the printed one.
    pub(super) fn run(&mut self, step: &Step) {
        let is_waited_for = !step.command.ends_with('&');
        let (found, _) = self.lines_of(&step.command, is_waited_for, step.output.len());
        let is_same = found.len() == step.output.len()
            && found.iter().zip(&step.output).all(|(line, printed)| is_like(line, printed));
        assert!(is_same, "the page prints {:?} for '{}', but it is {found:?}", step.output, step.command);
    }

    /// Runs a command to its end. Fails if its exit code is not 0.
    pub(super) fn must_succeed(&mut self, command: &str) {
        let (found, code) = self.lines_of(command, true, 0);
        assert_eq!(code, "0", "the exit code of '{command}', which printed {found:?}");
    }

    /// Returns the lines of a command, at least `lines` of them, and its exit code if its end is waited for.
    fn lines_of(&mut self, command: &str, is_waited_for: bool, lines: usize) -> (Vec<String>, String) {
        const END: &str = "end-of-step ";
        writeln!(self.commands, "{command}").unwrap();
        if is_waited_for {
            writeln!(self.commands, "echo {END}$?").unwrap();
        }
        let (mut found, mut code) = (Vec::new(), String::new());
        while found.len() < lines || is_waited_for {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no more output after {found:?}: {command}"));
            if let Some(given) = line.strip_prefix(END) {
                code = given.to_owned();
                break;
            }
            found.push(line);
        }
        (found, code)
    }
}

impl Drop for Shell {
    /// Ends the shell and its servers, also in the middle of a command that waits.
    fn drop(&mut self) {
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = self.process.wait();
    }
}
