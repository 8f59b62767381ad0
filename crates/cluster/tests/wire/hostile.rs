//! Bytes that no node sends, and peers that stop in the middle.

use std::time::Duration;

use esker_cluster::peers::{PeerRequest, Peers};
use esker_cluster::wire::{RefusalReason as Reason, WireSettings};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::raw::{self, frame};
use crate::support::{Node, SECRET, call, identity, record, settings, until, until_fails};

/// Starts node 1, which knows node 2 at an address where none is.
async fn lone(settings: WireSettings) -> Node {
    let one = Node::start(settings, identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1")]);
    one
}

/// Checks that node 1 still serves node 2.
async fn still_serves(one: &Node) {
    let two = Node::start(settings(), identity(2)).await;
    two.wire.set_nodes(vec![one.record()]);
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
    two.wire.stop().await;
}

async fn send(one: &Node, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(one.wire.local_address()).await.expect("it listens");
    stream.write_all(bytes).await.expect("it is sent");
    stream
}

#[tokio::test]
async fn bytes_of_other_protocols_are_refused() {
    let one = lone(settings()).await;
    let good = frame(0, raw::HELLO, 0, &raw::hello([1, 1], 0, [3; 32], &raw::side(identity(2), 7, "a:1")));
    let mut damaged = good.clone();
    damaged[60] ^= 1;
    let mut long = good.clone();
    long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut nameless = raw::hello([1, 1], 0, [3; 32], &raw::side(identity(2), 7, "a:1\n"));
    nameless[0] = b'e';
    let inputs: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n padding to a head",
        &[0xFF; 100],
        &damaged,
        &long,
        &frame(0, raw::HELLO, 0, &nameless),
        // A request before the hello.
        &frame(0, raw::REQUEST, 1, &[5, 3, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (count, input) in (1..).zip(inputs) {
        let mut stream = send(&one, input).await;
        assert_eq!(raw::refused(&mut stream).await, Reason::Malformed as u8, "{input:?}");
        raw::end(&mut stream).await;
        assert_eq!(one.wire.refused(Reason::Malformed), count);
    }
    let mut future = send(
        &one,
        &frame(0, raw::HELLO, 0, &raw::hello([7, 9], 0, [3; 32], &raw::side(identity(2), 7, "a:1"))),
    )
    .await;
    assert_eq!(raw::refused(&mut future).await, Reason::Version as u8);
    until("their places are free", || one.wire.usage().unauthenticated == 0).await;
    still_serves(&one).await;
}

#[tokio::test]
async fn lengths_are_checked_before_memory_is_allocated() {
    let one = lone(settings()).await;
    // A request of 4 GiB.
    let (mut stream, ..) = raw::connect(&one.wire.advertised(), identity(2)).await;
    let mut long = frame(1, raw::REQUEST, 1, &[]);
    long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
    stream.write_all(&long).await.expect("it is sent");
    assert_eq!(raw::refused(&mut stream).await, Reason::Malformed as u8);
    assert_eq!(one.wire.usage().incoming_bytes, 0);

    // Lengths and numbers inside of a request: 2^63 - 1 bytes, 2^32 - 1 entries, 2^63 changes. The connection stays.
    let (mut stream, ..) = raw::connect(&one.wire.advertised(), identity(2)).await;
    let huge = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F];
    let join = [&[3; 17], &huge[..]].concat();
    let entries = [&[1, 1, 1], &[0; 17][..], &[0, 0], &[0xFF; 4]].concat();
    let changes = [&[2, 1], &[0; 12][..], &[0, 0], &[0x80; 8], &[0x80, 1]].concat();
    for (id, request) in (1..).zip([join, entries, changes, vec![], vec![99], vec![1, 1, 99]]) {
        stream.write_all(&frame(1, raw::REQUEST, id, &request)).await.expect("it is sent");
        let (kind, of, payload) = raw::read(&mut stream).await.expect("an answer");
        assert_eq!((kind, of, payload[8]), (raw::RESPONSE, id, 5), "{request:?}");
        assert!(String::from_utf8_lossy(&payload).contains("damaged, or of a kind"), "{request:?}");
    }
    let frames = [
        frame(2, raw::REQUEST, 1, &[5, 0, 0, 0, 0, 0, 0, 0, 0]),
        frame(1, 200, 1, &[]),
        frame(1, raw::WELCOME, 1, &[]),
        frame(1, raw::PING, 0, &[1]),
    ];
    for bytes in frames {
        let (mut stream, ..) = raw::connect(&one.wire.advertised(), identity(2)).await;
        stream.write_all(&bytes).await.expect("it is sent");
        assert_eq!(raw::refused(&mut stream).await, Reason::Malformed as u8, "{bytes:?}");
    }
}

#[tokio::test]
async fn silent_peers_are_closed_and_their_number_is_bounded() {
    let mut few = settings();
    (few.limits.unauthenticated_max, few.limits.hello_timeout) = (4, Duration::from_millis(1500));
    let one = lone(few).await;
    let hello = frame(0, raw::HELLO, 0, &raw::hello([1, 1], 0, [3; 32], &raw::side(identity(2), 7, "a:1")));
    let mut silent = Vec::new();
    // Nothing, half a head, half a frame, and no proof.
    for bytes in [&[][..], &hello[..9], &hello[..40], &hello[..]] {
        silent.push(send(&one, bytes).await);
    }
    until("all places are taken", || one.wire.usage().unauthenticated == 4).await;
    raw::end(&mut send(&one, &[]).await).await;
    assert_eq!(one.wire.refused(Reason::TooMany), 1);
    for stream in &mut silent {
        raw::end(stream).await;
    }
    until("their places are free", || one.wire.usage().unauthenticated == 0).await;
    still_serves(&one).await;
}

#[tokio::test]
async fn peer_stopped_within_request_is_closed_and_its_memory_freed() {
    let mut short = settings();
    short.limits.silence_max = Duration::from_millis(1500);
    let one = lone(short).await;
    let (mut stream, ..) = raw::connect(&one.wire.advertised(), identity(2)).await;
    let request = frame(1, raw::REQUEST, 1, &vec![5; 1 << 20]);
    stream.write_all(&request[..1000]).await.expect("it is sent");
    until("memory is taken", || one.wire.usage().incoming_bytes > 1 << 20).await;
    raw::end(&mut stream).await;
    until("it is freed", || one.wire.usage().incoming_bytes == 0 && one.wire.usage().connections == 0).await;
    still_serves(&one).await;
}

#[tokio::test]
async fn half_open_peer_becomes_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let mut short = settings();
    short.limits.silence_max = Duration::from_millis(1500);
    let one = Node::start(short, identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), &address)]);
    let (mut stream, _) = listener.accept().await.expect("node 1 connects");
    let (_, _, hello) = raw::read(&mut stream).await.expect("a hello");
    let challenge = [&[1, 1][..], &[9; 32]].concat();
    stream.write_all(&frame(0, raw::CHALLENGE, 0, &challenge)).await.expect("it is sent");
    raw::read(&mut stream).await.expect("a proof");
    let side = raw::side(identity(2), 78, &address);
    let proof = raw::proof(SECRET, &hello, &challenge, Some(&side));
    stream.write_all(&frame(0, raw::WELCOME, 0, &[side, proof].concat())).await.expect("it is sent");
    until("it is connected", || one.wire.is_reachable(2)).await;
    let call = one.wire.call(2, PeerRequest::Remove { node: 3 });
    // From here on, node 2 is silent, and its connection stays open.
    let lost = call.await.expect_err("there is no answer");
    assert!(lost.contains("nothing arrived for 1.5s"), "{lost}");
    until("it is unreachable", || !one.wire.is_reachable(2)).await;
    until_fails(&one.wire, 2, "node 2 at ").await;
}

