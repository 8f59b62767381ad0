//! What a verb says: its result on stdout, its log on stderr, and why it did not do its work.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use esker_server::LogFilter;
use tracing_subscriber::{EnvFilter, reload};

/// Why a verb did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call or its surroundings are wrong; nothing was changed.
    Usage(String),
    /// Something failed.
    Failed(String),
}

/// Writes a verb's result to stdout. Who reads it may have seen enough and have closed it, which is no failure.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    say_bytes(text.as_bytes())
}

/// As [`say`], of what need not be text.
pub(crate) fn say_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = stdout();
    said(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// What became of something that was written to stdout.
pub(crate) fn said(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes to stderr, for a verb whose stdout holds data, and for progress. If stderr cannot be written, the text is lost: that is no
/// failure of the verb.
pub(crate) fn note(text: &str) {
    let mut stderr = stderr();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Says why, in one line, and returns the exit code that goes with it.
pub(crate) fn fail(failure: Failure) -> ExitCode {
    let (code, text) = match failure {
        Failure::Usage(text) => (2, text),
        Failure::Failed(text) => (1, text),
    };
    // Nobody may be there to read it either.
    let _ = writeln!(stderr(), "esker: {}", text.replace('\n', " "));
    ExitCode::from(code)
}

/// A filter such as `info` or `warn,esker_server=debug`; `None` if the text is none.
pub(crate) fn log_filter(text: &str) -> Option<EnvFilter> {
    EnvFilter::try_new(text).ok()
}

/// Changes what is logged.
pub(crate) struct Log {
    change: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
    filter: Mutex<String>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Log").field(&self.text()).finish()
    }
}

impl LogFilter for Log {
    fn text(&self) -> String {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check(&self, filter: &str) -> Result<(), String> {
        parsed(filter).map(drop)
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        let parsed = parsed(filter)?;
        // Whoever asks sees the filter that is in force, also while two change it.
        let mut current = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        (self.change)(parsed).map_err(|error| error.to_string())?;
        filter.clone_into(&mut current);
        Ok(())
    }
}

fn parsed(filter: &str) -> Result<EnvFilter, String> {
    log_filter(filter).ok_or_else(|| {
        format!("'{filter}' is no filter: give a level such as info, or warn,esker_server=debug")
    })
}

/// Lets the log go to stderr from here on, as lines for people or as JSON.
pub(crate) fn start_log(filter: &str, json: bool) -> Arc<Log> {
    let parsed = log_filter(filter).unwrap_or_else(|| EnvFilter::new("info"));
    let colours = stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(parsed).with_writer(stderr);
    let of = |change: Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>| {
        Arc::new(Log { change, filter: Mutex::new(filter.to_owned()) })
    };
    if json {
        let builder = builder.json().flatten_event(true).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.init();
        return of(Box::new(move |filter| handle.reload(filter)));
    }
    let builder = builder.with_ansi(colours).with_filter_reloading();
    let handle = builder.reload_handle();
    builder.init();
    of(Box::new(move |filter| handle.reload(filter)))
}
