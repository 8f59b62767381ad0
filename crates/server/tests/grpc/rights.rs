//! Every call of the service, and every option that changes the RESP commands it stands for, with every kind of rule.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::client::{Client, Running, from, get, key, pb, plain, put};

/// The key named by the calls.
const KEY: &str = "app:n";

type Made = Box<dyn Fn(Client) -> BoxFuture<'static, Result<(), Status>>>;

/// A call: the commands whose rights it requires, its access to keys (`r`, `w`, `rw` or none), and a function that makes it.
struct Row {
    name: &'static str,
    commands: &'static [&'static str],
    reach: &'static str,
    make: Made,
}

/// A row for a unary call, named after the method, with the option after a blank.
macro_rules! unary {
    ($name:literal, $commands:expr, $reach:literal, $method:ident, $request:expr) => {
        Row {
            name: $name,
            commands: &$commands,
            reach: $reach,
            make: Box::new(|mut client| {
                let request = from($request, "ann", "pass");
                Box::pin(async move { client.$method(request).await.map(drop) })
            }),
        }
    };
}

/// A row for a streaming call, whose first message decides.
macro_rules! streamed {
    ($name:literal, $commands:expr, $reach:literal, $method:ident, $request:expr) => {
        Row {
            name: $name,
            commands: &$commands,
            reach: $reach,
            make: Box::new(|mut client| {
                let request = from($request, "ann", "pass");
                Box::pin(async move { client.$method(request).await?.into_inner().message().await.map(drop) })
            }),
        }
    };
}

fn increment(by: Option<i64>) -> pb::IncrementRequest {
    pb::IncrementRequest { key: key(KEY), by, ..Default::default() }
}

fn ttl() -> Option<pb::Expiry> {
    Some(pb::Expiry { at: Some(pb::expiry::At::TtlMs(1_000_000)) })
}

fn swap(replacement: pb::compare_and_swap_request::Replacement) -> pb::CompareAndSwapRequest {
    let expected = Some(pb::compare_and_swap_request::Expected::Value(key("not this")));
    pb::CompareAndSwapRequest {
        key: key(KEY),
        expected,
        replacement: Some(replacement),
        ..Default::default()
    }
}

fn batch(write: pb::operation::Write) -> pb::BatchRequest {
    pb::BatchRequest { operations: vec![pb::Operation { write: Some(write) }], options: None }
}

fn compared(target: pb::compare::Target) -> pb::TxnRequest {
    let compare = pb::Compare { key: key(KEY), target: Some(target), relation: 0 };
    pb::TxnRequest { compares: vec![compare], ..Default::default() }
}

/// The operation is in the list that does not run, whose rights are required too.
fn txn(operation: pb::txn_operation::Operation) -> pb::TxnRequest {
    let failure = vec![pb::TxnOperation { operation: Some(operation) }];
    pb::TxnRequest { failure, ..Default::default() }
}

fn watch(prefixes: &[&str], keys: &[&str], with_values: bool) -> pb::WatchRequest {
    let named = |names: &[&str]| names.iter().copied().map(key).collect();
    pb::WatchRequest { prefixes: named(prefixes), keys: named(keys), with_values, ..Default::default() }
}

fn upload(mut client: Client) -> BoxFuture<'static, Result<(), Status>> {
    let head = pb::upload_request::Head { key: key(KEY), ..Default::default() };
    let parts = [pb::upload_request::Part::Head(head), pb::upload_request::Part::Chunk(key("5"))];
    let parts = futures_util::stream::iter(parts.map(|part| pb::UploadRequest { part: Some(part) }));
    Box::pin(async move { client.upload(from(parts, "ann", "pass")).await.map(drop) })
}

