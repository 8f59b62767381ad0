//! Runs every command of docs/tutorial.md in one shell, and compares its output with the printed one: `…` stands for any text.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// Time after which a command that did not print its output counts as failed.
const PATIENCE: Duration = Duration::from_secs(180);

/// A command of a page, and the lines that it prints.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    output: Vec<String>,
}

/// Returns the commands of the blocks that show a console.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap_or_default().lines() {
            match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
                None => steps.last_mut().expect("a block begins with a command").output.push(line.to_owned()),
            }
        }
    }
    steps
}

/// Returns true if a line is the printed one.
fn is_like(line: &str, printed: &str) -> bool {
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
struct Shell {
    process: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start(directory: &Path) -> Shell {
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
    /// waited for.
    fn run(&mut self, step: &Step) {
        writeln!(self.commands, "{}", step.command).unwrap();
        let is_waited_for = !step.command.ends_with('&');
        if is_waited_for {
            writeln!(self.commands, "echo end-of-step").unwrap();
        }
        let mut found = Vec::new();
        while found.len() < step.output.len() || is_waited_for {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no more output after {found:?}: {step:?}"));
            if line == "end-of-step" {
                break;
            }
            found.push(line);
        }
        let is_same = found.len() == step.output.len()
            && found.iter().zip(&step.output).all(|(line, printed)| is_like(line, printed));
        assert!(is_same, "the page prints {:?} for '{}', but it is {found:?}", step.output, step.command);
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

#[test]
fn every_command_of_the_tutorial_prints_what_the_page_says() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("SKIPPED: redis-cli is not installed");
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    let page = std::fs::read_to_string(page).unwrap();
    // Other tests run beside this one, and the ports of the page may be taken.
    let ports = ["6379", "7001", "7002", "7003", "8001", "8002", "8003"];
    let free: BTreeMap<_, _> = ports.into_iter().zip(cluster::free_ports(ports.len())).collect();
    let mut steps = steps(&page);
    assert!(steps.len() > 20, "{steps:?}");
    for step in &mut steps {
        for text in std::iter::once(&mut step.command).chain(&mut step.output) {
            for (port, free) in &free {
                *text = text.replace(port, &free.to_string());
            }
            // The page uses the default port, which only the first server has.
            if text.starts_with("redis-cli ") && !text.contains(" -p ") {
                *text = text.replacen("redis-cli", &format!("redis-cli -p {}", free["6379"]), 1);
            }
            if text.starts_with("esker serve --memory") {
                *text = text.replacen("serve", &format!("serve --resp {}", free["6379"]), 1);
            }
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Shell::start(directory.path());
    steps.iter().for_each(|step| shell.run(step));
}

#[test]
fn output_that_differs_from_the_page_is_noticed() {
    assert!(is_like("ready resp=1 keys=0", "ready resp=1 keys=0"));
    assert!(is_like("ready resp=1 ms=0.3", "ready resp=1 ms=…"));
    assert!(is_like("a b c", "a … c"));
    assert!(!is_like("ready resp=1 keys=1", "ready resp=1 keys=0"));
    assert!(!is_like("a b d", "a … c"));
    assert!(!is_like("a b c d", "a … c"));
    let page = "x\n```console\n$ one\n1\n$ two &\n```\n```sh\n$ not\n```\n";
    let step = |command: &str, output: &[&str]| Step {
        command: command.to_owned(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(steps(page), [step("one", &["1"]), step("two &", &[])]);
}
