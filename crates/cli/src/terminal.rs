//! Output of a verb: the result on stdout, the log and errors on stderr.

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use esker_server::LogFilter;
use tracing_subscriber::{EnvFilter, reload};

pub(crate) use esker_command::{Failure, note, said, say, say_bytes};

/// Writes the reason of a failure to stderr as one line. Returns the exit code.
pub(crate) fn fail(failure: Failure) -> ExitCode {
    esker_command::fail("esker", failure)
}

/// Parses a log filter such as `info` or `warn,esker_server=debug`; `None` if it is invalid. openraft tells every step at the
/// level `info`, so only its errors are logged unless the filter names it.
pub(crate) fn log_filter(text: &str) -> Option<EnvFilter> {
    let filter = EnvFilter::try_new(text).ok()?;
    match text.contains("openraft") {
        true => Some(filter),
        false => Some(filter.add_directive("openraft=error".parse().expect("it is a directive"))),
    }
}

/// The log filter, which can be changed at run time.
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
        // The lock covers both changes, so that the stored text always matches the filter in force.
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

/// Starts logging to stderr, as lines for people or as JSON.
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