/// The table of calls. Every part of an answer has its command, and a call that does several steps at once has the commands of a
/// transaction.
#[rustfmt::skip]
fn rows() -> Vec<Row> {
    use pb::compare::Target;
    use pb::compare_and_swap_request::Replacement;
    use pb::operation::Write;
    use pb::touch_request::Becomes;
    use pb::txn_operation::{Delete, Get, Operation, Put};
    let mut rows = vec![
        unary!("Get", ["get", "pexpiretime"], "r", get, get(KEY)),
        unary!("Get range", ["getrange"], "r", get,
            pb::GetRequest { range: Some(pb::Range { offset: 0, length: 1 }), ..get(KEY) }),
        unary!("Head", ["strlen", "pexpiretime"], "r", head, pb::HeadRequest { key: key(KEY) }),
        unary!("MultiGet", ["mget", "pexpiretime"], "r", multi_get, pb::MultiGetRequest { keys: vec![key(KEY)] }),
        unary!("Put", ["set"], "w", put, put(KEY, "5")),
        unary!("Put condition", ["set"], "w", put, pb::PutRequest {
            condition: Some(pb::Condition { is: Some(pb::condition::Is::Present(true)) }), ..put(KEY, "5") }),
        unary!("Put keep_expiry", ["set"], "w", put, pb::PutRequest { keep_expiry: true, ..put(KEY, "5") }),
        unary!("Put return_previous", ["set", "pexpiretime"], "rw", put,
            pb::PutRequest { return_previous: true, ..put(KEY, "5") }),
        unary!("Delete", ["del"], "w", delete, pb::DeleteRequest { key: key("app:gone"), ..Default::default() }),
        unary!("Delete return_previous", ["getdel", "pexpiretime"], "rw", delete,
            pb::DeleteRequest { key: key("app:gone"), return_previous: true, ..Default::default() }),
        unary!("CompareAndSwap put", ["watch", "get", "pexpiretime", "multi", "set", "exec"], "rw", compare_and_swap,
            swap(Replacement::Put(key("6")))),
        unary!("CompareAndSwap delete", ["watch", "get", "pexpiretime", "multi", "del", "exec"], "rw", compare_and_swap,
            swap(Replacement::Delete(true))),
        unary!("Increment", ["incr", "pexpiretime"], "rw", increment, increment(None)),
        unary!("Increment by", ["incrby", "pexpiretime"], "rw", increment, increment(Some(1))),
        unary!("Increment by less", ["decrby", "pexpiretime"], "rw", increment, increment(Some(-1))),
        unary!("Increment initial", ["incr", "pexpiretime", "set"], "rw", increment,
            pb::IncrementRequest { initial: Some(1), ..increment(None) }),
        unary!("Increment expiry", ["incr", "pexpiretime", "pexpireat"], "rw", increment,
            pb::IncrementRequest { expiry: ttl(), ..increment(None) }),
        unary!("Touch expiry", ["pexpireat"], "w", touch, pb::TouchRequest { key: key(KEY),
            becomes: ttl().map(Becomes::Expiry), ..Default::default() }),
        unary!("Touch persistent", ["persist"], "w", touch, pb::TouchRequest { key: key(KEY),
            becomes: Some(Becomes::Persistent(true)), ..Default::default() }),
        unary!("Batch put", ["multi", "exec", "set"], "w", batch, batch(Write::Put(pb::operation::Put {
            key: key(KEY), value: key("5"), expiry: None }))),
        unary!("Batch delete", ["multi", "exec", "del"], "w", batch, batch(Write::Delete(key("app:gone")))),
        unary!("Txn compare absent", ["multi", "exec", "watch", "exists"], "r", txn, compared(Target::Absent(true))),
        unary!("Txn compare present", ["multi", "exec", "watch", "exists"], "r", txn, compared(Target::Present(true))),
        unary!("Txn compare version", ["multi", "exec", "watch", "exists"], "r", txn, compared(Target::Version(1))),
        unary!("Txn compare value", ["multi", "exec", "watch", "get"], "r", txn, compared(Target::Value(key("5")))),
        unary!("Txn get", ["multi", "exec", "get", "pexpiretime"], "r", txn,
            txn(Operation::Get(Get { key: key(KEY), without_value: false }))),
        unary!("Txn get without_value", ["multi", "exec", "strlen", "pexpiretime"], "r", txn,
            txn(Operation::Get(Get { key: key(KEY), without_value: true }))),
        unary!("Txn put", ["multi", "exec", "set"], "w", txn,
            txn(Operation::Put(Put { key: key(KEY), ..Default::default() }))),
        unary!("Txn put return_previous", ["multi", "exec", "set", "pexpiretime"], "rw", txn,
            txn(Operation::Put(Put { key: key(KEY), return_previous: true, ..Default::default() }))),
        unary!("Txn delete", ["multi", "exec", "del"], "w", txn,
            txn(Operation::Delete(Delete { key: key(KEY), return_previous: false }))),
        unary!("Txn delete return_previous", ["multi", "exec", "getdel", "pexpiretime"], "rw", txn,
            txn(Operation::Delete(Delete { key: key(KEY), return_previous: true }))),
        streamed!("Scan", ["scan", "get", "pexpiretime"], "", scan, pb::ScanRequest::default()),
        streamed!("Scan keys_only", ["scan", "strlen", "pexpiretime"], "", scan,
            pb::ScanRequest { keys_only: true, ..Default::default() }),
        streamed!("Watch", ["pexpiretime", "psubscribe"], "", watch, watch(&[], &[], false)),
        streamed!("Watch prefix", ["pexpiretime", "psubscribe"], "", watch, watch(&["app:"], &[], false)),
        streamed!("Watch key", ["pexpiretime", "subscribe"], "r", watch, watch(&[], &[KEY], false)),
        streamed!("Watch with_values", ["pexpiretime", "subscribe", "psubscribe", "get"], "r", watch,
            watch(&["app:"], &[KEY], true)),
        streamed!("Download", ["get", "pexpiretime"], "r", download,
            pb::DownloadRequest { key: key(KEY), ..Default::default() }),
        unary!("Stats", ["info"], "", stats, pb::StatsRequest {}),
    ];
    rows.push(Row { name: "Upload", commands: &["set"], reach: "w", make: Box::new(upload) });
    rows
}

