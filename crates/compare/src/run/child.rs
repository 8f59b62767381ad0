//! Runs one engine's program under the memory limit, and collects its output and its resource usage.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use esker_bench::process::Usage;
use esker_bench::{Failure, Result};

use super::cgroup::Group;
use super::parse::{Parser, Run};

/// Shell command that enters the group before it executes the program, so that every page of the program
/// is in the group.
const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";

/// The output of a program.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The benchmarks, each with the usage since the end of the previous one.
    pub(crate) runs: Vec<(Run, Usage)>,
    pub(crate) warnings: Vec<String>,
    /// Usage of the whole process, from start to end.
    pub(crate) usage: Usage,
    pub(crate) peak_bytes: Option<u64>,
    /// The reason why results are missing.
    pub(crate) failed: Option<String>,
}

/// Returns the command for a program with its words.
pub(crate) fn command(program: &Path, words: &[String], group: Option<&Group>) -> Command {
    let Some(group) = group else {
        let mut command = Command::new(program);
        command.args(words);
        return command;
    };
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(ENTER).arg(group.procs()).arg(program).args(words);
    command
}

/// Formats the command in shell syntax.
pub(crate) fn typed(program: &Path, words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    [program.display().to_string()].into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs the program to its end. Its stdout is also written to `log`, and its stderr to a file beside it.
pub(crate) fn run(program: &Path, words: &[String], group: Option<&Group>, log: &Path) -> Result<Output> {
    let failed = |error| Failure::failed(&format!("writing {}", log.display()), error);
    let mut text = File::create(log).map_err(failed)?;
    writeln!(text, "{}", typed(program, words)).map_err(failed)?;
    let errors = log.with_extension("stderr");
    let stderr = File::create(&errors)
        .map_err(|error| Failure::failed(&format!("writing {}", errors.display()), error))?;
    let mut child = command(program, words, group)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .map_err(|error| Failure::failed(&format!("starting {}", program.display()), error))?;
    let pid = child.id();
    let stdout = child.stdout.take().expect("it is piped");
    let (mut parser, mut ended) = (Parser::default(), Vec::new());
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if parser.line(&String::from_utf8_lossy(&line)) {
            ended.push(Usage::of(pid));
        }
        text.write_all(&line).map_err(failed)?;
    }
    // The process has ended, and its usage can be read until it is waited for.
    if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let _ = rustix::process::waitid(rustix::process::WaitId::Pid(pid), options);
    }
    let usage = Usage::of(pid);
    let status = child.wait().map_err(|error| Failure::failed("waiting for a program", error))?;
    let mut output = Output {
        usage,
        warnings: parser.warnings,
        peak_bytes: group.and_then(Group::peak_bytes),
        ..Output::default()
    };
    let mut before = Usage::default();
    for (run, at) in parser.runs.into_iter().zip(ended) {
        output.runs.push((run, at.since(before)));
        before = at;
    }
    if !status.success() {
        let killed = group.map_or(0, Group::kills) > 0;
        let why = match (killed, status.signal()) {
            (true, _) => "ended by the kernel: it needed more than the memory limit".to_owned(),
            (false, Some(signal)) => format!("ended by signal {signal}"),
            (false, None) => format!("ended with {}", status.code().unwrap_or(-1)),
        };
        let said = std::fs::read_to_string(&errors).unwrap_or_default();
        let last = said.split(['\n', '\r']).rfind(|line| !line.trim().is_empty()).unwrap_or("").trim();
        output.failed = Some(if last.is_empty() { why } else { format!("{why}; it said: {last}") });
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: &str = "printf 'WARNING: slow\\nload : 2.0 micros/op 9 ops/sec 1.0 seconds 9 operations;\\n'; \
                         dd if=/dev/zero of=\"$0\" bs=4096 count=64 conv=fsync 2>/dev/null; \
                         printf 'over : 1.0 micros/op 8 ops/sec 1.0 seconds 8 operations;\\n'; exit $1";

    fn shell(dir: &Path, code: &str, group: Option<&Group>) -> Output {
        let file = dir.join("file").display().to_string();
        let words = ["-c", PRINT, &file, code].map(str::to_owned);
        run(Path::new("/bin/sh"), &words, group, &dir.join("log.txt")).expect("it starts")
    }

    #[test]
    fn printed_commands_can_be_run_again() {
        let words = ["--num=5", "", "it's"].map(str::to_owned);
        assert_eq!(typed(Path::new("/bin/x"), &words), "/bin/x --num=5 '' 'it'\\''s'");
    }

    #[test]
    fn figures_are_ordered_and_failures_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let output = shell(dir.path(), "0", None);
        let names: Vec<_> = output.runs.iter().map(|(run, _)| run.name.as_str()).collect();
        assert_eq!((names, output.failed), (vec!["load", "over"], None));
        assert_eq!(output.warnings, ["slow"]);
        assert!(std::fs::read_to_string(dir.path().join("log.txt")).expect("a log").contains("micros/op"));
        let output = shell(dir.path(), "3", None);
        assert_eq!((output.runs.len(), output.failed.as_deref()), (2, Some("ended with 3")));
    }

    #[test]
    fn process_beyond_limit_is_killed_and_reported() {
        let dir = tempfile::tempdir().expect("a directory");
        let group = match Group::make(&format!("esker-compare-test-{}", std::process::id()), 16 << 20) {
            Ok(group) => group,
            Err(why) => {
                eprintln!("SKIPPED: no memory limit can be set here: {why}");
                return;
            }
        };
        let output = shell(dir.path(), "0", Some(&group));
        assert_eq!((output.runs.len(), output.failed), (2, None));
        assert!(output.peak_bytes > Some(64 * 4096), "page cache counts: {:?}", output.peak_bytes);
        // `tail` keeps an unterminated line in memory.
        let words = ["-c", "head -c 64000000 /dev/zero | tail; exit 1"].map(str::to_owned);
        let output =
            run(Path::new("/bin/sh"), &words, Some(&group), &dir.path().join("log.txt")).expect("it starts");
        assert!(output.failed.as_deref().is_some_and(|why| why.contains("memory limit")), "{output:?}");
    }
}
