//! Transactions.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker_server::{Config, Right};
use tonic::Code;

use crate::client::pb::compare::Target;
use crate::client::pb::txn_operation::{Delete, Get, Operation, Put};
use crate::client::pb::txn_result::Result as Answer;
use crate::client::pb::{self, expiry};
use crate::client::{Client, Running, from, get, key, now_ms, plain, put, refused, users};

fn compare(at: &str, target: Target, relation: pb::Relation) -> pb::Compare {
    pb::Compare { key: key(at), target: Some(target), relation: relation.into() }
}

fn has(at: &str, target: Target) -> pb::Compare {
    compare(at, target, pb::Relation::Unspecified)
}

fn operation(operation: Operation) -> pb::TxnOperation {
    pb::TxnOperation { operation: Some(operation) }
}

fn get_of(at: &str) -> pb::TxnOperation {
    operation(Operation::Get(Get { key: key(at), without_value: false }))
}

fn put_of(at: &str, value: impl Into<Bytes>) -> pb::TxnOperation {
    operation(Operation::Put(Put { key: key(at), value: value.into(), ..Default::default() }))
}

fn delete_of(at: &str) -> pb::TxnOperation {
    operation(Operation::Delete(Delete { key: key(at), return_previous: true }))
}

fn txn(
    compares: Vec<pb::Compare>,
    success: Vec<pb::TxnOperation>,
    failure: Vec<pb::TxnOperation>,
) -> pb::TxnRequest {
    pb::TxnRequest { compares, success, failure, options: None }
}

async fn run(client: &mut Client, txn: pb::TxnRequest) -> (bool, Vec<Answer>) {
    let pb::TxnResponse { succeeded, results } = client.txn(txn).await.unwrap().into_inner();
    (succeeded, results.into_iter().map(|result| result.result.unwrap()).collect())
}

fn entry_of(answer: &Answer) -> Option<&pb::Entry> {
    match answer {
        Answer::Get(get) => get.entry.as_ref(),
        Answer::Put(put) => put.previous.as_ref(),
        Answer::Delete(delete) => delete.previous.as_ref(),
    }
}

#[tokio::test]
async fn comparisons_choose_what_is_done() {
    use pb::Relation::{Equal, Greater, Less, NotEqual, Unspecified};
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let version = client.put(put("a", "mm")).await.unwrap().into_inner().version;
    let value = |text: &str| Target::Value(key(text));
    for (at, target, relation, holds) in [
        ("a", Target::Present(true), Unspecified, true),
        ("a", Target::Absent(true), Unspecified, false),
        ("none", Target::Present(true), Unspecified, false),
        ("none", Target::Absent(true), Unspecified, true),
        ("a", value("mm"), Unspecified, true),
        ("a", value("m"), Equal, false),
        ("a", value("m"), Greater, true),
        ("a", value("mn"), Less, true),
        ("a", value("mm"), Less, false),
        ("a", value("mm"), NotEqual, false),
        ("a", value(""), NotEqual, true),
        // An absent key has no relation to any value.
        ("none", value(""), Equal, false),
        ("none", value("x"), NotEqual, false),
        ("none", value("x"), Less, false),
        ("a", Target::Version(version), Equal, true),
        ("a", Target::Version(version), NotEqual, false),
        ("a", Target::Version(version + 1), Less, true),
        ("a", Target::Version(version), Less, false),
        ("a", Target::Version(version - 1), Greater, true),
        ("a", Target::Version(0), Greater, true),
        ("none", Target::Version(0), Equal, true),
        ("none", Target::Version(1), Less, true),
        ("none", Target::Version(0), Greater, false),
    ] {
        let both = txn(vec![compare(at, target.clone(), relation)], vec![get_of("a")], vec![]);
        let (succeeded, answers) = run(&mut client, both).await;
        assert_eq!((succeeded, answers.len()), (holds, usize::from(holds)), "{at} {target:?} {relation:?}");
    }
    // All comparisons must hold.
    let one_does_not = vec![has("a", Target::Present(true)), has("b", Target::Present(true))];
    let (succeeded, _) = run(&mut client, txn(one_does_not, vec![put_of("c", "1")], vec![])).await;
    assert!(!succeeded && running.store.get("c").await.unwrap().is_none());
    let (succeeded, _) = run(&mut client, txn(vec![], vec![put_of("c", "1")], vec![])).await;
    assert!(succeeded, "no comparison holds");
    assert_eq!(running.store.get("c").await.unwrap().unwrap(), "1");
}

