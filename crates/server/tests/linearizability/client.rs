//! A client that records its operations and their replies.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::SmallRng;

use crate::grpc::{self, Grpc};
use crate::history::{APART, Action, Operation, Reply, Step};
use crate::server::Address;

/// Number of keys. Transactions use keys 0 and 1 together, and keys 2 and 3; keys 4 and 5 are used alone.
pub(crate) const KEYS: usize = 6;

/// Unique numbers: a clock whose times never repeat, and values that are never written twice.
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
    grpc: Grpc,
    /// A SET with a time to live, and the time by which its value has certainly expired.
    vanishing: Option<(Operation, Instant)>,
}

/// One call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A command, or several in MULTI and EXEC.
    Steps(Vec<Step>),
    /// MSET: one command with one reply.
    Together([Step; 2]),
    /// WATCH, GET, and SET in MULTI and EXEC.
    Watched { key: usize, new: i64 },
    /// GET, and a gRPC transaction that puts if the value is still the same.
    Compared { key: usize, new: i64 },
    /// A gRPC transaction, or an increment.
    Grpc(Vec<Step>),
    /// SET with a time to live of [`LIFE`].
    Mortal { key: usize, new: i64 },
}

/// Time to live of values that are to expire.
pub(crate) const LIFE: Duration = Duration::from_millis(30);
/// Time after which such a value has expired on every clock.
pub(crate) const GONE: Duration = Duration::from_millis(60);

