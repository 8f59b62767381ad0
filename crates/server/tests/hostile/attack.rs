//! What attackers do. Every attack goes on until its time is over; connections that the server ends are opened anew.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::net::TcpSocket;

use crate::server::{CONNECTIONS, Hosted};
use crate::{commands, grpc};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Lengths and counts that are declared and never sent.
    DeclaredLengths,
    /// Values of 8 MiB of which most arrives, and the rest does not.
    HalfValues,
    /// Commands of very many very short arguments.
    LongArrays,
    /// Arrays in arrays.
    DeepArrays,
    /// A command a byte at a time.
    Trickle,
    /// Large values asked for and not read.
    NeverReads,
    /// More connections than are taken.
    Connections,
    /// Handshakes that stop in the middle.
    HalfTls,
    /// Bytes that mean nothing, or nearly nothing.
    Random,
    /// Messages of gRPC that are too large, or that do not end.
    GrpcMessages,
    /// Thousands of calls at once.
    GrpcStreams,
    /// Calls taken back at once, again and again.
    GrpcResets,
    /// Answers asked for and not read.
    GrpcSlowReaders,
    /// HTTP/2 that stops halfway, and floods of frames that ask for little.
    GrpcHalfOpen,
    /// Metadata without end.
    GrpcMetadata,
    /// Bytes and frames that mean nothing.
    GrpcRandom,
    /// Watches that are not read.
    GrpcWatches,
    /// Writes whose answers are to be remembered.
    GrpcRemembered,
    /// Transactions of very many short commands with long answers.
    LongTransactions,
    /// Names of megabytes for a connection and its library.
    LongNames,
    /// Patterns that take long to match.
    Patterns,
    /// Values of nothing but zeros, of every length, asked for in all ways and not read.
    Zeros,
    /// Clients that keep very many keys, listen to very many prefixes and to all events of keys, and read nothing.
    Keepers,
    /// From another address: connections of gRPC that ask for the health and say no more.
    GrpcHealth,
    /// From another address: handshakes that never begin, on the port that takes most memory for them.
    SilentTls,
}

/// Sockets of one attack.
const SOCKETS: usize = 60;

impl Attack {
    pub(crate) const ALL: [Attack; 25] = [
        Attack::DeclaredLengths,
        Attack::HalfValues,
        Attack::LongArrays,
        Attack::DeepArrays,
        Attack::Trickle,
        Attack::NeverReads,
        Attack::Connections,
        Attack::HalfTls,
        Attack::Random,
        Attack::GrpcMessages,
        Attack::GrpcStreams,
        Attack::GrpcResets,
        Attack::GrpcSlowReaders,
        Attack::GrpcHalfOpen,
        Attack::GrpcMetadata,
        Attack::GrpcRandom,
        Attack::GrpcWatches,
        Attack::GrpcRemembered,
        Attack::LongTransactions,
        Attack::LongNames,
        Attack::Patterns,
        Attack::Zeros,
        Attack::Keepers,
        Attack::GrpcHealth,
        Attack::SilentTls,
    ];

    /// Whether it comes from another address than honest clients, who must be let in all the while.
    pub(crate) fn is_from_afar(self) -> bool {
        matches!(self, Attack::GrpcHealth | Attack::SilentTls)
    }

    /// Memory that the store may take meanwhile of its own budget: what is written to all the while builds segments and reads the
    /// summaries of what expires.
    pub(crate) fn store_bytes(self) -> u64 {
        if matches!(self, Attack::Keepers) { 48 << 20 } else { 0 }
    }

