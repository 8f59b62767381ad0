//! Attacks with short commands that cause long replies, long names and slow patterns.

use std::net::SocketAddr;
use std::time::Instant;

use crate::attack::{keep, pour};

/// Number of connections of one attack.
const SOCKETS: usize = 40;

/// Number of commands in one transaction.
const QUEUED: usize = 20_000;

/// MULTI, very many commands of a few bytes with long replies, and EXEC; some of the clients do not read.
pub(crate) fn long_transactions(at: SocketAddr, until: Instant) {
    let transaction =
        |command: &str, count| ["MULTI\r\n", &format!("{command}\r\n").repeat(count), "EXEC\r\n"].concat();
    let transactions = [
        transaction("COMMAND", QUEUED),
        transaction("COMMAND DOCS", 300),
        transaction("CLIENT LIST", QUEUED),
        transaction("INFO all", QUEUED),
        transaction("COMMAND LIST FILTERBY PATTERN *[a-z]*[a-z]x", QUEUED),
        transaction("CLIENT KILL ID 999999999", QUEUED),
    ];
    let infos = format!("COMMAND INFO {}\r\n", "get ".repeat(10_000));
    keep(at, SOCKETS, until, |socket, n| match n % 8 {
        7 => pour(socket, infos.as_bytes()),
        n => pour(socket, transactions[n % transactions.len()].as_bytes()),
    });
}

/// Names of 5 MiB: one for the connection, two for its library.
pub(crate) fn long_names(at: SocketAddr, until: Instant) {
    let name = "n".repeat(5 << 20);
    let bulk = |word: &str| format!("${}\r\n{word}\r\n", word.len());
    let given: String = [&["SETNAME"][..], &["SETINFO", "lib-name"], &["SETINFO", "lib-ver"]]
        .into_iter()
        .flat_map(|words| {
            let count = format!("*{}\r\n", words.len() + 2);
            let words = ["CLIENT"].iter().chain(words).map(|word| bulk(word));
            [count].into_iter().chain(words).chain([bulk(&name)]).collect::<Vec<_>>()
        })
        .collect();
    keep(
        at,
        SOCKETS,
        until,
        |socket, _| {
            if socket.sent < given.len() { pour(socket, given.as_bytes()) } else { Ok(()) }
        },
    );
}

/// Patterns of classes and stars, up to the maximum length and beyond, over names and over long keys.
pub(crate) fn patterns(at: SocketAddr, until: Instant) {
    let bulks = |words: &[&str]| {
        let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{bulks}", words.len())
    };
    let endless = format!("*[{}]", "b".repeat(1 << 20));
    let long = format!("*{}b", "a".repeat(4000));
    let classes = format!("*{}[b]", "[ab]".repeat(1000));
    let key = "a".repeat(60_000);
    let keys: String = (0..8).map(|n| bulks(&["SET", &format!("{key}{n}"), ""])).collect();
    let asked = [
        bulks(&["COMMAND", "LIST", "FILTERBY", "PATTERN", &endless]),
        bulks(&["SCAN", "0", "MATCH", &endless, "COUNT", "1000"]),
        keys + &bulks(&["SCAN", "0", "MATCH", &long, "COUNT", "1000"]),
        bulks(&["KEYS", &classes]),
        bulks(&["CONFIG", "GET", &classes]),
        bulks(&["COMMAND", "LIST", "FILTERBY", "PATTERN", &classes]),
    ];
    keep(at, SOCKETS, until, |socket, n| pour(socket, asked[n % asked.len()].as_bytes()));
}

/// Values of zeros, which take almost no storage when compressed: of every length up to 8 MiB, repeatedly put, requested whole
/// and in parts, and changed. Some clients read the replies.
pub(crate) fn zeros(at: SocketAddr, until: Instant) {
    let mut asked = Vec::new();
    for shift in 7..24 {
        let bytes = 1usize << shift;
        let zeros = "\0".repeat(bytes);
        let set = format!("*3\r\n$3\r\nSET\r\n$6\r\nzero{shift:02}\r\n${bytes}\r\n{zeros}\r\n");
        let gets = format!(
            "GET zero{shift:02}\r\nGETRANGE zero{shift:02} 10 20\r\nSTRLEN zero{shift:02}\r\n\
             APPEND zero{shift:02} x\r\nMGET zero07 zero{shift:02} zero10 zero{shift:02}\r\n"
        );
        asked.push(set + &gets.repeat(20));
    }
    keep(at, SOCKETS, until, |socket, n| {
        let mut taken = [0; 64 << 10];
        if n.is_multiple_of(2) {
            socket.take(&mut taken)?;
        }
        pour(socket, asked[n % asked.len()].as_bytes())
    });
}

/// CLIENT TRACKING of very many long keys and of thousands of prefixes, and subscribers to all keyspace events, beside writers
/// that change all keys. No client reads.
pub(crate) fn keepers(at: SocketAddr, until: Instant) {
    let many = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<String>();
    let long = "k".repeat(200);
    let reads = |n: usize| many(5_000, &|i| format!("GET {long}{n}-{i}\r\n"));
    let prefixes = |n: usize| {
        let of = |part: usize| many(400, &|i| format!(" PREFIX {}-{n}-{part}-{i}-", i % 10));
        many(10, &|part| format!("CLIENT TRACKING ON BCAST{}\r\n", of(part)))
    };
    let begun = "HELLO 3\r\nCLIENT TRACKING ON\r\n";
    let asked = [
        [begun, &reads(0)].concat(),
        [begun, &reads(1)].concat(),
        format!("HELLO 3\r\n{}", prefixes(2)),
        "HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n".to_owned(),
        "CONFIG SET notify-keyspace-events KEAm\r\nPSUBSCRIBE __key*\r\n".to_owned(),
        many(2_000, &|i| format!("SET {}-2-{}-{i}-x{long} 1\r\n", i % 10, i / 400)),
        many(2_000, &|i| format!("SET {long}{}-{i} 1 PX 100\r\n", i % 2)),
    ];
    keep(at, SOCKETS, until, |socket, n| {
        let bytes = asked[n % asked.len()].as_bytes();
        // Commands that begin a subscription or tracking are sent once.
        let is_over = matches!(n % asked.len(), 2..=4) && socket.sent >= bytes.len();
        if is_over { Ok(()) } else { pour(socket, bytes) }
    });
}
