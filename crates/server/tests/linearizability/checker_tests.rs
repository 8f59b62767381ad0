//! Histories known to be linearizable, histories known not to be, and random ones compared with a search of all orders.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::check;
use crate::history::{APART, Action, Operation, Reply, Step, Value};

const KEYS: usize = 2;

fn transaction(invoked: u64, returned: u64, steps: &[(usize, Action, Reply)]) -> Operation {
    Operation {
        client: 0,
        steps: steps.iter().map(|&(key, action, _)| Step { key, action }).collect(),
        replies: Some(steps.iter().map(|&(_, _, reply)| reply).collect()),
        invoked,
        returned,
    }
}

fn get(invoked: u64, returned: u64, value: Value) -> Operation {
    transaction(invoked, returned, &[(0, Action::Get, Reply::Value(value))])
}

fn set(invoked: u64, returned: u64, value: i64) -> Operation {
    transaction(invoked, returned, &[(0, Action::Set(value), Reply::Ok)])
}

fn incr(invoked: u64, returned: u64, number: i64) -> Operation {
    transaction(invoked, returned, &[(0, Action::Incr, Reply::Number(number))])
}

fn del(invoked: u64, returned: u64, number: i64) -> Operation {
    transaction(invoked, returned, &[(0, Action::Del, Reply::Number(number))])
}

fn killed(operation: Operation) -> Operation {
    Operation { replies: None, ..operation }
}

#[track_caller]
fn good(history: &[Operation]) {
    if let Err(why) = check(history, KEYS) {
        panic!("{why}");
    }
}

#[track_caller]
fn bad(history: &[Operation]) {
    assert!(check(history, KEYS).is_err(), "it is taken for linearizable");
}

#[test]
fn one_after_the_other() {
    good(&[get(0, 1, None), set(2, 3, 7), get(4, 5, Some(7)), incr(6, 7, 8), del(8, 9, 1), del(10, 11, 0)]);
    bad(&[set(2, 3, 7), get(4, 5, None)]);
    bad(&[set(0, 1, 7), set(2, 3, 8), get(4, 5, Some(7))]);
    bad(&[incr(0, 1, 1), incr(2, 3, 1)]);
    bad(&[del(0, 1, 1)]);
}

#[test]
fn checker_accepts_one_order_of_overlapping_operations() {
    good(&[set(0, 5, 1), get(1, 2, None), get(3, 4, Some(1))]);
    bad(&[set(0, 5, 1), get(1, 2, Some(1)), get(3, 4, None)]);
    good(&[incr(0, 3, 2), incr(1, 2, 1)]);
    bad(&[incr(0, 3, 1), incr(1, 2, 1)]);
    // Two readers who disagree about the order of two writes.
    bad(&[set(0, 9, 1), set(1, 8, 2), get(10, 11, Some(1)), get(12, 13, Some(2))]);
    // The order of the first two operations shows only in the last.
    good(&[set(0, 3, 1), set(1, 4, 2), get(5, 6, Some(1)), incr(7, 8, 2)]);
    bad(&[set(0, 1, 1), set(2, 4, 2), get(5, 6, Some(1)), incr(7, 8, 2)]);
}

#[test]
fn checker_lets_killed_operation_happen_before_kill_or_never() {
    let interrupted = || killed(set(2, 5, 7));
    good(&[set(0, 1, 1), interrupted(), get(6, 7, Some(1)), get(8, 9, Some(1))]);
    good(&[set(0, 1, 1), interrupted(), get(6, 7, Some(7)), get(8, 9, Some(7))]);
    // The interrupted write takes effect late, or was seen and is lost.
    bad(&[set(0, 1, 1), interrupted(), get(6, 7, Some(1)), get(8, 9, Some(7))]);
    bad(&[set(0, 1, 1), interrupted(), get(3, 4, Some(7)), get(6, 7, Some(1))]);
    // An acknowledged write is lost.
    bad(&[set(0, 1, 1), set(2, 3, 2), get(6, 7, Some(1))]);
    // Only one of two interrupted operations happened.
    good(&[killed(incr(0, 5, 0)), killed(incr(1, 5, 0)), get(6, 7, Some(1))]);
    bad(&[killed(incr(0, 5, 0)), killed(incr(1, 5, 0)), get(6, 7, Some(3))]);
}

#[test]
fn a_transaction_happens_at_one_moment() {
    let both = |invoked, returned| {
        transaction(invoked, returned, &[(0, Action::Set(1), Reply::Ok), (1, Action::Set(1), Reply::Ok)])
    };
    let seen = |invoked, returned, first, second| {
        let value = |value| Reply::Value(value);
        transaction(invoked, returned, &[(0, Action::Get, value(first)), (1, Action::Get, value(second))])
    };
    good(&[both(0, 5), seen(1, 2, None, None), seen(3, 4, Some(1), Some(1))]);
    bad(&[both(0, 5), seen(1, 2, Some(1), None)]);
    bad(&[both(0, 5), get(1, 2, Some(1)), seen(3, 4, None, None)]);
    good(&[killed(both(0, 5)), seen(6, 7, None, None)]);
    good(&[killed(both(0, 5)), seen(6, 7, Some(1), Some(1))]);
    bad(&[killed(both(0, 5)), seen(6, 7, None, Some(1))]);
    // Later steps see earlier ones.
    good(&[transaction(
        0,
        1,
        &[(0, Action::Incr, Reply::Number(1)), (0, Action::Get, Reply::Value(Some(1)))],
    )]);
    bad(&[transaction(0, 1, &[(0, Action::Incr, Reply::Number(1)), (0, Action::Get, Reply::Value(None))])]);
}

