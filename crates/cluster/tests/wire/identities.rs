//! Nodes that are refused because of their identity. Both sides learn the reason.

use esker_cluster::peers::{PeerRequest, Peers};
use esker_cluster::wire::{NodeIdentity, RefusalReason as Reason};

use crate::raw;
use crate::support::{CLUSTER, Node, call, identity, nodes, record, settings, started, until, until_fails};

/// Lets a node with an identity call node 1, which knows nodes 1 and 2. Returns the text of the caller; both count it.
async fn refusal(one: &Node, caller: NodeIdentity, reason: Reason, part: &str) -> String {
    let other = Node::start(settings(), caller).await;
    let before = one.wire.refused(reason);
    other.wire.set_nodes(vec![one.record()]);
    let why = until_fails(&other.wire, 1, part).await;
    assert!(one.wire.refused(reason) > before, "node 1 did not count it");
    assert!(other.wire.refused_by_others(reason) > 0, "{why}");
    other.wire.stop().await;
    why
}

/// Starts node 1, which knows node 2 at an address where none is.
async fn lone() -> Node {
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1")]);
    one
}

#[tokio::test]
async fn other_identities_are_refused() {
    let one = lone().await;
    refusal(&one, NodeIdentity { cluster: 7, ..identity(2) }, Reason::OtherCluster, "member of the cluster")
        .await;
    refusal(&one, identity(3), Reason::UnknownNode, "no member of the cluster").await;
    refusal(&one, NodeIdentity { store: 55, ..identity(2) }, Reason::OtherStore, "wiped or replaced").await;
    // A node knows that it is not its own peer, so the number of the other side is taken by hand.
    for twin in [NodeIdentity { store: 55, ..identity(1) }, NodeIdentity { starts: 9, ..identity(1) }] {
        assert_eq!(raw::refusal_of(&one.wire.advertised(), twin).await, Reason::Copy as u8, "{twin:?}");
    }
    assert_eq!(one.wire.usage().connections, 0);
}

#[tokio::test]
async fn rolled_back_disk_is_refused_also_after_a_restart_of_the_peer() {
    let one = lone().await;
    let two = Node::start(settings(), identity(2)).await;
    two.wire.set_nodes(vec![one.record()]);
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
    two.wire.stop().await;
    refusal(&one, NodeIdentity { starts: 4, ..identity(2) }, Reason::OldStarts, "rolled back").await;

    let seen = one.wire.sightings();
    let one = lone().await;
    one.wire.remember(&seen);
    refusal(&one, NodeIdentity { starts: 4, ..identity(2) }, Reason::OldStarts, "rolled back").await;
}

/// The peer has seen node 2 after its fifth start, and knows that 60 records of its log were durable.
#[tokio::test]
async fn disk_rolled_back_is_refused_even_by_restarted_peer() {
    let one = lone().await;
    let two = Node::start(settings(), identity(2)).await;
    two.wire.set_nodes(vec![one.record()]);
    one.wire.set_nodes(vec![two.record()]);
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    two.wire.stop().await;
    until("node 2 has gone", || one.wire.usage().connections == 0).await;

    let again = lone().await;
    again.wire.remember(&one.wire.sightings());
    one.wire.set_nodes(vec![record(identity(2), "127.0.0.1:1")]);
    // The fifth and the sixth start of a disk that was rolled back to its fourth.
    let fourth = NodeIdentity { starts: 4, history: Default::default(), ..identity(2) };
    let fifth = started(fourth, 8, 49);
    let sixth = started(fifth, 9, 70);
    let lost = started(identity(2), 7, 59);
    for peer in [&one, &again] {
        let why = refusal(peer, fifth, Reason::OldStarts, "another process").await;
        assert!(why.contains("remove the node, and let it join with an empty directory"), "{why}");
        refusal(peer, sixth, Reason::OldStarts, "rolled back").await;
        refusal(peer, lost, Reason::OldStarts, "found 59 records").await;
        let next = Node::start(settings(), started(identity(2), 17, 60)).await;
        next.wire.set_nodes(vec![peer.record()]);
        call(&next.wire, 1, PeerRequest::Remove { node: 0 }).await;
        next.wire.stop().await;
    }
}

#[tokio::test]
async fn copied_disk_is_refused_while_the_original_is_connected() {
    let one = lone().await;
    let two = Node::start(settings(), identity(2)).await;
    two.wire.set_nodes(vec![one.record()]);
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
    // The copy was started as often as the original, or once more at another address.
    refusal(&one, identity(2), Reason::Copy, "copied").await;
    refusal(&one, started(identity(2), 7, 60), Reason::Copy, "copied").await;
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
    // Without the original it is the node, moved to another address.
    two.wire.stop().await;
    until("the original has gone", || one.wire.usage().connections == 0).await;
    let moved = Node::start(settings(), started(identity(2), 7, 60)).await;
    moved.wire.set_nodes(vec![one.record()]);
    call(&moved.wire, 1, PeerRequest::Remove { node: 0 }).await;
}

#[tokio::test]
async fn node_does_not_connect_to_itself_or_to_another_than_expected() {
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![record(identity(2), &one.wire.advertised())]);
    until_fails(&one.wire, 2, "leads back to the node itself").await;
    let asked = one.wire.ask(&one.wire.local_address().to_string(), PeerRequest::Remove { node: 0 }).await;
    assert!(asked.is_err(), "{asked:?}");
    assert!(one.wire.refused(Reason::Oneself) > 0);

    let three = Node::start(settings(), identity(3)).await;
    three.wire.set_nodes(vec![one.record()]);
    one.wire
        .set_nodes(vec![record(identity(2), &three.wire.advertised()), record(identity(3), "127.0.0.1:1")]);
    until_fails(&one.wire, 2, "the address of node 2").await;
    assert!(one.wire.refused(Reason::OtherNode) > 0);
    until("the other side was told", || three.wire.refused_by_others(Reason::OtherNode) > 0).await;
}

#[tokio::test]
async fn removed_node_is_cut_off() {
    let [one, two, three] = nodes(|_| settings()).await;
    call(&three.wire, 1, PeerRequest::Remove { node: 0 }).await;
    call(&one.wire, 3, PeerRequest::Remove { node: 0 }).await;
    one.wire.set_nodes(vec![two.record()]);
    let why = until_fails(&three.wire, 1, "no member of the cluster").await;
    assert!(why.contains("node 3 at "), "{why}");
    let unknown =
        one.wire.call(3, PeerRequest::Remove { node: 0 }).await.expect_err("it is no node any more");
    assert!(unknown.contains("node 3 is not known"), "{unknown}");
    call(&two.wire, 1, PeerRequest::Remove { node: 0 }).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
}

#[tokio::test]
async fn node_that_is_no_member_yet_answers_nobody() {
    let newcomer = Node::start(settings(), NodeIdentity { cluster: 0, ..identity(2) }).await;
    let one = Node::start(settings(), identity(1)).await;
    one.wire.set_nodes(vec![newcomer.record()]);
    until_fails(&one.wire, 2, "not a member of a cluster yet").await;
    let third = Node::start(settings(), NodeIdentity { cluster: 0, ..identity(3) }).await;
    let asked = third.wire.ask(&newcomer.wire.advertised(), PeerRequest::Join(third.record())).await;
    assert!(asked.is_err_and(|why| why.contains("not a member of a cluster yet")));
    newcomer.wire.set_identity(NodeIdentity { cluster: CLUSTER, ..identity(2) });
    newcomer.wire.set_nodes(vec![one.record()]);
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
}