#[tokio::test]
async fn answers_that_nobody_asked_for_disturb_no_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), &address)]);
    let (mut stream, _) = listener.accept().await.expect("node 1 connects");
    let (_, _, hello) = raw::read(&mut stream).await.expect("a hello");
    let challenge = [&[1, 1][..], &[9; 32]].concat();
    stream.write_all(&frame(0, raw::CHALLENGE, 0, &challenge)).await.expect("it is sent");
    raw::read(&mut stream).await.expect("a proof");
    let side = raw::side(identity(2), 78, &address);
    let proof = raw::proof(SECRET, &hello, &challenge, Some(&side));
    stream.write_all(&frame(0, raw::WELCOME, 0, &[side, proof].concat())).await.expect("it is sent");
    let calls: Vec<_> = (0..2).map(|node| one.wire.call(2, PeerRequest::Remove { node })).collect();
    let (_, first, _) = raw::read(&mut stream).await.expect("a request");
    let (_, second, _) = raw::read(&mut stream).await.expect("a request");
    let answer = |kind| [0, 0, 0, 0, 0, 0, 0, 0, kind];
    let answers = [
        frame(1, raw::RESPONSE, 999, &answer(2)),
        frame(1, raw::RESPONSE, second, &answer(99)),
        frame(1, raw::RESPONSE, second, &answer(2)),
        frame(1, raw::RESPONSE, first, &answer(2)),
    ];
    stream.write_all(&answers.concat()).await.expect("it is sent");
    let [first, second] = <[_; 2]>::try_from(calls).ok().expect("two");
    assert!(matches!(first.await, Ok(esker_cluster::peers::PeerResponse::Done)));
    assert!(second.await.is_err_and(|why| why.contains("damaged, or of a kind")));
}
