//! Compares screens as text, in terminals of several sizes, also after the connection is lost.

use std::io::{Read, Write};
use std::net::TcpListener;

use esker_server::status::{Cell, State, Status};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::PATIENCE;
use super::question::{Heard, Questioner};
use super::screen::Screen;
use super::{map, text, view};
use crate::client::{Login, Trouble};

/// A possible status of a server with two tiers.
const STATUS: &str = include_str!("status.json");
const SCREENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/tests/screens.txt");

/// A possible cluster: the server is the first of three nodes, and the third is lost.
const CLUSTER: &str = r#"{
 "me": "a1",
 "nodes": [
  {"id": "a1", "resp": "10.0.0.1:6379", "is_reachable": true, "leads": 6},
  {"id": "b2", "resp": "10.0.0.2:6379", "is_reachable": true, "leads": 5},
  {"id": "c3", "resp": "10.0.0.3:6379", "is_reachable": false, "leads": 0}
 ],
 "groups": [
  {"group": 1, "leader": "a1", "voters": 2, "lag": 12345},
  {"group": 2, "leader": null, "voters": 3, "lag": 7},
  {"group": 15, "leader": "b2", "voters": 3, "lag": 0}
 ],
 "problems": ["no leader with a majority is reachable: group 2", "fewer than 3 copies: group 1 (2)"]
}"#;

fn status() -> Status {
    serde_json::from_str(STATUS).unwrap()
}

fn screen() -> Screen {
    let mut screen = Screen::new("127.0.0.1:6379");
    for second in 0..40 {
        let mut status = status();
        status.rates.gets = f64::from(second % 8) * 1000.0;
        screen.hear(Ok(Heard { status, json: String::new() })).unwrap();
    }
    screen
}

/// Returns the screen in a terminal of a given size.
fn drawn(screen: &Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        let line: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        format!("|{}\n", line.trim_end())
    };
    (0..height).map(line).collect()
}

#[test]
fn screens_match_golden_file() {
    let mut away = screen();
    away.hear(Err(Trouble::Away("cannot reach 127.0.0.1:6379: Connection refused".to_owned()))).unwrap();
    let mut loading = Screen::new("127.0.0.1:6379");
    loading.hear(Err(Trouble::Loading("Esker is loading the dataset in memory".to_owned()))).unwrap();
    let mut member = screen();
    member.status.as_mut().unwrap().cluster = serde_json::from_str(CLUSTER).unwrap();
    let mut all = String::new();
    for (what, screen, width, height) in [
        ("wide", &screen(), 120, 30),
        ("usual", &screen(), 80, 36),
        ("narrow", &screen(), 40, 24),
        ("away", &away, 80, 12),
        ("loading", &loading, 80, 3),
        ("node of a cluster", &member, 80, 12),
        ("node of a cluster, narrow", &member, 40, 12),
        ("node of a cluster, tiny", &member, 20, 9),
    ] {
        all += &format!("{what}, {width} x {height}\n{}\n", drawn(screen, width, height));
    }
    if std::env::var_os("ESKER_BLESS").is_some() {
        std::fs::write(SCREENS, &all).unwrap();
    }
    let expected = std::fs::read_to_string(SCREENS).unwrap();
    assert!(all == expected, "ESKER_BLESS=1 writes {SCREENS} again; this is drawn now:\n{all}");
}

#[test]
fn sample_has_the_cluster_of_a_member_only() {
    let mut of = status();
    assert!(!text::sample(&of).contains("cluster"), "the server is alone");
    of.cluster = serde_json::from_str(CLUSTER).unwrap();
    let sample = text::sample(&of);
    let (_, cluster) = sample.split_once("\ncluster ").unwrap();
    let expected = "                     3 nodes, 1 unreachable, largest lag 12.3 k entries\n  \
        10.0.0.1:6379              leads 6, this node\n  \
        10.0.0.2:6379              leads 5\n  \
        10.0.0.3:6379              leads 0, unreachable\n  \
        problem                    no leader with a majority is reachable: group 2\n  \
        problem                    fewer than 3 copies: group 1 (2)\n";
    assert_eq!(cluster, expected);
}

#[test]
fn cluster_of_many_nodes_leaves_room_for_the_rest() {
    let mut screen = screen();
    let node = r#"{"id": "b2", "resp": "10.0.0.2:6379", "is_reachable": true, "leads": 0}"#;
    let cluster = CLUSTER.replace("\"nodes\": [", &format!("\"nodes\": [{}", format!("{node},").repeat(29)));
    screen.status.as_mut().unwrap().cluster = serde_json::from_str(&cluster).unwrap();
    let drawn = drawn(&screen, 80, 24);
    assert!(drawn.lines().nth(9).unwrap().starts_with("|gets/s"), "{drawn}");
    assert!(drawn.contains("no leader with") && drawn.contains("32 nodes"), "{drawn}");
}

#[test]
fn every_terminal_size_is_drawn() {
    let mut screen = screen();
    screen.status.as_mut().unwrap().cluster = serde_json::from_str(CLUSTER).unwrap();
    for (width, height) in (0..30).flat_map(|n| [(n, 5), (100, n), (n, n), (3 * n, 1)]) {
        if width > 0 && height > 0 {
            drawn(&screen, width, height);
        }
    }
}

