//! Peers that do not know the secret, or only heard others prove it.

use esker_cluster::peers::{PeerRequest, Peers};
use esker_cluster::wire::{RefusalReason as Reason, Secret, WireSettings};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::raw::{self, frame};
use crate::support::{CLUSTER, Node, call, identity, nodes, record, settings, until, until_fails};

fn wrong() -> WireSettings {
    let mut settings = settings();
    settings.secret = Some(Secret::new("tr0ub4dor&3").expect("a secret"));
    settings
}

#[tokio::test]
async fn wrong_secret_is_reported_on_both_sides() {
    let [one, two] = nodes(|number| if number == 1 { settings() } else { wrong() }).await;
    for (caller, other, number) in [(&one, &two, 2), (&two, &one, 1)] {
        until_fails(&caller.wire, number, "does not know the secret").await;
        until("both count it", || {
            caller.wire.refused_by_others(Reason::Secret) > 0 && other.wire.refused(Reason::Secret) > 0
        })
        .await;
        assert!(!caller.wire.is_reachable(number));
    }
    assert_eq!((one.wire.usage().connections, two.wire.usage().connections), (0, 0));
}

#[tokio::test]
async fn replayed_hello_does_not_answer_a_new_challenge() {
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1")]);
    let (recorded, hello, proof) = raw::connect(&one.wire.advertised(), identity(2)).await;
    drop(recorded);
    let mut replayed = TcpStream::connect(one.wire.local_address()).await.expect("it listens");
    replayed.write_all(&[hello, proof].concat()).await.expect("it is sent");
    let (kind, ..) = raw::read(&mut replayed).await.expect("a challenge");
    assert_eq!(kind, raw::CHALLENGE);
    assert_eq!(raw::refused(&mut replayed).await, Reason::Secret as u8);
    assert_eq!(one.wire.refused(Reason::Secret), 1);
}

#[tokio::test]
async fn changed_identity_voids_the_proof() {
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1"), record(identity(3), "127.0.0.1:1")]);
    // In the middle, the number of the node is changed; the proof is of the original hello.
    let mut stream = TcpStream::connect(one.wire.local_address()).await.expect("it listens");
    let original = raw::hello([1, 1], 0, [3; 32], &raw::side(identity(2), 77, "127.0.0.1:1"));
    let changed = raw::hello([1, 1], 0, [3; 32], &raw::side(identity(3), 77, "127.0.0.1:1"));
    stream.write_all(&frame(0, raw::HELLO, 0, &changed)).await.expect("it is sent");
    let (_, _, challenge) = raw::read(&mut stream).await.expect("a challenge");
    let proof = raw::proof(crate::support::SECRET, &original, &challenge, None);
    stream.write_all(&frame(0, raw::PROOF, 0, &proof)).await.expect("it is sent");
    assert_eq!(raw::refused(&mut stream).await, Reason::Secret as u8);
}

/// Listens as node 2 for node 1, and answers its proof with `welcome` (hello, challenge, proof of node 1).
async fn impostor(welcome: impl Fn(&[u8], &[u8], &[u8]) -> Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), &address)]);
    let (mut stream, _) = listener.accept().await.expect("node 1 connects");
    let (_, _, hello) = raw::read(&mut stream).await.expect("a hello");
    // The nonce of node 1, as a challenge.
    let challenge = [&[1, 1], &hello[8..40]].concat();
    stream.write_all(&frame(0, raw::CHALLENGE, 0, &challenge)).await.expect("it is sent");
    let (_, _, proof) = raw::read(&mut stream).await.expect("a proof");
    let welcome = welcome(&hello, &challenge, &proof);
    stream.write_all(&frame(0, raw::WELCOME, 0, &welcome)).await.expect("it is sent");
    assert_eq!(raw::refused(&mut stream).await, Reason::Secret as u8);
    drop(listener);
    until_fails(&one.wire, 2, "").await;
    assert_eq!(one.wire.refused(Reason::Secret), 1);
    assert!(!one.wire.is_reachable(2));
}

#[tokio::test]
async fn reflected_proof_is_refused() {
    impostor(|_, _, proof| [&raw::side(identity(2), 78, "127.0.0.1:1"), proof].concat()).await;
    // The same with the identity that the proof covers.
    impostor(|hello, _, proof| [&hello[40..], proof].concat()).await;
}

#[tokio::test]
async fn listening_side_must_prove_the_secret() {
    let side = || raw::side(identity(2), 78, "127.0.0.1:1");
    impostor(|_, _, _| side()).await;
    impostor(|hello, challenge, _| {
        let proof = raw::proof("a guess", hello, challenge, Some(&side()));
        [side(), proof].concat()
    })
    .await;
}

/// The exchange that `impostor` fails with, with the right secret: it is the proof that is refused above.
#[tokio::test]
async fn proof_of_the_listening_side_is_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it has one").to_string();
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), &address)]);
    let (mut stream, _) = listener.accept().await.expect("node 1 connects");
    let (_, _, hello) = raw::read(&mut stream).await.expect("a hello");
    let challenge = [&[1, 1][..], &[9; 32]].concat();
    stream.write_all(&frame(0, raw::CHALLENGE, 0, &challenge)).await.expect("it is sent");
    let (_, _, proof) = raw::read(&mut stream).await.expect("a proof");
    assert_eq!(proof, raw::proof(crate::support::SECRET, &hello, &challenge, None));
    let side = raw::side(identity(2), 78, "127.0.0.1:1");
    let proof = raw::proof(crate::support::SECRET, &hello, &challenge, Some(&side));
    stream.write_all(&frame(0, raw::WELCOME, 0, &[side, proof].concat())).await.expect("it is sent");
    let asked = one.wire.call(2, PeerRequest::Remove { node: 3 });
    let (kind, id, payload) = raw::read(&mut stream).await.expect("a request");
    assert_eq!((kind, &payload[..]), (raw::REQUEST, &[5, 3, 0, 0, 0, 0, 0, 0, 0][..]));
    stream.write_all(&frame(1, raw::RESPONSE, id, &[0, 0, 0, 0, 0, 0, 0, 0, 2])).await.expect("it is sent");
    assert!(matches!(asked.await, Ok(esker_cluster::peers::PeerResponse::Done)));
}

#[tokio::test]
async fn hello_without_a_secret_is_refused() {
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1")]);
    let mut stream = TcpStream::connect(one.wire.local_address()).await.expect("it listens");
    let mut hello = raw::hello([1, 1], 0, [3; 32], &raw::side(identity(2), 77, "127.0.0.1:1"));
    hello[7] = 0;
    stream.write_all(&frame(0, raw::HELLO, 0, &hello)).await.expect("it is sent");
    assert_eq!(raw::refused(&mut stream).await, Reason::Secret as u8);
    assert_eq!(identity(2).cluster, CLUSTER);
    // The node itself is still accepted.
    let two = Node::start(settings(), identity(2)).await;
    two.wire.set_nodes(vec![one.record()]);
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
}
