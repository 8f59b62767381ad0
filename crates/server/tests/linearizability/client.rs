//! A client that notes what it asked and what it was told.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::history::{Action, Operation, Reply, Step};

/// Keys 0 and 1 are together in transactions, 2 and 3 are, and 4 and 5 are alone.
pub(crate) const KEYS: usize = 6;

/// A clock that never tells the same twice, and values that are never written twice.
#[derive(Default)]
pub(crate) struct Numbers(AtomicU64);

impl Numbers {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

pub(crate) struct Client {
    number: usize,
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(number: usize, address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client { number, stream: BufReader::new(stream) })
    }

    /// Does this, and adds it to the history. `Err` if the connection broke, when `returned` is left for later.
    pub(crate) fn run(
        &mut self,
        steps: Vec<Step>,
        clock: &Numbers,
        history: &mut Vec<Operation>,
    ) -> io::Result<()> {
        let invoked = clock.next();
        let answered = self.exchange(&steps);
        if let Err(error) = &answered {
            assert_ne!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "no answer came for half a minute");
        }
        let (replies, gone) = match answered {
            Ok(replies) => (Some(replies), Ok(())),
            Err(error) => (None, Err(error)),
        };
        let returned = if replies.is_some() { clock.next() } else { u64::MAX };
        history.push(Operation { client: self.number, steps, replies, invoked, returned });
        gone
    }

    fn exchange(&mut self, steps: &[Step]) -> io::Result<Vec<Reply>> {
        let mut text = String::new();
        let alone = steps.len() == 1;
        let commands = steps.iter().map(|step| match step.action {
            Action::Get => format!("GET {}\r\n", step.key),
            Action::Set(value) => format!("SET {} {value}\r\n", step.key),
            Action::Del => format!("DEL {}\r\n", step.key),
            Action::Incr => format!("INCR {}\r\n", step.key),
        });
        if !alone {
            text.push_str("MULTI\r\n");
        }
        text.extend(commands);
        if !alone {
            text.push_str("EXEC\r\n");
        }
        self.stream.get_mut().write_all(text.as_bytes())?;
        if !alone {
            self.expect("+OK")?;
            for _ in steps {
                self.expect("+QUEUED")?;
            }
            self.expect(&format!("*{}", steps.len()))?;
        }
        steps.iter().map(|_| self.reply()).collect()
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn expect(&mut self, expected: &str) -> io::Result<()> {
        let line = self.line()?;
        if line == expected { Ok(()) } else { Err(unexpected(&line)) }
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let number = |text: &str| text.parse().map_err(|_| unexpected(&line));
        match line.split_at_checked(1) {
            Some(("+", "OK")) => Ok(Reply::Ok),
            Some((":", rest)) => Ok(Reply::Number(number(rest)?)),
            Some(("$", "-1")) => Ok(Reply::Value(None)),
            Some(("$", _)) => {
                let value = self.line()?;
                Ok(Reply::Value(Some(value.parse().map_err(|_| unexpected(&value))?)))
            }
            _ => Err(unexpected(&line)),
        }
    }
}

fn unexpected(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server answered {line}"))
}

/// What a client does next.
pub(crate) fn draw(random: &mut SmallRng, values: &Numbers) -> Vec<Step> {
    let first = random.random_range(0..KEYS);
    let count = if random.random_range(0..5) == 0 { random.random_range(2..5) } else { 1 };
    let mut steps = Vec::with_capacity(count);
    for at in 0..count {
        let tied = first < 4 && at > 0 && random.random();
        let action = match random.random_range(0..10) {
            0..4 => Action::Get,
            // Far apart, so that increments of one do not reach another.
            4..6 => Action::Set(values.next() as i64 * 1_000_000),
            6 => Action::Del,
            _ => Action::Incr,
        };
        steps.push(Step { key: if tied { first ^ 1 } else { first }, action });
    }
    steps
}