/// RESP connection of an admin, which changes the user `ann`.
struct Admin(tokio::net::TcpStream);

impl Admin {
    async fn set(&mut self, rules: &str) {
        self.0.write_all(format!("ACL SETUSER ann {rules}\r\n").as_bytes()).await.unwrap();
        let mut answer = [0; 5];
        self.0.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"+OK\r\n", "{rules}");
    }

    /// Returns the reply of `ACL CAT`, or of `ACL CAT category`.
    async fn list(&mut self, what: &str) -> Vec<String> {
        self.0.write_all(format!("ACL CAT {what}\r\nECHO end-of-list\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        while !text.ends_with("end-of-list\r\n") {
            let mut more = [0; 4096];
            let bytes = self.0.read(&mut more).await.unwrap();
            text.push_str(std::str::from_utf8(&more[..bytes]).unwrap());
        }
        let words = text.lines().filter(|line| !line.starts_with(['$', '*']));
        words.filter(|word| *word != "end-of-list").map(str::to_owned).collect()
    }
}

/// Makes the call. It must be refused because of one of the commands in `kept`, and succeed if `kept` is empty.
async fn check_commands(row: &Row, client: &Client, kept: &BTreeSet<&str>, rules: &str) {
    let answer = (row.make)(client.clone()).await;
    if kept.is_empty() {
        answer.unwrap_or_else(|status| panic!("{} with {rules}: {status:?}", row.name));
        return;
    }
    let status = answer.expect_err(&format!("{} with {rules} is done", row.name));
    assert_eq!(status.code(), Code::PermissionDenied, "{} with {rules}: {status:?}", row.name);
    let info = status.get_details_error_info().expect("there are details");
    let named = info.metadata.get("command").expect("it names a command");
    assert!(kept.contains(&**named), "{} with {rules}: {status:?}", row.name);
    assert!(status.message().contains(&**named), "{status:?}");
}

#[test]
fn every_call_of_the_service_has_a_row() {
    let service = include_str!("../../../../proto/esker/v1/esker.proto");
    let calls = service.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
    let calls: BTreeSet<_> = calls.collect();
    let rows = rows();
    let known: BTreeSet<_> = rows.iter().filter_map(|row| row.name.split(' ').next()).collect();
    assert_eq!(known, calls, "a call needs a row for each option that changes which commands it stands for");
    assert!(calls.len() >= 15);
}

