use super::*;

use std::net::Ipv4Addr;

use crate::base::address::Origin;
use crate::budget::Budget;

fn retries(bytes_max: usize) -> Arc<Retries> {
    let budget = Budget::new(64 << 20, 32 << 20, Duration::from_millis(10));
    Retries::new(bytes_max, budget.share(Origin::of(Ipv4Addr::LOCALHOST.into()), 0))
}

fn id(n: usize) -> Bytes {
    Bytes::from(format!("{n:08}"))
}

const ONE: Fingerprint = [1; 32];
const OTHER: Fingerprint = [2; 32];

/// Runs a new request to its end.
#[track_caller]
fn run(retries: &Arc<Retries>, user: &str, n: usize, answer: &Answer, now: Instant) {
    let Begun::First(ticket) = retries.begin(user, &id(n), ONE, false, now) else {
        panic!("{n} of {user} is known")
    };
    ticket.end(answer, now);
}

fn answer(bytes: usize) -> Answer {
    Ok(Bytes::from(vec![7; bytes]))
}

#[test]
fn an_answer_is_given_again_until_it_is_old() {
    let (retries, now) = (retries(1 << 20), Instant::now());
    run(&retries, "ann", 1, &answer(10), now);
    let again = |user, fingerprint, is_retry, at| retries.begin(user, &id(1), fingerprint, is_retry, at);
    assert!(matches!(again("ann", ONE, true, now), Begun::Answered(Ok(bytes)) if bytes.len() == 10));
    assert!(matches!(again("ann", OTHER, false, now), Begun::Another));
    let almost = now + KEEP - Duration::from_millis(1);
    assert!(matches!(again("ann", ONE, false, almost), Begun::Answered(_)));
    let Begun::First(ticket) = again("bob", ONE, false, now) else { panic!("ids are a user's own") };
    drop(ticket);
    let Begun::First(ticket) = again("ann", OTHER, true, now + KEEP) else { panic!("it is old") };
    ticket.end(&answer(0), now + KEEP);
    // The memory of expired answers is released, for all users.
    let Begun::First(_ticket) = again("eve", ONE, false, now + 3 * KEEP) else { panic!("she is new") };
    let state = retries.lock();
    assert_eq!((state.users.len(), state.bytes), (1, REQUEST_BYTES + 8));
}

#[test]
fn refusal_of_a_node_that_does_not_lead_is_not_kept() {
    let (retries, now) = (retries(1 << 20), Instant::now());
    let details = tonic_types::ErrorDetails::with_error_info(NOT_LEADER, "esker", HashMap::new());
    let refusal = Status::with_error_details(Code::FailedPrecondition, "ask the leader", details);
    run(&retries, "ann", 1, &Err(refusal), now);
    // The leader has changed, and the retry is executed here.
    let Begun::First(ticket) = retries.begin("ann", &id(1), ONE, true, now) else {
        panic!("the retry gets the old refusal")
    };
    ticket.end(&answer(5), now);
    assert!(matches!(retries.begin("ann", &id(1), ONE, true, now), Begun::Answered(Ok(_))));
}

#[test]
fn retries_keep_failures_that_depend_on_store_content() {
    let (retries, now) = (retries(1 << 20), Instant::now());
    for (n, code) in [(1, Code::FailedPrecondition), (2, Code::OutOfRange), (4, Code::Aborted)] {
        run(&retries, "ann", n, &Err(Status::new(code, "it is so")), now);
        let again = retries.begin("ann", &id(n), ONE, true, now);
        assert!(matches!(again, Begun::Answered(Err(status)) if status.code() == code));
    }
    for n in 0..1000 {
        // The request had no effect, and that is known: a retry is executed, but the id is still bound to its request.
        run(&retries, "ann", 3, &Err(Status::unavailable("again")), now);
        assert!(matches!(retries.begin("ann", &id(3), OTHER, false, now), Begun::Another), "{n}");
    }
    let Begun::First(_ticket) = retries.begin("ann", &id(3), ONE, true, now) else {
        panic!("it did nothing")
    };
    let state = retries.lock();
    assert_eq!((state.users["ann"].ended.len(), state.users["ann"].requests.len()), (3, 4));
}

