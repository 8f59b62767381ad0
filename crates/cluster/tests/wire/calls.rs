//! Requests and answers between nodes that accept each other.

use std::time::Duration;

use esker_cluster::peers::{PeerRequest, PeerResponse, Peers};
use esker_cluster::sightings::Sighting;
use esker_cluster::wire::RefusalReason;
use futures_util::future::join_all;

use crate::support::{
    HELD, Node, PANICS, call, identity, nodes, part, patience, record, settings, started, until, until_fails,
};

fn is_refused_with(response: &PeerResponse, text: &str) -> bool {
    matches!(response, PeerResponse::Refused(why) if why == text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_parallel_get_their_own_answers() {
    let [one, two] = nodes(|_| settings()).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let calls = (0..1000).map(|node| one.wire.call(2, PeerRequest::Remove { node }));
    for (node, answer) in join_all(calls).await.into_iter().enumerate() {
        let answer = answer.expect("an answer");
        assert!(is_refused_with(&answer, &format!("{node} from Some(1)")), "{node}: {answer:?}");
    }
    assert_eq!(one.wire.usage().calls, 0);
    until("the memory of requests is free", || two.wire.usage().incoming_bytes == 0).await;
}

#[tokio::test]
async fn later_call_overtakes_one_that_is_held() {
    let [one, two] = nodes(|_| settings()).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let mut held = one.wire.call(2, PeerRequest::Transfer { group: HELD, node: 1 });
    let later = one.wire.call(2, PeerRequest::Transfer { group: 1, node: 1 }).await;
    assert!(matches!(later, Ok(PeerResponse::Done)), "{later:?}");
    assert!(futures_util::poll!(&mut held).is_pending());
    two.handler.gate.add_permits(1);
    assert!(matches!(held.await, Ok(PeerResponse::Done)));
}

#[tokio::test]
async fn peer_is_reached_again_after_its_restart() {
    let [one, two] = nodes(|_| settings()).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    assert!(one.wire.is_reachable(2) && one.wire.is_reachable(1) && !one.wire.is_reachable(3));
    let held = one.wire.call(2, PeerRequest::Transfer { group: HELD, node: 1 });
    let address = two.wire.advertised();
    two.wire.stop().await;
    let lost = held.await.expect_err("the node is gone");
    assert!(lost.contains("node 2 at ") && lost.contains("the connection was lost"), "{lost}");
    until_fails(&one.wire, 2, "refused").await;

    let mut again = settings();
    again.listen = address;
    let restarted = started(identity(2), 7, 61);
    let two = Node::start(again, restarted).await;
    two.wire.set_nodes(vec![one.record()]);
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let seen = Sighting { node: 2, starts: restarted.starts, instance: 7, position: 61 };
    assert_eq!(one.wire.sightings(), [seen]);
    assert_eq!(one.wire.refused(RefusalReason::Copy), 0);
}

#[tokio::test]
async fn dropped_call_frees_its_slot() {
    let [one, two] = nodes(|_| settings()).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let held = one.wire.call(2, PeerRequest::Transfer { group: HELD, node: 1 });
    assert_eq!(one.wire.usage().calls, 1);
    drop(held);
    assert_eq!(one.wire.usage().calls, 0);
    // Its late answer disturbs no other call.
    two.handler.gate.add_permits(1);
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_receiver_has_bounded_memory_and_delays_no_heartbeat() {
    const INCOMING: usize = 256 << 10;
    const OUTGOING: usize = 1 << 20;
    let [one, two] = nodes(|_| {
        let mut settings = settings();
        (settings.limits.incoming_bytes_max, settings.limits.outgoing_bytes_max) = (INCOMING, OUTGOING);
        settings.limits.request_timeout = Duration::from_secs(patience(60));
        settings
    })
    .await;
    let (mut accepted, mut refused) = (Vec::new(), String::new());
    // Buffers of sockets take some MiB before anything waits here.
    for number in 0..1000 {
        let mut waiting = one.wire.call(2, part(HELD, number, 100 << 10));
        if let std::task::Poll::Ready(answer) = futures_util::poll!(&mut waiting) {
            refused = answer.expect_err("all are held");
            break;
        }
        accepted.push(waiting);
        if number % 4 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    assert!(refused.contains("outgoing_bytes_max = 1048576"), "{refused}");
    until("the receiver's memory is used up", || two.wire.usage().incoming_bytes > INCOMING / 2).await;
    assert!(two.wire.usage().incoming_bytes <= INCOMING, "{:?}", two.wire.usage());
    assert!(one.wire.usage().outgoing_bytes <= OUTGOING, "{:?}", one.wire.usage());

    // While no part is taken, requests are answered, and the receiver is reachable.
    let answer = one.wire.call(2, PeerRequest::Remove { node: 0 }).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert!(one.wire.is_reachable(2));
    assert!(two.wire.usage().incoming_bytes <= INCOMING + (8 << 10), "{:?}", two.wire.usage());

    two.handler.gate.add_permits(accepted.len());
    for answer in join_all(accepted).await {
        assert!(matches!(answer, Ok(PeerResponse::Done)), "{answer:?}");
    }
    assert_eq!((one.wire.usage().outgoing_bytes, one.wire.usage().calls), (0, 0));
    until("the receiver's memory is free", || two.wire.usage().incoming_bytes == 0).await;
}

#[tokio::test]
async fn unanswered_call_fails_after_its_time() {
    let [one, _two] = nodes(|_| {
        let mut settings = settings();
        settings.limits.request_timeout = Duration::from_millis(300);
        settings
    })
    .await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let why = one.wire.call(2, PeerRequest::Transfer { group: HELD, node: 1 }).await.expect_err("it is held");
    assert!(why.contains("no answer within 300ms"), "{why}");
    assert_eq!(one.wire.usage().calls, 0);
}

#[tokio::test]
async fn calls_beyond_their_limits_are_refused() {
    let [one, _two] = nodes(|_| {
        let mut settings = settings();
        (settings.limits.frame_bytes_max, settings.limits.calls_max) = (1 << 20, 2);
        settings
    })
    .await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let long = one.wire.call(2, part(1, 0, 1 << 20)).await.expect_err("it is too long");
    assert!(long.contains("frame_bytes_max = 1048576"), "{long}");
    let held: Vec<_> =
        (0..2).map(|_| one.wire.call(2, PeerRequest::Transfer { group: HELD, node: 1 })).collect();
    let many = one.wire.call(2, PeerRequest::Remove { node: 0 }).await.expect_err("two are unanswered");
    assert!(many.contains("calls_max"), "{many}");
    drop(held);
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let unknown = one.wire.call(7, PeerRequest::Remove { node: 0 }).await.expect_err("it is not known");
    assert!(unknown.contains("node 7 is not known"), "{unknown}");
}

#[tokio::test]
async fn long_request_of_a_peer_with_a_higher_limit_is_refused() {
    let [one, two] = nodes(|number| {
        let mut settings = settings();
        settings.limits.frame_bytes_max = if number == 1 { 4 << 20 } else { 1 << 20 };
        settings
    })
    .await;
    let why = one.wire.call(2, part(1, 0, 2 << 20)).await.expect_err("it is too long for node 2");
    assert!(why.contains("connection was lost"), "{why}");
    until("the receiver refused it", || two.wire.refused(RefusalReason::Malformed) == 1).await;
    assert!(matches!(call(&one.wire, 2, part(1, 0, 1000)).await, PeerResponse::Done));
}

#[tokio::test]
async fn panic_of_a_handler_is_an_answer() {
    let [one, _two] = nodes(|_| settings()).await;
    let answer = call(&one.wire, 2, PeerRequest::Transfer { group: PANICS, node: 1 }).await;
    assert!(matches!(&answer, PeerResponse::Refused(why) if why.contains("panicked")), "{answer:?}");
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
}

#[tokio::test]
async fn node_joins_by_address_and_is_then_called_by_number() {
    let member = Node::start(settings(), identity(1)).await;
    let newcomer =
        Node::start(settings(), esker_cluster::wire::NodeIdentity { cluster: 0, ..identity(2) }).await;
    let address = member.wire.advertised();
    let refused = newcomer.wire.ask(&address, PeerRequest::Remove { node: 1 }).await;
    assert!(
        matches!(&refused, Ok(PeerResponse::Refused(why)) if why.contains("only ask to join")),
        "{refused:?}"
    );
    let other = record(identity(3), "127.0.0.1:1");
    let refused = newcomer.wire.ask(&address, PeerRequest::Join(other)).await;
    assert!(
        matches!(&refused, Ok(PeerResponse::Refused(why)) if why.contains("asks to join with")),
        "{refused:?}"
    );
    let joined = newcomer.wire.ask(&address, PeerRequest::Join(newcomer.record())).await;
    assert!(
        matches!(joined, Ok(PeerResponse::Joined { cluster: crate::support::CLUSTER, .. })),
        "{joined:?}"
    );

    newcomer.wire.set_identity(identity(2));
    newcomer.wire.set_nodes(vec![member.record()]);
    member.wire.set_nodes(vec![newcomer.record()]);
    call(&member.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let answer = call(&newcomer.wire, 1, PeerRequest::Remove { node: 0 }).await;
    assert!(is_refused_with(&answer, "0 from Some(2)"), "{answer:?}");
}

#[tokio::test]
async fn futures_can_be_polled_outside_of_the_runtime() {
    let [one, _two] = nodes(|_| settings()).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let wire = one.wire.clone();
    let thread = tokio::task::spawn_blocking(move || {
        std::thread::scope(|scope| {
            let polled =
                scope.spawn(|| esker_engine::device::block_on(wire.call(2, PeerRequest::Remove { node: 4 })));
            polled.join().expect("it does not panic")
        })
    });
    let answer = thread.await.expect("it does not panic").expect("an answer");
    assert!(is_refused_with(&answer, "4 from Some(1)"), "{answer:?}");
}

#[tokio::test]
async fn stop_ends_calls_and_frees_the_port() {
    let [one, two] = nodes(|_| settings()).await;
    call(&one.wire, 2, PeerRequest::Remove { node: 0 }).await;
    let held = one.wire.call(2, PeerRequest::Transfer { group: HELD, node: 1 });
    one.wire.stop().await;
    let why = held.await.expect_err("the node stopped");
    assert!(why.contains("closed"), "{why}");
    assert_eq!(one.wire.usage().connections, 0);
    let mut again = settings();
    again.listen = one.wire.advertised();
    Node::start(again, identity(1)).await;
    drop(two);
}