impl Client {
    pub(crate) fn connect(number: usize, address: Address) -> io::Result<Client> {
        let stream = TcpStream::connect(address.resp)?;
        let grpc = Grpc::connect(address.grpc)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client { number, stream: BufReader::new(stream), grpc, vanishing: None })
    }

    /// Makes a call, and adds it to the history. Fails if the connection broke; `returned` is set later then.
    pub(crate) fn run(
        &mut self,
        call: Call,
        clock: &Numbers,
        history: &mut Vec<Operation>,
    ) -> io::Result<()> {
        if let Some((operation, _)) = self.vanishing.take_if(|(_, over)| Instant::now() > *over) {
            history.push(Operation { returned: clock.next(), ..operation });
        }
        match call {
            Call::Steps(steps) => {
                let text = words_of(&steps);
                self.note(steps, clock, history, |client, steps| client.exchange(&text, steps))
            }
            Call::Together(steps) => {
                let [one, other] = steps.map(|step| match step.action {
                    Action::Set(value) => format!("{} {value}", step.key),
                    other => unreachable!("{other:?} in MSET"),
                });
                let text = format!("MSET {one} {other}\r\n");
                self.note(steps.to_vec(), clock, history, |client, _| {
                    client.send(&text)?;
                    client.expect("+OK")?;
                    Ok(vec![Reply::Ok; 2])
                })
            }
            Call::Watched { key, new } => {
                self.send(&format!("WATCH {key}\r\n"))?;
                self.expect("+OK")?;
                let text = format!("MULTI\r\nSET {key} {new}\r\nEXEC\r\n");
                self.replace(key, new, clock, history, |client, _| {
                    client.send(&text)?;
                    client.expect("+OK")?;
                    client.expect("+QUEUED")?;
                    match client.line()?.as_str() {
                        "*-1" => Ok(vec![Reply::Aborted]),
                        "*1" => Ok(vec![client.reply()?]),
                        line => Err(unexpected(line)),
                    }
                })
            }
            Call::Compared { key, new } => {
                self.replace(key, new, clock, history, |client, steps| client.grpc.run(steps))
            }
            Call::Grpc(steps) => self.note(steps, clock, history, |client, steps| client.grpc.run(steps)),
            Call::Mortal { key, new } => self.mortal(key, new, clock, history),
        }
    }

    /// Sets a value with a time to live. The client sets no other such value before it has expired.
    fn mortal(
        &mut self,
        key: usize,
        new: i64,
        clock: &Numbers,
        history: &mut Vec<Operation>,
    ) -> io::Result<()> {
        if self.vanishing.is_some() {
            return self.run(Call::Steps(vec![Step { key, action: Action::Set(new) }]), clock, history);
        }
        let text = format!("SET {key} {new} PX {}\r\n", LIFE.as_millis());
        let steps = vec![Step { key, action: Action::Set(new) }];
        let (begun, at) = (clock.next(), Instant::now());
        let done = self.note(steps, clock, history, |client, steps| client.exchange(&text, steps));
        // If the reply arrived in time, the value expires later than now.
        let in_time = done.is_ok() && at.elapsed() < LIFE;
        let vanish = Operation {
            client: self.number,
            steps: vec![Step { key, action: Action::Vanish(new) }],
            replies: Some(vec![Reply::Ok]),
            invoked: if in_time { clock.next() } else { begun },
            returned: u64::MAX,
        };
        self.vanishing = Some((vanish, Instant::now() + GONE));
        done
    }

    /// Returns the operation of the value that will have expired once [`GONE`] has passed.
    pub(crate) fn vanishing(self) -> Option<Operation> {
        self.vanishing.map(|(operation, _)| operation)
    }

    /// Reads a key, and puts another value if it has not changed.
    fn replace(
        &mut self,
        key: usize,
        new: i64,
        clock: &Numbers,
        history: &mut Vec<Operation>,
        put: impl FnOnce(&mut Client, &[Step]) -> io::Result<Vec<Reply>>,
    ) -> io::Result<()> {
        self.run(Call::Steps(vec![Step { key, action: Action::Get }]), clock, history)?;
        let read = history.last().and_then(|operation| operation.replies.as_ref());
        let Some([Reply::Value(expected)]) = read.map(Vec::as_slice) else {
            unreachable!("GET was answered")
        };
        let steps = vec![Step { key, action: Action::Exchange(*expected, new) }];
        let done = self.note(steps, clock, history, put);
        // An aborted transaction had no effect.
        history.pop_if(|operation| operation.replies.as_deref() == Some(&[Reply::Aborted]));
        done
    }

    /// Runs an operation, and adds it to the history with its replies.
    fn note(
        &mut self,
        steps: Vec<Step>,
        clock: &Numbers,
        history: &mut Vec<Operation>,
        run: impl FnOnce(&mut Client, &[Step]) -> io::Result<Vec<Reply>>,
    ) -> io::Result<()> {
        let invoked = clock.next();
        let answered = run(self, &steps);
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

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_bytes())
    }

    /// Sends commands, and reads the replies of a command or of a transaction.
    fn exchange(&mut self, text: &str, steps: &[Step]) -> io::Result<Vec<Reply>> {
        self.send(text)?;
        if steps.len() > 1 {
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

/// Formats a command, or several in MULTI and EXEC.
fn words_of(steps: &[Step]) -> String {
    let word = |step: &Step| {
        let key = step.key;
        match step.action {
            Action::Get => format!("GET {key}\r\n"),
            Action::Set(value) => format!("SET {key} {value}\r\n"),
            Action::SetNew(value) => format!("SET {key} {value} NX\r\n"),
            Action::SetKnown(value) => format!("SET {key} {value} XX\r\n"),
            Action::Swap(value) => format!("GETSET {key} {value}\r\n"),
            Action::Take => format!("GETDEL {key}\r\n"),
            Action::Del => format!("DEL {key}\r\n"),
            Action::Incr => format!("INCR {key}\r\n"),
            Action::Outdate => format!("PEXPIREAT {key} 1\r\n"),
            Action::Exchange(..) | Action::Vanish(_) => unreachable!("{step:?} is no command"),
        }
    };
    let words: String = steps.iter().map(word).collect();
    if steps.len() > 1 { format!("MULTI\r\n{words}EXEC\r\n") } else { words }
}

/// Draws the next call of a client.
pub(crate) fn draw(random: &mut SmallRng, values: &Numbers) -> Call {
    let new = || (values.next() as i64 + 1) * APART;
    let key = random.random_range(0..KEYS);
    match random.random_range(0..50) {
        0..3 => return Call::Watched { key, new: new() },
        6..8 => return Call::Compared { key, new: new() },
        8..16 => return Call::Grpc(grpc::draw(random, key, new)),
        // Rarely: each is open for as long as its value lives.
        3 => return Call::Mortal { key, new: new() },
        4..6 if key < 4 => {
            let set = |key, value| Step { key, action: Action::Set(value) };
            return Call::Together([set(key, new()), set(key ^ 1, new())]);
        }
        _ => {}
    }
    let count = if random.random_range(0..5) == 0 { random.random_range(2..5) } else { 1 };
    let mut steps = Vec::with_capacity(count);
    for at in 0..count {
        let tied = key < 4 && at > 0 && random.random();
        let action = match random.random_range(0..16) {
            0..5 => Action::Get,
            5..7 => Action::Set(new()),
            7 => Action::SetNew(new()),
            8 => Action::SetKnown(new()),
            9 => Action::Swap(new()),
            10 => Action::Take,
            11 => Action::Del,
            12 => Action::Outdate,
            _ => Action::Incr,
        };
        steps.push(Step { key: if tied { key ^ 1 } else { key }, action });
    }
    Call::Steps(steps)
}