#[test]
fn retry_during_first_call_waits_for_its_end() {
    let (retries, now) = (retries(1 << 20), Instant::now());
    let begin = || retries.begin("ann", &id(1), ONE, false, now);
    let Begun::First(ticket) = begin() else { panic!("it is the first") };
    let Begun::Running(running) = begin() else { panic!("it runs") };
    assert!(running.has_changed().is_ok(), "it has not ended");
    ticket.end(&answer(3), now);
    assert!(running.has_changed().is_err(), "it has ended");
    assert!(matches!(begin(), Begun::Answered(Ok(bytes)) if bytes.len() == 3));
}

#[test]
fn a_retry_of_what_may_have_been_forgotten_is_refused() {
    let retries = retries(1 << 20);
    let started = retries.started;
    let begin = |n, is_retry, at| retries.begin("ann", &id(n), ONE, is_retry, at);
    // After a start, requests from before are unknown.
    let soon = started + KEEP - Duration::from_millis(1);
    assert!(matches!(begin(1, true, soon), Begun::Forgotten));
    let Begun::First(ticket) = begin(1, true, started + KEEP) else { panic!("it would be known") };
    drop(ticket);
    // That request began and never ended, so its outcome is unknown.
    assert!(matches!(begin(1, true, Instant::now()), Begun::Forgotten));
    assert!(matches!(begin(1, false, Instant::now()), Begun::First(_)), "who does not say so tries anew");
}

#[test]
fn a_retry_of_what_another_node_may_have_done_is_refused() {
    let retries = retries(1 << 20);
    let leads_from = retries.started + 2 * KEEP;
    let begin = |at| retries.begin("ann", &id(1), ONE, true, at);
    assert!(matches!(begin(leads_from), Begun::First(_)), "this node has all answers");
    retries.others_may_have_answered(leads_from);
    assert!(matches!(begin(leads_from + KEEP / 2), Begun::Forgotten));
    assert!(matches!(begin(leads_from + KEEP), Begun::First(_)), "it would be too late");
}

#[test]
fn retries_have_bounded_memory_and_users_are_kept_apart() {
    let bytes_max = 100 * (REQUEST_BYTES + 8 + 1000);
    let retries = retries(bytes_max);
    // Requests from before the start are too old to matter now.
    let now = retries.started + KEEP;
    let others = ["ann", "cid", "dan", "eve", "flo", "gil", "hal", "ida"];
    others.iter().for_each(|user| run(&retries, user, 0, &answer(1000), now));
    for n in 0..500 {
        run(&retries, "bob", n, &answer(1000), now);
        assert!(retries.lock().bytes <= bytes_max);
    }
    for user in others {
        assert!(matches!(retries.begin(user, &id(0), ONE, true, now), Begun::Answered(_)));
    }
    assert!(matches!(retries.begin("bob", &id(499), ONE, true, now), Begun::Answered(_)));
    assert!(matches!(retries.begin("bob", &id(1), ONE, true, now), Begun::Forgotten));
    // All requests of Ann are known, so an unknown id was never executed.
    let Begun::First(ticket) = retries.begin("ann", &id(7), ONE, true, now) else {
        panic!("it was not done")
    };
    ticket.end(&answer(bytes_max), now);
    assert!(matches!(retries.begin("ann", &id(7), ONE, true, now), Begun::Forgotten), "it has no room");
    assert!(retries.lock().bytes <= bytes_max);
    // While all of them run, no answer can be dropped.
    let running: Vec<_> = (1000..2000).map(|n| retries.begin("bob", &id(n), ONE, false, now)).collect();
    assert!(running.iter().any(|begun| matches!(begun, Begun::NoRoom)));
    drop(running);
    assert_eq!(retries.lock().bytes, 0);
}
