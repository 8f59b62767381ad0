//! The attacks. Every attack continues until its time is over; connections closed by the server are replaced.

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
    /// Declared lengths and counts without the data.
    DeclaredLengths,
    /// Values of 8 MiB, sent for the most part but never completed.
    HalfValues,
    /// Commands with very many very short arguments.
    LongArrays,
    /// Nested arrays.
    DeepArrays,
    /// A command sent one byte at a time.
    Trickle,
    /// Requests of large values without reading the replies.
    NeverReads,
    /// More connections than the server accepts.
    Connections,
    /// TLS handshakes that stop in the middle.
    HalfTls,
    /// Random bytes, and random words of the protocol.
    Random,
    /// gRPC messages that are too large, or incomplete.
    GrpcMessages,
    /// Thousands of concurrent calls.
    GrpcStreams,
    /// Calls that are cancelled at once, again and again.
    GrpcResets,
    /// Calls whose responses are not read.
    GrpcSlowReaders,
    /// Incomplete HTTP/2 connections, and floods of cheap frames.
    GrpcHalfOpen,
    /// Endless metadata.
    GrpcMetadata,
    /// Random bytes and frames.
    GrpcRandom,
    /// Watches that are not read.
    GrpcWatches,
    /// Writes with request ids, whose answers must be kept.
    GrpcRemembered,
    /// Transactions of very many short commands with long replies.
    LongTransactions,
    /// Names of several MiB for a connection and its library.
    LongNames,
    /// Patterns that are slow to match.
    Patterns,
    /// Values of zeros of every length, requested in all ways and not read.
    Zeros,
    /// Client-side caching of very many keys and of very many prefixes, and subscriptions to all keyspace events, without reading.
    Keepers,
    /// From another address: gRPC connections that check health once and then stay silent.
    GrpcHealth,
    /// From another address: TLS connections that never begin the handshake, on the port with the largest floor.
    SilentTls,
}

/// Number of sockets of one attack.
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

    /// Returns true if the attack comes from another address than honest clients, which must be admitted meanwhile.
    pub(crate) fn is_from_afar(self) -> bool {
        matches!(self, Attack::GrpcHealth | Attack::SilentTls)
    }

    /// Returns the memory that the store may take from its own budget meanwhile: constant writes build segments and read the
    /// summaries of expired records.
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
                // The record header of 16 KiB with a ClientHello, and a part of it.
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

/// Returns random bytes, or random words of the protocol.
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

/// A non-blocking socket.
pub(crate) struct Socket {
    stream: TcpStream,
    /// Number of bytes sent.
    pub(crate) sent: usize,
}

impl Socket {
    /// Reads available bytes, as far as they fit.
    pub(crate) fn take(&mut self, to: &mut [u8]) -> std::io::Result<()> {
        match self.stream.read(to) {
            Ok(0) => Err(ErrorKind::ConnectionAborted.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Address of attackers that must be distinguished from honest clients. All of 127.0.0.0/8 is this machine.
pub(crate) const AFAR: [u8; 4] = [127, 0, 0, 2];

/// Opens a non-blocking connection from an address.
pub(crate) fn connect_from(source: [u8; 4], to: SocketAddr) -> Option<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().ok()?;
    let connecting = async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        socket.connect(to).await?.into_std()
    };
    runtime.block_on(connecting).ok()
}

/// Keeps `connections` connections busy by calling `act` for each of them repeatedly. A connection whose `act` fails is replaced.
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

/// Returns true if the server closed the connection. Reads one byte, which is too little to relieve the server.
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

/// Sends as much of `bytes` as the socket accepts, continuing from the previous call if that sent only a part.
pub(crate) fn pour(socket: &mut Socket, bytes: &[u8]) -> std::io::Result<()> {
    let from = if bytes.len() > 1 { socket.sent % bytes.len() } else { 0 };
    match socket.stream.write(&bytes[from..]) {
        Ok(sent) => socket.sent += sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