#[tokio::test]
async fn operations_see_what_those_before_them_did() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let old = client.put(put("a", "old")).await.unwrap().into_inner().version;
    client.put(put("b", "gone")).await.unwrap();
    let far = now_ms() + 100_000;
    let expiry = Some(pb::Expiry { at: Some(expiry::At::AtMs(far)) });
    let put_c = Put { key: key("c"), value: key("3"), expiry, keep_expiry: true, ..Default::default() };
    let success = vec![
        get_of("c"),
        operation(Operation::Put(put_c)),
        operation(Operation::Put(Put {
            key: key("a"),
            value: key("new"),
            return_previous: true,
            ..Default::default()
        })),
        get_of("a"),
        delete_of("b"),
        get_of("b"),
        delete_of("never"),
        operation(Operation::Get(Get { key: key("never"), without_value: true })),
    ];
    let (succeeded, answers) = run(&mut client, txn(vec![], success, vec![put_of("a", "wrong")])).await;
    assert!(succeeded && answers.len() == 8);
    assert_eq!(entry_of(&answers[0]), None);
    let (Answer::Put(of_c), Answer::Put(of_a)) = (&answers[1], &answers[2]) else { panic!("{answers:?}") };
    assert_eq!(
        of_a.previous.as_ref().map(|entry| (entry.version, &entry.value[..])),
        Some((old, &b"old"[..]))
    );
    let stored = running.store.get_entry("a").await.unwrap().unwrap();
    assert_eq!((stored.version, &stored.value[..]), (of_a.version, &b"new"[..]));
    let seen = entry_of(&answers[3]).unwrap();
    assert_eq!((seen.version, &seen.value[..]), (of_a.version, &b"new"[..]));
    let stored = running.store.get_entry("c").await.unwrap().unwrap();
    assert_eq!((stored.version, stored.expires_at_ms), (of_c.version, Some(far)));
    let Answer::Delete(of_b) = &answers[4] else { panic!("{answers:?}") };
    assert!(of_b.existed && of_b.previous.as_ref().unwrap().value == "gone");
    assert_eq!(entry_of(&answers[5]), None);
    assert!(matches!(&answers[6], Answer::Delete(of) if !of.existed && of.previous.is_none()));
    assert_eq!(entry_of(&answers[7]), None);
    let without = operation(Operation::Get(Get { key: key("c"), without_value: true }));
    let (_, answers) = run(&mut client, txn(vec![], vec![without], vec![])).await;
    let head = entry_of(&answers[0]).unwrap();
    assert_eq!((head.value.len(), head.value_bytes, head.version), (0, 1, of_c.version));
}

