//! `esker top`: shows a server's activity, live in a terminal, or once for scripts.
//!
//! - `question`: asks the server over RESP, which every server with clients speaks (`INFO status`).
//! - `screen`: the last sample and the history.
//! - `view`, `map`: drawing, for any terminal size.
//! - `text`: formatting of numbers.
//! - `cluster`: the nodes and problems of a cluster.
//!
//! One thread asks and one draws, so keys and resizes are handled while the server does not answer.

mod cluster;
mod map;
mod question;
mod screen;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod view;

use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::client::{Login, Trouble};
use crate::terminal::{Failure, say};
use crate::time;
use question::{Heard, Questioner};
use screen::Screen;

/// Default time limit for accepting a connection and for every answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest delay of the reaction to a key.
const TURN: Duration = Duration::from_millis(100);

/// Time within which a new server should have its first complete second of statistics.
const FIRST_SECOND: Duration = Duration::from_secs(5);

/// Shows the activity of a server: operations, latencies, hit rate, write amplification, segments, its cluster.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker top                                       the server on 127.0.0.1:6379
  esker top 10.0.0.7:6379 --user grafana          asks for nothing: the password is in ESKER_PASSWORD
  esker top db1:6380 --tls --ca ca.pem            over TLS, believing the authority in ca.pem
  esker top --json | jq .amplification.since_open one sample for scripts

Keys: q or Esc to leave. In the map of segments a sign is a segment or several, the fuller the more of it is live.
Exit code 0; 1 if the server went away with --once; 2 if the call is wrong or the login is refused.")]
pub(crate) struct Arguments {
    /// RESP address of the server: HOST:PORT, or a port of this machine.
    #[arg(default_value = "127.0.0.1:6379", value_name = "ADDR")]
    address: String,
    #[command(flatten)]
    login: Login,
    /// Interval between two samples.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time::parse)]
    every: Duration,
    /// Print one sample and end.
    #[arg(long)]
    once: bool,
    /// Print one sample as JSON and end.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let client = Questioner::new(arguments.login.server(&arguments.address, PATIENCE)?);
    if arguments.once || arguments.json {
        return once(client, arguments.json);
    }
    if !stdout().is_terminal() {
        return Err(Failure::Usage("stdout is no terminal: use --once or --json".to_owned()));
    }
    let every = arguments.every.max(TURN);
    let (tell, told) = sync_channel(1);
    spawn(move || ask(client, every, &tell));
    let mut terminal =
        ratatui::try_init().map_err(|error| Failure::Failed(format!("cannot use the terminal: {error}")))?;
    let outcome = live(&mut terminal, &told, Screen::new(&arguments.address));
    ratatui::restore();
    outcome
}

/// Prints one sample, which covers a whole second if the server has one.
fn once(mut client: Questioner, json: bool) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let heard = client.ask()?;
        if heard.status.window_ms == 0 && began.elapsed() < FIRST_SECOND {
            sleep(TURN);
            continue;
        }
        return if json { say(&(heard.json + "\n")) } else { say(&text::sample(&heard.status)) };
    }
}

/// Asks the server until the receiver is dropped.
fn ask(mut client: Questioner, every: Duration, tell: &SyncSender<Result<Heard, Trouble>>) {
    while tell.send(client.ask()).is_ok() {
        sleep(every);
    }
}

/// Draws until the user quits.
fn live(
    terminal: &mut DefaultTerminal,
    told: &Receiver<Result<Heard, Trouble>>,
    mut screen: Screen,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot use the terminal: {error}"));
    let mut is_new = true;
    loop {
        while let Ok(heard) = told.try_recv() {
            screen.hear(heard).map_err(Failure::Usage)?;
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| view::draw(frame, &screen)).map_err(failed)?;
        }
        is_new = false;
        if event::poll(TURN).map_err(failed)? {
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind == KeyEventKind::Press => {
                    let interrupt =
                        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        return Ok(());
                    }
                }
                _ => is_new = true,
            }
        }
    }
}