#[tokio::test]
async fn call_is_refused_by_rule_denying_any_of_its_commands() {
    let running = Running::start(plain()).await;
    let client = running.client().await;
    let mut admin = Admin(tokio::net::TcpStream::connect(running.resp[0]).await.unwrap());
    running.store.put(KEY, "5").await.unwrap();
    let rows = rows();
    let all: BTreeSet<&str> = rows.iter().flat_map(|row| row.commands).copied().collect();
    admin.set("on >pass ~* &*").await;
    // Rules without one command or subcommand, including some that no call stands for.
    let others = ["append", "keys", "mset", "eval", "ttl", "client|tracking", "config|get", "object"];
    for command in all.iter().copied().chain(others) {
        let rules = format!("+@all -{command}");
        admin.set(&rules).await;
        for row in &rows {
            let kept = row.commands.iter().copied().filter(|known| *known == command).collect();
            check_commands(row, &client, &kept, &rules).await;
        }
    }
    // Rules without one category.
    let categories = admin.list("").await;
    assert!(categories.len() >= 20, "{categories:?}");
    for category in categories {
        let members = admin.list(&category).await;
        let rules = format!("+@all -@{category}");
        admin.set(&rules).await;
        for row in &rows {
            let kept = row.commands.iter().copied().filter(|known| members.iter().any(|of| of == known));
            check_commands(row, &client, &kept.collect(), &rules).await;
        }
    }
    // Rules with only the commands of the call, and with all of these but one.
    for row in &rows {
        for left_out in row.commands.iter().copied().map(Some).chain([None]) {
            let given = row.commands.iter().filter(|command| Some(**command) != left_out);
            let given: Vec<_> = given.map(|command| format!("+{command}")).collect();
            let rules = format!("nocommands {}", given.join(" "));
            admin.set(&rules).await;
            check_commands(row, &client, &left_out.into_iter().collect(), &rules).await;
        }
    }
}

#[tokio::test]
async fn every_call_is_refused_for_keys_and_databases_that_rules_take() {
    let running = Running::start(plain()).await;
    let client = running.client().await;
    let mut admin = Admin(tokio::net::TcpStream::connect(running.resp[0]).await.unwrap());
    running.store.put(KEY, "5").await.unwrap();
    admin.set("on >pass +@all").await;
    for (rules, kept) in [
        ("resetkeys ~app:*", ""),
        ("resetkeys %R~app:*", "w"),
        ("resetkeys %W~app:*", "r"),
        ("resetkeys ~other:*", "rw"),
        ("resetkeys", "rw"),
        ("resetkeys %R~app:* %W~app:*", ""),
        ("allkeys databases=1", "database"),
        ("allkeys databases=0,1", ""),
    ] {
        admin.set(rules).await;
        for row in rows() {
            let refused = match kept {
                "database" => row.name != "Stats",
                kept => row.reach.chars().any(|access| kept.contains(access)),
            };
            let answer = (row.make)(client.clone()).await;
            let code = answer.as_ref().map_or_else(Status::code, |()| Code::Ok);
            let expected = if refused { Code::PermissionDenied } else { Code::Ok };
            assert_eq!(code, expected, "{} with {rules}: {answer:?}", row.name);
        }
    }
}

/// Of entries and changes whose keys are not named in the request, only those with readable keys are returned.
#[tokio::test]
async fn scan_returns_only_keys_that_the_user_may_read() {
    let running = Running::start(plain()).await;
    let mut client = running.client().await;
    let mut admin = Admin(tokio::net::TcpStream::connect(running.resp[0]).await.unwrap());
    for name in ["app:1", "other:1", "blind:1"] {
        running.store.put(name, "x").await.unwrap();
    }
    admin.set("on >pass +@all ~app:* %W~blind:*").await;
    let scan = from(pb::ScanRequest::default(), "ann", "pass");
    let page = client.scan(scan).await.unwrap().into_inner().message().await.unwrap().unwrap();
    let keys: Vec<_> = page.entries.into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [key("app:1")]);
}