#[test]
fn checker_applies_conditions_to_the_current_value() {
    let one = |invoked, returned, action, reply| transaction(invoked, returned, &[(0, action, reply)]);
    let nothing = Reply::Value(None);
    good(&[
        one(0, 1, Action::SetNew(5), Reply::Ok),
        one(2, 3, Action::SetNew(6), nothing),
        get(4, 5, Some(5)),
    ]);
    bad(&[one(0, 1, Action::SetNew(5), Reply::Ok), one(2, 3, Action::SetNew(6), Reply::Ok)]);
    bad(&[one(0, 1, Action::SetKnown(5), Reply::Ok)]);
    good(&[set(0, 1, 5), one(2, 3, Action::Swap(6), Reply::Value(Some(5))), get(4, 5, Some(6))]);
    good(&[set(0, 1, 5), one(2, 3, Action::Take, Reply::Value(Some(5))), get(4, 5, None)]);
    // After WATCH, the value that was read is the value that is replaced.
    good(&[set(0, 1, 5), one(2, 5, Action::Exchange(Some(5), 6), Reply::Ok), set(3, 4, 7)]);
    bad(&[set(0, 1, 5), set(2, 3, 7), one(4, 5, Action::Exchange(Some(5), 6), Reply::Ok)]);
    good(&[
        set(0, 1, 5),
        set(2, 3, 7),
        killed(one(4, 5, Action::Exchange(Some(5), 6), Reply::Ok)),
        get(6, 7, Some(7)),
    ]);
}

#[test]
fn checker_lets_key_with_time_to_live_vanish_only_once() {
    let vanish = |invoked, returned| transaction(invoked, returned, &[(0, Action::Vanish(APART), Reply::Ok)]);
    good(&[set(0, 1, APART), vanish(2, 9), get(3, 4, Some(APART)), get(5, 6, None), get(10, 11, None)]);
    bad(&[set(0, 1, APART), vanish(2, 5), get(6, 7, Some(APART))]);
    bad(&[set(0, 1, APART), vanish(2, 9), get(3, 4, None), get(5, 6, Some(APART))]);
    // INCR keeps the time to live; a SET over the key removes it.
    good(&[set(0, 1, APART), incr(2, 3, APART + 1), vanish(4, 5), get(6, 7, None)]);
    good(&[set(0, 1, APART), set(2, 3, 2 * APART), vanish(4, 5), get(6, 7, Some(2 * APART))]);
}

/// Tries every order, and for each killed operation both that it happened and that it did not.
fn by_all_orders(history: &[Operation]) -> bool {
    fn go_on(history: &[Operation], done: u32, state: &[Value]) -> bool {
        let open = |n: &usize| done & (1 << n) == 0;
        let left = || (0..history.len()).filter(open);
        if left().next().is_none() {
            return true;
        }
        left().any(|n| {
            let one = &history[n];
            if left().any(|other| history[other].returned < one.invoked) {
                return false;
            }
            let mut next = state.to_vec();
            one.apply(&mut next) && go_on(history, done | 1 << n, &next)
                || one.replies.is_none() && go_on(history, done | 1 << n, state)
        })
    }
    go_on(history, 0, &[None; KEYS])
}

#[test]
fn agrees_with_trying_all_orders() {
    let seed = crate::seed();
    let mut random = SmallRng::seed_from_u64(seed);
    let mut counts = [0; 2];
    for _ in 0..4000 {
        let mut moments: Vec<u64> = (0..12).collect();
        let mut history = Vec::new();
        while !moments.is_empty() {
            let invoked = moments.remove(0);
            // Usually soon, because if all operations overlap, everything is possible.
            let returned = moments.remove(random.random_range(0..moments.len().min(4)));
            let steps: Vec<_> = (0..random.random_range(1..3))
                .map(|_| {
                    let key = random.random_range(0..KEYS);
                    let value = [None, Some(1), Some(2)][random.random_range(0..3)];
                    let new = random.random_range(1..3);
                    let answer = [Reply::Ok, Reply::Value(None)][random.random_range(0..2)];
                    match random.random_range(0..10) {
                        0 => (key, Action::Get, Reply::Value(value)),
                        1 => (key, Action::Set(new), Reply::Ok),
                        3 => (key, Action::SetNew(new), answer),
                        4 => (key, Action::SetKnown(new), answer),
                        5 => (key, Action::Swap(new), Reply::Value(value)),
                        6 => (key, Action::Take, Reply::Value(value)),
                        7 => (key, Action::Exchange(value, new), Reply::Ok),
                        8 => (key, Action::Vanish(new), Reply::Ok),
                        2 => (key, Action::Del, Reply::Number(random.random_range(0..2))),
                        _ => (key, Action::Incr, Reply::Number(random.random_range(1..3))),
                    }
                })
                .collect();
            let one = transaction(invoked, returned, &steps);
            history.push(if random.random_range(0..5) == 0 { killed(one) } else { one });
        }
        let expected = by_all_orders(&history);
        counts[usize::from(expected)] += 1;
        if check(&history, KEYS).is_ok() != expected {
            let shown: Vec<_> = history.iter().map(ToString::to_string).collect();
            panic!("all orders say {expected} (ESKER_SEED={seed})\n{}", shown.join("\n"));
        }
    }
    assert!(counts.iter().all(|&count| count > 100), "of both kinds there are {counts:?}");
}
