//! Levels of the protocol: programs with different ranges, and the rise of the level that the cluster uses.

use esker_cluster::levels::Levels;
use esker_cluster::peers::{PeerRequest, PeerResponse, Peers};
use esker_cluster::wire::RefusalReason as Reason;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::raw::{self, frame};
use crate::support::{Node, call, identity, nodes, record, settings, until};

/// Sends a hello with a range of levels to node 1, as node 2.
async fn greeted(one: &Node, levels: [u8; 2]) -> TcpStream {
    let mut stream = TcpStream::connect(one.wire.local_address()).await.expect("it listens");
    let hello = raw::hello(levels, 0, [3; 32], &raw::side(identity(2), 77, "127.0.0.1:1"));
    stream.write_all(&frame(0, raw::HELLO, 0, &hello)).await.expect("it is sent");
    stream
}

/// Returns the level of the challenge that comes next.
async fn challenged(stream: &mut TcpStream) -> u8 {
    let (kind, _, payload) = raw::read(stream).await.expect("a challenge");
    assert_eq!(kind, raw::CHALLENGE, "{}", String::from_utf8_lossy(&payload));
    payload[0]
}

#[tokio::test]
async fn program_without_level_is_refused_and_disconnected() {
    let highest = Levels::supported().highest;
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1")]);
    // Before the rise the first level is used, whatever both have.
    for levels in [[1, 1], [1, highest], [0, 9]] {
        assert_eq!(challenged(&mut greeted(&one, levels).await).await, 1, "{levels:?}");
    }
    assert_eq!(challenged(&mut greeted(&one, [2, 9]).await).await, 2, "the only common one");
    let (mut open, ..) = raw::connect(&one.wire.advertised(), identity(2)).await;
    one.wire.set_level(2);
    raw::end(&mut open).await;
    until("the connection of level 1 is closed", || one.wire.usage().connections == 0).await;
    let mut earlier = greeted(&one, [1, 1]).await;
    let (kind, _, payload) = raw::read(&mut earlier).await.expect("a refusal");
    assert_eq!((kind, payload[0]), (raw::REFUSED, Reason::Version as u8));
    let text = String::from_utf8_lossy(&payload);
    for part in
        ["127.0.0.1:1 has level 1,", "accepts level 2 ", "its program has levels 1 to 2", "upgrade the older"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(one.wire.refused(Reason::Version) > 0);
    for levels in [[1, 2], [2, 2], [1, 9]] {
        assert_eq!(challenged(&mut greeted(&one, levels).await).await, 2, "{levels:?}");
    }
    // It never falls.
    one.wire.set_level(1);
    assert_eq!(raw::refused(&mut greeted(&one, [1, 1]).await).await, Reason::Version as u8);
}

#[tokio::test]
async fn nodes_answer_each_other_before_during_and_after_the_rise() {
    let [one, two] = nodes(|_| settings()).await;
    let refused = |answer| matches!(answer, PeerResponse::Refused(_));
    assert!(refused(call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await));
    // Node 2 has not heard of the rise: both have the level.
    one.wire.set_level(2);
    assert!(refused(call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await));
    assert!(refused(call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await));
    two.wire.set_level(2);
    assert!(refused(call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await));
    assert!(refused(call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await));
}