    pub(crate) fn run(self, server: &Hosted, until: Instant) {
        let value = [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8388608\r\n".as_slice(), &[b'x'; 7 << 20]].concat();
        match self {
            Attack::DeclaredLengths => {
                let starts: [&[u8]; 4] = [
                    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16777216\r\n",
                    b"*1048576\r\n$3\r\nGET\r\n",
                    b"*1000000000\r\n",
                    b"*2\r\n$3\r\nGET\r\n$999999999999\r\n",
                ];
                keep(server.resp, SOCKETS, until, |socket, n| pour(socket, starts[n % starts.len()]));
            }
            Attack::HalfValues => keep(server.resp, SOCKETS, until, |socket, _| pour(socket, &value)),
            Attack::LongArrays => {
                let many =
                    [b"*1048576\r\n$3\r\nDEL\r\n".as_slice(), &b"$1\r\na\r\n".repeat(1_000_000)].concat();
                let lines = b"a\n".repeat(500_000);
                keep(server.resp, SOCKETS / 3, until, |socket, n| {
                    pour(socket, if n % 2 == 0 { &many } else { &lines })
                });
            }
            Attack::DeepArrays => {
                let deep = b"*1\r\n".repeat(200_000);
                keep(server.resp, SOCKETS, until, |socket, _| pour(socket, &deep));
            }
            Attack::Trickle => {
                let command = format!("*2\r\n$3\r\nGET\r\n$1000\r\n{}", "x".repeat(1000));
                keep(server.resp, SOCKETS, until, |socket, _| {
                    let at = socket.sent % command.len();
                    pour(socket, &command.as_bytes()[at..=at])
                });
            }
            Attack::NeverReads => {
                let questions = b"GET large\r\nPING\r\n".repeat(100);
                keep(server.resp, SOCKETS, until, |socket, _| pour(socket, &questions));
            }
            Attack::Connections => keep(server.resp, CONNECTIONS * 2, until, |socket, _| {
                if socket.sent == 0 { pour(socket, b"PING\r\n") } else { Ok(()) }
            }),
            Attack::HalfTls => {
                // The head of a record of 16 KiB with a ClientHello, and a part of it.
                let hello = [b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03".as_slice(), &[7; 500]].concat();
                keep(server.tls, SOCKETS * 2, until, |socket, n| match (n % 3, socket.sent) {
                    (0, _) | (_, 1..) => Ok(()),
                    (1, 0) => pour(socket, &hello),
                    _ => pour(socket, b"PING\r\n"),
                });
            }
            Attack::Random => {
                let mut random = seeded();
                keep(server.resp, SOCKETS, until, |socket, _| pour(socket, &noise(&mut random)));
            }
            Attack::GrpcMessages => grpc::giant_messages(server.grpc, until),
            Attack::GrpcStreams => grpc::many_streams(server.grpc, until),
            Attack::GrpcResets => grpc::resets(server.grpc, until),
            Attack::GrpcSlowReaders => grpc::slow_readers(server.grpc, until),
            Attack::GrpcHalfOpen => grpc::half_open(server.grpc, until),
            Attack::GrpcMetadata => grpc::unbounded_metadata(server.grpc, until),
            Attack::GrpcRandom => grpc::random(server.grpc, until, &mut seeded()),
            Attack::GrpcWatches => grpc::watches(server.grpc, until),
            Attack::GrpcRemembered => grpc::remembered(server.grpc, until),
            Attack::LongTransactions => commands::long_transactions(server.resp, until),
            Attack::LongNames => commands::long_names(server.resp, until),
            Attack::Patterns => commands::patterns(server.resp, until),
            Attack::Zeros => commands::zeros(server.resp, until),
            Attack::Keepers => commands::keepers(server.resp, until),
            Attack::GrpcHealth => grpc::silent_health_checkers(server.grpc, until),
            Attack::SilentTls => keep_each(
                CONNECTIONS,
                until,
                || connect_from(AFAR, server.tls),
                |stream, _| if is_over(stream) { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) },
            ),
        }
    }
}

fn seeded() -> SmallRng {
    let seed = std::env::var("ESKER_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("replay with ESKER_SEED={seed}");
    SmallRng::seed_from_u64(seed)
}

/// Bytes at random, or words of the protocol at random.
pub(crate) fn noise(random: &mut SmallRng) -> Vec<u8> {
    let words: [&[u8]; 12] = [
        b"*",
        b"$",
        b"\r\n",
        b"-1",
        b"0",
        b"3",
        b"GET",
        b"SET",
        b"99999999999999999999",
        b"\0",
        b"\"",
        b"\xff\xfe",
    ];
    (0..random.random_range(1..500))
        .flat_map(|_| match random.random_bool(0.1) {
            true => vec![random.random()],
            false => words[random.random_range(0..words.len())].to_vec(),
        })
        .collect()
}

/// A socket that never blocks.
pub(crate) struct Socket {
    stream: TcpStream,
    /// Bytes that the socket took.
    pub(crate) sent: usize,
}

impl Socket {
    /// Takes what has come, as far as there is room for it.
    pub(crate) fn take(&mut self, to: &mut [u8]) -> std::io::Result<()> {
        match self.stream.read(to) {
            Ok(0) => Err(ErrorKind::ConnectionAborted.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Where attackers come from that are to be told from honest clients. All of 127.0.0.0/8 is this machine.
pub(crate) const AFAR: [u8; 4] = [127, 0, 0, 2];

/// A connection from an address, which never blocks.
pub(crate) fn connect_from(source: [u8; 4], to: SocketAddr) -> Option<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().ok()?;
    let connecting = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        socket.connect(to).await?.into_std()
    };
    runtime.block_on(connecting).ok()
}

/// Keeps so many connections busy. `act` is called again and again for each; if it fails, another takes its place.
pub(crate) fn keep_each<T>(
    connections: usize,
    until: Instant,
    open: impl Fn() -> Option<T>,
    mut act: impl FnMut(&mut T, usize) -> std::io::Result<()>,
) {
    let mut places: Vec<Option<T>> = (0..connections).map(|_| None).collect();
    while Instant::now() < until {
        for (n, place) in places.iter_mut().enumerate() {
            if Instant::now() >= until {
                break;
            }
            if place.is_none() {
                *place = open();
            }
            if place.as_mut().is_some_and(|connection| act(connection, n).is_err()) {
                *place = None;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn keep(
    address: SocketAddr,
    sockets: usize,
    until: Instant,
    mut act: impl FnMut(&mut Socket, usize) -> std::io::Result<()>,
) {
    keep_each(
        sockets,
        until,
        || connect(address),
        |socket, n| {
            act(socket, n)?;
            if is_ended(socket) { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
        },
    );
}

fn connect(address: SocketAddr) -> Option<Socket> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(Socket { stream, sent: 0 })
}

/// Whether the server closed. It looks at one byte and takes it, which is not enough to help a server along.
fn is_ended(socket: &mut Socket) -> bool {
    is_over(&mut socket.stream)
}

/// See [`is_ended`].
fn is_over(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Sends what the socket takes of `bytes`, from where the last call stopped if they did not fit.
pub(crate) fn pour(socket: &mut Socket, bytes: &[u8]) -> std::io::Result<()> {
    let from = if bytes.len() > 1 { socket.sent % bytes.len() } else { 0 };
    match socket.stream.write(&bytes[from..]) {
        Ok(sent) => socket.sent += sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