#[tokio::test]
async fn transactions_that_make_no_sense_do_nothing() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let written = || put_of("a", "1");
    let nothing = pb::TxnOperation { operation: None };
    let no_target = pb::Compare { key: key("a"), target: None, relation: 0 };
    for wrong in [
        txn(vec![no_target], vec![written()], vec![]),
        txn(vec![has("a", Target::Absent(false))], vec![written()], vec![written()]),
        txn(vec![has("", Target::Absent(true))], vec![written()], vec![]),
        txn(vec![compare("a", Target::Absent(true), pb::Relation::Equal)], vec![written()], vec![]),
        txn(vec![pb::Compare { relation: 9, ..has("a", Target::Version(0)) }], vec![written()], vec![]),
        txn(vec![], vec![written(), nothing], vec![]),
        txn(vec![], vec![written(), put_of("", "x")], vec![]),
        txn(vec![], vec![written(), written()], vec![]),
        txn(vec![], vec![written(), delete_of("a")], vec![]),
        txn(vec![], vec![written()], vec![written(), delete_of("a")]),
        txn(vec![], vec![written(), get_of("a"), get_of("a")], vec![]),
        txn(vec![], (0..1001).map(|n| put_of(&format!("{n}"), "x")).collect(), vec![]),
    ] {
        refused(client.txn(wrong).await, Code::InvalidArgument, "INVALID");
    }
    assert!(running.store.is_empty());
    // A thousand operations are accepted, and so are none.
    let many = (0..1000).map(|n| put_of(&format!("{n}"), "x")).collect();
    run(&mut client, txn(vec![], many, vec![])).await;
    assert_eq!(running.store.len(), 1000);
    assert_eq!(run(&mut client, txn(vec![], vec![], vec![])).await, (true, vec![]));
    // A response that is too large is detected before anything is written.
    for n in 0..3 {
        running.store.put(format!("large {n}"), vec![7; 7 << 20]).await.unwrap();
    }
    let gets = (0..3).map(|n| get_of(&format!("large {n}")));
    let too_large = txn(vec![], [put_of("a", "1")].into_iter().chain(gets).collect(), vec![]);
    refused(client.txn(too_large).await, Code::ResourceExhausted, "TOO_LARGE");
    assert!(running.store.get("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_transaction_needs_the_rights_of_all_its_operations() {
    let both = [Right::Read, Right::Write];
    let (_directory, _, access) =
        users(&[("reader", &[Right::Read]), ("writer", &[Right::Write]), ("both", &both)]);
    let running = Running::start(Config { access, ..plain() }).await;
    let mut client = running.client().await;
    let may_not = txn(vec![], vec![put_of("mine:a", "1")], vec![get_of("other")]);
    let previous = Put { key: key("mine:a"), return_previous: true, ..Default::default() };
    for (user, denied) in [
        ("reader", txn(vec![], vec![put_of("mine:a", "1")], vec![])),
        ("writer", txn(vec![has("mine:a", Target::Absent(true))], vec![put_of("mine:a", "1")], vec![])),
        ("writer", txn(vec![], vec![get_of("mine:a")], vec![])),
        ("writer", txn(vec![], vec![operation(Operation::Put(previous))], vec![])),
        // Rights are also required for the list that does not run.
        ("both", may_not),
        ("both", txn(vec![has("other", Target::Absent(true))], vec![put_of("mine:a", "1")], vec![])),
    ] {
        refused(client.txn(from(denied, user, "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    }
    let add = pb::IncrementRequest { key: key("mine:n"), ..Default::default() };
    refused(client.increment(from(add.clone(), "writer", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    let becomes = Some(pb::touch_request::Becomes::Persistent(true));
    let touch = pb::TouchRequest { key: key("mine:n"), becomes, ..Default::default() };
    refused(client.touch(from(touch, "reader", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    let head = pb::HeadRequest { key: key("mine:n") };
    refused(client.head(from(head, "writer", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    for wanted in [
        pb::PutRequest { return_previous: true, ..put("mine:n", "x") },
        pb::PutRequest { return_previous: true, keep_expiry: true, ..put("mine:n", "x") },
    ] {
        refused(client.put(from(wanted, "writer", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    }
    let delete = pb::DeleteRequest { key: key("mine:n"), return_previous: true, ..Default::default() };
    refused(client.delete(from(delete, "writer", "pass")).await, Code::PermissionDenied, "NO_RIGHT");
    assert!(running.store.is_empty());
    client.increment(from(add, "both", "pass")).await.unwrap();
    let keep = pb::PutRequest { keep_expiry: true, ..put("mine:n", "x") };
    client.put(from(keep, "writer", "pass")).await.unwrap();
}

/// Transactions that compare versions move money between accounts, beside transactions that only read: no money is lost, and
/// every reader sees the whole sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_on_the_same_keys_come_one_after_the_other() {
    const ACCOUNTS: usize = 4;
    let running = Running::start(plain()).await;
    let account = |n: usize| format!("account {}", n % ACCOUNTS);
    for n in 0..ACCOUNTS {
        running.store.put(account(n), "100").await.unwrap();
    }
    let number = |entry: &pb::Entry| std::str::from_utf8(&entry.value).unwrap().parse::<i64>().unwrap();
    let movers = (0..6).map(|mover| {
        let running = &running;
        async move {
            let mut client = running.client().await;
            let (mut moved, mut versions) = (0, BTreeMap::new());
            for round in 0.. {
                let (one, other) = (account(mover + round), account(mover + round + 1 + round % 3));
                let gets = vec![get_of(&one), get_of(&other)];
                let (_, answers) = run(&mut client, txn(vec![], gets, vec![])).await;
                let [from, to] = [0, 1].map(|at| entry_of(&answers[at]).unwrap().clone());
                let same = |entry: &pb::Entry| {
                    let at = std::str::from_utf8(&entry.key).unwrap();
                    has(at, Target::Version(entry.version))
                };
                let puts = vec![
                    put_of(&one, (number(&from) - 1).to_string()),
                    put_of(&other, (number(&to) + 1).to_string()),
                ];
                let all = (0..ACCOUNTS).map(|n| get_of(&account(n))).collect();
                let wanted = txn(vec![same(&from), same(&to)], puts, all);
                let (succeeded, answers) = run(&mut client, wanted).await;
                if !succeeded {
                    let seen: i64 = answers.iter().map(|answer| number(entry_of(answer).unwrap())).sum();
                    assert_eq!(seen, 100 * ACCOUNTS as i64, "a part of a transaction was seen");
                    continue;
                }
                for (at, answer) in [one, other].into_iter().zip(&answers) {
                    let Answer::Put(put) = answer else { panic!("{answer:?}") };
                    let before = versions.insert(at, put.version);
                    assert!(before.is_none_or(|before| before < put.version), "a version went back");
                }
                moved += 1;
                if moved == 15 {
                    return;
                }
            }
        }
    });
    futures_util::future::join_all(movers).await;
    let mut client = running.client().await;
    let mut sum = 0;
    for n in 0..ACCOUNTS {
        sum += number(&client.get(get(&account(n))).await.unwrap().into_inner().entry.unwrap());
    }
    assert_eq!(sum, 100 * ACCOUNTS as i64);
}
