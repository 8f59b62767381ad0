//! A replication link: this process connects to a Redis or Valkey as a replica. A thread reads the snapshot and the commands that
//! follow it, and acknowledges the offset up to which the target has them.
//!
//! 1. `PSYNC ? -1` asks for a snapshot; `PSYNC id offset` for the commands from an offset on, which the source has for a while.
//! 2. Nothing is sent until the snapshot begins: a source that delays it (`repl-diskless-sync-delay`, 5 seconds by default) waits
//!    until its replica has been silent for that long. While the snapshot is read, a line end every second shows the source that
//!    its replica is alive; after it `REPLCONF ACK`.
//! 3. The reader stops while [`EVENT_BYTES_MAX`] are waiting for the target.

use std::cell::RefCell;
use std::io::{self, BufReader, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use esker_engine::Bytes;

use crate::client::{Server, Stream, write_command};
use crate::terminal::Failure;
use crate::transfer::aof::{Commands, Step};
use crate::transfer::input::Input;
use crate::transfer::rdb::Rdb;
use crate::transfer::record::{LeftOut, Record};

/// Limit of the bytes of events that wait for the target.
const EVENT_BYTES_MAX: usize = 32 << 20;

/// Overhead of an event beside its keys and values, in bytes.
const EVENT_BYTES: usize = 128;

/// Time limit of one read, after which a sign of life may be due.
const TURN: Duration = Duration::from_millis(200);

/// Interval between two signs of life. The source drops a replica after `repl-timeout`, 60 seconds by default.
const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Time without a byte after which the link counts as lost. A source sends a PING every `repl-ping-replica-period` seconds, 10 by
/// default, and line ends while it makes the snapshot.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Length of the mark behind a snapshot whose length is not known when it begins, in bytes.
const MARK_BYTES: u64 = 40;

/// A place in the stream of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The id of the stream.
    pub(super) id: String,
    /// The offset in bytes up to which the target has the changes.
    pub(super) offset: u64,
}

/// An event of the link.
pub(super) enum Event {
    /// A snapshot begins, of the state at this position.
    Snapshot(Position),
    /// A string of the snapshot, and the progress in bytes with the total if it is known.
    Record(Record, (u64, Option<u64>)),
    /// The snapshot was read to its end, and these records were left out.
    SnapshotEnd(LeftOut),
    /// The stream continues at the requested offset, with this id.
    Continued(String),
    /// A command that ends at an offset of the stream.
    Command { words: Vec<Bytes>, end: u64 },
    /// The link is lost, or the source refuses it.
    Ended(Failure),
}

impl Event {
    fn bytes(&self) -> usize {
        let payload = match self {
            Event::Record(record, _) => record.key.len() + record.value.len(),
            Event::Command { words, .. } => words.iter().map(|word| word.len() + size_of::<Bytes>()).sum(),
            _ => 0,
        };
        payload + EVENT_BYTES
    }
}

/// State that reader and receiver share. Each value stands for itself: no other memory is published with it.
#[derive(Default)]
struct Shared {
    /// Bytes of the events in the channel.
    waiting: AtomicUsize,
    /// The offset to acknowledge.
    applied: AtomicU64,
    /// True once the snapshot was read.
    is_online: AtomicBool,
}

/// The receiving end of a link.
pub(super) struct Link {
    events: Receiver<Event>,
    shared: Arc<Shared>,
}

impl Link {
    /// Connects as a replica: from a position on, or else from a snapshot.
    pub(super) fn start(source: Arc<Server>, from: Option<Position>) -> Link {
        let shared = Arc::new(Shared::default());
        let (send, events) = channel();
        let reader = Reader { send, shared: shared.clone() };
        spawn(move || {
            let Err(failure) = reader.run(&source, from);
            // The receiver may be gone.
            let _ = reader.send.send(Event::Ended(failure));
        });
        Link { events, shared }
    }

    /// Returns the next event, or `None` if none arrives within a time.
    pub(super) fn next(&self, patience: Duration) -> Option<Event> {
        let event = self.events.recv_timeout(patience).ok()?;
        self.shared.waiting.fetch_sub(event.bytes(), Ordering::Relaxed);
        Some(event)
    }

    /// Acknowledges all changes up to an offset.
    pub(super) fn acknowledge(&self, offset: u64) {
        self.shared.applied.store(offset, Ordering::Relaxed);
    }
}

/// The connection, and the time of the last sign of life.
struct Wire {
    stream: BufReader<Stream>,
    shared: Arc<Shared>,
    last_sign: Instant,
    was_online: bool,
    /// True until the snapshot or the stream begins: a sign of life would put off its snapshot.
    waits_for_snapshot: bool,
}

impl Wire {
    /// Sends a sign of life if one is due.
    fn keep_alive(&mut self) -> io::Result<()> {
        if self.waits_for_snapshot {
            return Ok(());
        }
        let is_online = self.shared.is_online.load(Ordering::Relaxed);
        // The source sends commands after the first acknowledgement.
        let is_due = self.last_sign.elapsed() >= SIGN_EVERY || is_online != self.was_online;
        if !is_due {
            return Ok(());
        }
        (self.last_sign, self.was_online) = (Instant::now(), is_online);
        let mut text = Vec::new();
        match is_online {
            true => {
                let offset = self.shared.applied.load(Ordering::Relaxed).to_string();
                write_command(&[b"REPLCONF", b"ACK", offset.as_bytes()], &mut text);
            }
            false => text.push(b'\n'),
        }
        let stream = self.stream.get_mut();
        stream.write_all(&text).and_then(|()| stream.flush())
    }
}

