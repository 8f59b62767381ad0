//! Results on stdout, notes on stderr, and the exit code of a program that failed.

use std::io::{self, Write, stderr, stdout};
use std::process::ExitCode;

/// The reason why a verb did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// The call or its surroundings are wrong (options, addresses, paths); nothing was changed. Exit code 2.
    Usage(String),
    /// Something failed on the way. Exit code 1.
    Failed(String),
}

/// Writes the result of a verb to stdout.
///
/// # Errors
/// [`Failure::Failed`] if stdout cannot be written. A reader that closed the pipe is no failure.
pub fn say(text: &str) -> Result<(), Failure> {
    say_bytes(text.as_bytes())
}

/// As [`say`], for bytes that need not be text.
///
/// # Errors
/// As [`say`].
pub fn say_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = stdout();
    said(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Turns the outcome of a write to stdout into the outcome of the verb.
///
/// # Errors
/// As [`say`].
pub fn said(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes to stderr, for progress, and for a verb whose stdout holds data. If stderr cannot be written, the text is lost: that is no
/// failure of the verb.
pub fn note(text: &str) {
    let mut stderr = stderr();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes the reason of a failure to stderr as one line, with the name of the program before it. Returns the exit code.
pub fn fail(program: &str, failure: Failure) -> ExitCode {
    let (code, text) = match failure {
        Failure::Usage(text) => (2, text),
        Failure::Failed(text) => (1, text),
    };
    // The exit code says so too, if stderr cannot be written.
    let _ = writeln!(stderr(), "{program}: {}", text.replace('\n', " "));
    ExitCode::from(code)
}
