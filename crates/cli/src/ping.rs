//! `esker ping`: asks a server for a sign of life.

use std::time::{Duration, Instant};

use crate::client::{Answer, Login};
use crate::terminal::{Failure, say};

/// Default time limit for accepting a connection and for every answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks a server for a sign of life, and prints how long the answer took. For health checks of containers and services.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker ping                                     the server on 127.0.0.1:6379
  esker ping 10.0.0.7:6379 --timeout 1s          with the password in ESKER_PASSWORD
  esker ping db1:6380 --tls --ca ca.pem --user health --password-file secret

Exit code 0 if the server serves commands; 1 if it does not answer or is opening its store; 2 if the call is wrong or the
login is refused.")]
pub(crate) struct Arguments {
    /// RESP address of the server: HOST:PORT, or a port of this machine.
    #[arg(default_value = "127.0.0.1:6379", value_name = "ADDR")]
    address: String,
    #[command(flatten)]
    login: Login,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut client = arguments.login.connect(&arguments.address, PATIENCE)?;
    let began = Instant::now();
    match client.ask(&[b"PING"])? {
        Answer::Text(text) if text == b"PONG" => {
            say(&format!("PONG in {:.3} ms\n", began.elapsed().as_secs_f64() * 1e3))
        }
        _ => Err(client.unexpected("PING").into()),
    }
}