#[test]
fn top_reconnects_unless_first_connection_fails() {
    let mut screen = Screen::new("x");
    let refused = || Err(Trouble::Refused("WRONGPASS".to_owned()));
    assert_eq!(screen.hear(refused()), Err("WRONGPASS".to_owned()));
    screen.hear(Ok(Heard { status: status(), json: String::new() })).unwrap();
    assert_eq!(screen.trouble, None);
    for trouble in [Err(Trouble::Away("it is gone".to_owned())), refused()] {
        screen.hear(trouble).unwrap();
        assert!(screen.trouble.as_ref().unwrap().starts_with("reconnecting: "), "{:?}", screen.trouble);
    }
    let mut recovering = Status::default();
    (recovering.state, recovering.reason) = (State::Recovering, "42 % is read".to_owned());
    screen.hear(Ok(Heard { status: recovering, json: String::new() })).unwrap();
    assert_eq!(screen.trouble.as_deref(), Some("42 % is read"));
    assert!(screen.status.as_ref().is_some_and(|status| status.keys > 0), "the last picture stays");
    screen.hear(Ok(Heard { status: status(), json: String::new() })).unwrap();
    assert_eq!(screen.trouble, None);
}

#[test]
fn numbers_have_three_digits() {
    for (number, expected) in
        [(0.0, "0"), (7.0, "7"), (7.25, "7.25"), (999.0, "999"), (1000.0, "1.00 k"), (123_456.0, "123 k")]
    {
        assert_eq!(text::count(number), expected);
    }
    for (number, expected) in [(0.0, "0 B"), (1023.0, "1.00 KiB"), (16_777_216.0, "16.0 MiB")] {
        assert_eq!(text::bytes(number), expected);
    }
    assert_eq!([0, 59, 3661, 90_000].map(text::duration), ["0 s", "59 s", "1 h 1 min", "1 d 1 h"]);
}

#[test]
fn map_shows_rare_kinds_and_live_share() {
    let mut of = Status::default().tiers.pop().unwrap_or_default().map;
    of.cells = "AB8fobA=".to_owned();
    assert_eq!(of.decoded()[1], Cell { kind: 1, live: 15 });
    let shown = |columns, rows| {
        let lines = map::lines(&of, columns, rows);
        lines.iter().map(|line| line.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(shown(8, 1), ["·██░░"]);
    assert_eq!(shown(2, 1), ["▓░"]);
    assert!(shown(0, 3).is_empty() && map::rows(&of, 2, 9) == 3);
}

/// Starts a server that sends each connection one of these answers and closes it.
fn answering(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

#[test]
fn query_after_failure_uses_new_connection() {
    let status = STATUS.replace('\n', "");
    let good = bulk(&format!("# Status\r\nstatus:{status}\r\n"));
    let newer = bulk(&format!("status:{}\r\n", status.replacen("\"format\": 1", "\"format\": 9", 1)));
    let answers = [
        &good,
        "",
        "-LOADING Esker is loading\r\n",
        "-ERR max number of clients reached\r\n",
        "-NOAUTH Authentication required.\r\n",
        &newer,
        &bulk(""),
        &bulk("status:{\r\n"),
        "$99999999999\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "$10\r\nstat",
        &good,
    ];
    let address = answering(answers.map(str::to_owned).to_vec());
    let Ok(server) = Login::default().server(&address, PATIENCE) else { panic!("{address} is one") };
    let mut client = Questioner::new(server);
    assert_eq!(client.ask().map(|heard| heard.status.keys).ok(), Some(1_234_567));
    let mut said = Vec::new();
    for _ in 0..11 {
        // The client keeps the first connection until the next question.
        said.push(match client.ask() {
            Ok(heard) => format!("heard {}", heard.status.keys),
            Err(Trouble::Away(why)) => format!("away {why}"),
            Err(Trouble::Loading(why)) => format!("loading {why}"),
            Err(Trouble::Refused(why)) => format!("refused {why}"),
            Err(Trouble::Failed(why)) => format!("failed {why}"),
        });
    }
    let expected = [
        "away",
        "away the connection to ADDR is lost: it closed the connection",
        "loading Esker is loading",
        "away ADDR answers: ERR max number",
        "refused ADDR answers: NOAUTH Authentication required. Give a password",
        "refused ADDR reports its status",
        "refused ADDR reports no status",
        "refused ADDR: its status",
        "refused ADDR does not speak RESP: $99999999999",
        "refused ADDR does not speak RESP: HTTP",
        "away the connection to ADDR is lost: it closed the connection",
    ];
    for (said, expected) in said.iter().zip(expected) {
        let expected = expected.replace("ADDR", &address);
        assert!(said.starts_with(&expected), "{expected}: {said}");
    }
    assert!(
        said[5].contains("format 9")
            && said[6].contains("not an Esker")
            && said[7].contains("not understood")
    );
    assert_eq!(client.ask().map(|heard| heard.status.keys).ok(), Some(1_234_567));
}
