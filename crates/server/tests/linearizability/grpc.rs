//! The same steps over gRPC: transactions that compare, get, put and delete, and increments.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use pb::compare::Target;
use pb::txn_operation::{Delete, Get, Operation, Put};
use pb::txn_result::Result as Answer;
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::history::{Action, Reply, Step, Value};

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all, reason = "generated")]
#[rustfmt::skip]
mod pb {
    include!("../../src/grpc/generated/esker.v1.rs");
}

pub(crate) struct Grpc {
    runtime: Runtime,
    client: pb::esker_client::EskerClient<Channel>,
}

fn key_of(step: &Step) -> Bytes {
    step.key.to_string().into()
}

fn value_of(value: i64) -> Bytes {
    value.to_string().into()
}

fn number(entry: Option<&pb::Entry>) -> Value {
    entry.map(|entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap())
}

/// Returns the comparison that a step requires.
fn compare_of(step: &Step) -> Option<pb::Compare> {
    let target = match step.action {
        Action::SetNew(_) | Action::Exchange(None, _) => Target::Absent(true),
        Action::SetKnown(_) => Target::Present(true),
        Action::Exchange(Some(expected), _) => Target::Value(value_of(expected)),
        _ => return None,
    };
    Some(pb::Compare { key: key_of(step), target: Some(target), relation: 0 })
}

fn operation_of(step: &Step) -> pb::TxnOperation {
    let (key, return_previous) = (key_of(step), true);
    let put = |value| {
        Operation::Put(Put { key: key_of(step), value: value_of(value), return_previous, ..Put::default() })
    };
    let operation = match step.action {
        Action::Get => Operation::Get(Get { key, without_value: false }),
        Action::Set(value) | Action::SetNew(value) | Action::SetKnown(value) => put(value),
        Action::Swap(value) | Action::Exchange(_, value) => put(value),
        Action::Take | Action::Del => Operation::Delete(Delete { key, return_previous }),
        Action::Incr | Action::Outdate | Action::Vanish(_) => unreachable!("{step:?} in a transaction"),
    };
    pb::TxnOperation { operation: Some(operation) }
}

fn reply_of(step: &Step, answer: &Answer) -> Reply {
    match (step.action, answer) {
        (Action::Get, Answer::Get(get)) => Reply::Value(number(get.entry.as_ref())),
        (Action::Swap(_), Answer::Put(put)) => Reply::Value(number(put.previous.as_ref())),
        (_, Answer::Put(_)) => Reply::Ok,
        (Action::Take, Answer::Delete(delete)) => Reply::Value(number(delete.previous.as_ref())),
        (_, Answer::Delete(delete)) => Reply::Number(i64::from(delete.existed)),
        _ => panic!("{step:?} was answered {answer:?}"),
    }
}

/// Converts an error: a server that was killed ends the history; other errors are failures of the test.
fn gone(status: Status) -> io::Error {
    let kind = match status.code() {
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, status)
}

impl Grpc {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Grpc> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("it is an address");
        let channel = runtime.block_on(endpoint.connect()).map_err(io::Error::other)?;
        Ok(Grpc { runtime, client: pb::esker_client::EskerClient::new(channel) })
    }

    /// Runs a step, or several as one transaction.
    pub(crate) fn run(&mut self, steps: &[Step]) -> io::Result<Vec<Reply>> {
        if let [step @ Step { action: Action::Incr, .. }] = steps {
            let request = pb::IncrementRequest { key: key_of(step), ..Default::default() };
            let answer = self.runtime.block_on(self.client.increment(request)).map_err(gone)?;
            return Ok(vec![Reply::Number(answer.into_inner().value)]);
        }
        let request = pb::TxnRequest {
            compares: steps.iter().filter_map(compare_of).collect(),
            success: steps.iter().map(operation_of).collect(),
            ..Default::default()
        };
        let answer = self.runtime.block_on(self.client.txn(request)).map_err(gone)?.into_inner();
        if !answer.succeeded {
            let is_exchange = matches!(steps, [Step { action: Action::Exchange(..), .. }]);
            return Ok(vec![if is_exchange { Reply::Aborted } else { Reply::Value(None) }]);
        }
        let answers = answer.results.iter().map(|result| result.result.as_ref().expect("it has one"));
        Ok(steps.iter().zip(answers).map(|(step, answer)| reply_of(step, answer)).collect())
    }
}

/// Draws the next call of a client: a step that may depend on the current value, or several steps on keys used together.
pub(crate) fn draw(random: &mut SmallRng, key: usize, mut new: impl FnMut() -> i64) -> Vec<Step> {
    if key >= 4 || random.random() {
        let action = match random.random_range(0..5) {
            0 => Action::SetNew(new()),
            1 => Action::SetKnown(new()),
            _ => Action::Incr,
        };
        return vec![Step { key, action }];
    }
    let mut steps = Vec::new();
    for key in [key, key ^ 1] {
        let write = match random.random_range(0..4) {
            0 => Action::Set(new()),
            1 => Action::Swap(new()),
            2 => Action::Take,
            _ => Action::Del,
        };
        let pair = [Action::Get, write].map(|action| Step { key, action });
        match random.random_range(0..4) {
            0 => steps.push(pair[0]),
            1 => steps.push(pair[1]),
            2 => steps.extend(pair),
            _ => steps.extend([pair[1], pair[0]]),
        }
    }
    steps
}