/// Reads from the wire without giving up while the source is only slow.
struct Bounded(Rc<RefCell<Wire>>);

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            let mut wire = self.0.borrow_mut();
            wire.keep_alive()?;
            match wire.stream.read(buffer) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if began.elapsed() >= SILENCE_MAX {
                        return Err(io::Error::other("the source sent nothing for 60 seconds"));
                    }
                }
                other => return other,
            }
        }
    }
}

/// The sending end.
struct Reader {
    send: Sender<Event>,
    shared: Arc<Shared>,
}

impl Reader {
    /// Reads until the link is lost.
    fn run(&self, source: &Server, from: Option<Position>) -> Result<std::convert::Infallible, Failure> {
        let mut client = source.connect()?;
        client.ask(&[b"PING"])?;
        client.ask(&[b"REPLCONF", b"listening-port", b"0"])?;
        client.ask(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2"])?;
        match &from {
            Some(Position { id, offset }) => {
                client.send(&[b"PSYNC", id.as_bytes(), (offset + 1).to_string().as_bytes()])?;
            }
            None => client.send(&[b"PSYNC", b"?", b"-1"])?,
        }
        let stream = client.into_stream()?;
        let name = format!("the replication stream of {}", source.address());
        let cannot = |error: io::Error| Failure::Failed(format!("cannot read {name}: {error}"));
        stream.get_ref().set_read_timeout(TURN).map_err(cannot)?;
        let (shared, last_sign) = (self.shared.clone(), Instant::now());
        let wire = Wire { stream, shared, last_sign, was_online: false, waits_for_snapshot: true };
        let wire = Rc::new(RefCell::new(wire));
        let mut input = Input::of(Box::new(Bounded(wire.clone())), name.clone(), None);
        let answer = line(&mut input)?;
        let words: Vec<&str> = answer.split(' ').collect();
        let (rest, offset) = match (words.as_slice(), from) {
            (["+FULLRESYNC", id, offset], _) => {
                let offset = offset.parse().map_err(|_| unexpected(&name, &answer))?;
                self.event(&wire, Event::Snapshot(Position { id: (*id).to_owned(), offset }))?;
                (self.snapshot(&wire, input)?, offset)
            }
            (["+CONTINUE", id @ ..], Some(from)) => {
                wire.borrow_mut().waits_for_snapshot = false;
                let id = id.first().map_or(from.id, |id| (*id).to_owned());
                self.event(&wire, Event::Continued(id))?;
                (input.into_reader(), from.offset)
            }
            _ => return Err(unexpected(&name, &answer)),
        };
        self.shared.applied.store(offset, Ordering::Relaxed);
        self.shared.is_online.store(true, Ordering::Relaxed);
        wire.borrow_mut().keep_alive().map_err(cannot)?;
        let mut commands = Commands::new(rest, name.clone(), offset);
        loop {
            match commands.next()? {
                Step::Command { words, .. } => {
                    self.event(&wire, Event::Command { words, end: commands.offset() })?;
                }
                Step::End | Step::Cut { .. } => {
                    return Err(Failure::Failed(format!("{name} ended: the source closed the connection")));
                }
            }
        }
    }

    /// Reads a snapshot. Returns the reader of the commands behind it.
    fn snapshot(
        &self,
        wire: &Rc<RefCell<Wire>>,
        mut input: Input,
    ) -> Result<BufReader<Box<dyn Read>>, Failure> {
        let name = input.name.clone();
        let head = line(&mut input)?;
        wire.borrow_mut().waits_for_snapshot = false;
        let length = head.strip_prefix('$').ok_or_else(|| unexpected(&name, &head))?;
        let mark = length.strip_prefix("EOF:").map(str::to_owned);
        input.total = if mark.is_none() { length.parse().ok() } else { None };
        let mut rdb = Rdb::new(input, None)?;
        let mut left_out = LeftOut::default();
        while let Some(record) = rdb.next(&mut left_out)? {
            self.event(wire, Event::Record(record, rdb.progress()))?;
        }
        let mut rest = rdb.into_rest();
        if let Some(mark) = mark {
            let mut found = Vec::new();
            let read = rest.by_ref().take(MARK_BYTES).read_to_end(&mut found);
            read.map_err(|error| Failure::Failed(format!("cannot read {name}: {error}")))?;
            if found != mark.as_bytes() {
                return Err(Failure::Failed(format!("{name}: the snapshot does not end with its mark")));
            }
        }
        self.event(wire, Event::SnapshotEnd(left_out))?;
        Ok(rest)
    }

    /// Sends an event, once the waiting ones leave room for it.
    fn event(&self, wire: &Rc<RefCell<Wire>>, event: Event) -> Result<(), Failure> {
        while self.shared.waiting.load(Ordering::Relaxed) > EVENT_BYTES_MAX {
            let alive = wire.borrow_mut().keep_alive();
            alive.map_err(|error| Failure::Failed(format!("the source closed the connection: {error}")))?;
            sleep(Duration::from_millis(2));
        }
        self.shared.waiting.fetch_add(event.bytes(), Ordering::Relaxed);
        let sent = self.send.send(event);
        sent.map_err(|_| Failure::Failed("the transfer has ended".to_owned()))
    }
}

/// Reads a line that is not empty. A source sends empty ones while it makes a snapshot.
fn line(input: &mut Input) -> Result<String, Failure> {
    loop {
        let line = input.line()?.ok_or_else(|| input.ends_early())?;
        if !line.is_empty() {
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

fn unexpected(name: &str, answer: &str) -> Failure {
    Failure::Failed(format!(
        "{name} begins with '{:.200}': the source does not replicate to this process; --by scan reads keys with SCAN instead",
        answer.escape_debug().to_string()
    ))
}
