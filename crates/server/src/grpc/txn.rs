//! Transactions: comparisons, followed by one of two lists of operations, as one update of all named keys.
//!
//! Operations run in order, each on the result of the previous ones. A list may write a key only once, so that every put has a
//! version, and get a key only once, so that the answer is at most a small multiple of the stored data. Versions are known after
//! the update, and are filled into the answers then.

use std::cmp::Ordering;

use bytes::Bytes;
use esker_engine::{Batch, Entry};
use tonic::Status;

use super::call::{Call, ENTRY_BYTES, Esker, check_answer};
use super::change::{update, version_of};
use super::convert::{self, expires_at_ms, kept_expiry, previous, put_into, write_options};
use super::error::invalid;
use super::once::value_bytes_max;
use super::pb;
use super::pb::compare::Target;
use super::pb::txn_operation::{self, Operation};
use super::pb::txn_result::Result as Answer;
use super::write::OPERATION_BYTES;

/// Maximum number of comparisons and operations in a transaction.
const STEPS_MAX: usize = 1000;

/// Maximum number of times that the entry of a key is returned: by a get, and by the one operation that writes the key.
const ANSWERED_MAX: usize = 2;

/// Returns the key of an operation.
pub(super) fn key_of(operation: &pb::TxnOperation) -> Option<&Bytes> {
    Some(match operation.operation.as_ref()? {
        Operation::Get(get) => &get.key,
        Operation::Put(put) => &put.key,
        Operation::Delete(delete) => &delete.key,
    })
}

/// Returns the length of the value that an operation puts.
fn put_bytes(operation: &pb::TxnOperation) -> usize {
    match &operation.operation {
        Some(Operation::Put(put)) => put.value.len(),
        _ => 0,
    }
}

/// A validated comparison.
struct Compare {
    key: usize,
    target: Target,
    relation: pb::Relation,
}

/// A validated operation.
enum Step {
    Get { key: usize, without_value: bool },
    Put { key: usize, put: txn_operation::Put, expires_at_ms: Option<u64> },
    Delete { key: usize, return_previous: bool },
}

/// A validated transaction; keys are referred to by index.
struct Plan {
    keys: Vec<Bytes>,
    compares: Vec<Compare>,
    success: Vec<Step>,
    failure: Vec<Step>,
    value_bytes_max: usize,
}

/// The answer, and the results whose versions are not known yet, with their keys.
struct Done {
    succeeded: bool,
    results: Vec<pb::TxnResult>,
    lack_versions: Vec<(usize, usize)>,
}

/// Fails if a transaction has too many comparisons and operations.
pub(super) fn check_count(steps: usize) -> Result<(), Status> {
    match steps {
        0..=STEPS_MAX => Ok(()),
        _ => {
            let text = format!("{steps} comparisons and operations; a transaction has up to {STEPS_MAX}");
            Err(invalid(text))
        }
    }
}

pub(super) async fn txn(
    esker: Esker,
    call: Call,
    mut request: pb::TxnRequest,
) -> Result<pb::TxnResponse, Status> {
    let options = request.options.take();
    let value_bytes_max = value_bytes_max(&esker.service, options.as_ref());
    let options = write_options(&call.store, None, None, options)?;
    let steps = request.compares.len() + request.success.len() + request.failure.len();
    check_count(steps)?;
    let put_bytes = request.success.iter().chain(&request.failure).map(put_bytes).sum();
    call.take(steps * OPERATION_BYTES + esker.service.compressed_bytes(put_bytes)).await?;
    let plan = Plan::of(&call, request, value_bytes_max)?;
    let (mut done, versions) =
        update(&call, &plan.keys, options, ANSWERED_MAX, |entries| plan.run(entries)).await?;
    for (at, key) in done.lack_versions {
        let version = versions[key].unwrap_or_default();
        match &mut done.results[at].result {
            Some(Answer::Put(put)) => put.version = version,
            Some(Answer::Get(pb::GetResponse { entry: Some(entry) })) => entry.version = version,
            _ => {}
        }
    }
    for result in &done.results {
        if let Some(Answer::Get(get)) = &result.result {
            esker.count_found(call.database, get);
        }
    }
    Ok(pb::TxnResponse { succeeded: done.succeeded, results: done.results })
}

impl Plan {
    fn of(call: &Call, request: pb::TxnRequest, value_bytes_max: usize) -> Result<Plan, Status> {
        let pb::TxnRequest { compares, success, failure, .. } = request;
        let of_operations = success.iter().chain(&failure).filter_map(key_of);
        let mut keys: Vec<Bytes> =
            compares.iter().map(|compare| &compare.key).chain(of_operations).cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        let compares = compares.into_iter().enumerate().map(|(at, compare)| {
            let wrong = |why: &str| invalid(format!("comparison {at} {why}"));
            Compare::of(&keys, compare, wrong)
        });
        let compares = compares.collect::<Result<_, _>>()?;
        let list = |name: &str, operations: Vec<pb::TxnOperation>| {
            // Keys of gets, and keys of writes.
            let mut named = [vec![false; keys.len()], vec![false; keys.len()]];
            let steps = operations.into_iter().enumerate().map(|(at, operation)| {
                let wrong = |why: &str| invalid(format!("operation {at} of {name} {why}"));
                let step = Step::of(call, &keys, operation, wrong)?;
                let (writes, key) = step.key();
                match std::mem::replace(&mut named[usize::from(writes)][key], true) {
                    false => Ok(step),
                    true if writes => Err(wrong("writes a key that an operation before it writes")),
                    true => Err(wrong("gets a key that an operation before it gets")),
                }
            });
            steps.collect::<Result<Vec<Step>, Status>>()
        };
        let (success, failure) = (list("success", success)?, list("failure", failure)?);
        Ok(Plan { compares, success, failure, value_bytes_max, keys })
    }

    /// Runs the transaction on the entries of its keys. Returns the batch and the answer.
    fn run(&self, entries: &[Option<Entry>]) -> Result<(Batch, Done), Status> {
        let succeeded = self.compares.iter().all(|compare| compare.holds(entries[compare.key].as_ref()));
        let steps = if succeeded { &self.success } else { &self.failure };
        let mut now: Vec<Option<Entry>> = entries.to_vec();
        let (mut batch, mut lack_versions) = (Batch::new(), Vec::new());
        let (mut results, mut bytes) = (Vec::with_capacity(steps.len()), 0);
        for (at, step) in steps.iter().enumerate() {
            let answer = match step {
                Step::Get { key, without_value } => {
                    let entry = now[*key].clone().map(|entry| convert::entry(entry, !without_value));
                    // A value put by this transaction has no version yet.
                    if entry.as_ref().is_some_and(|entry| entry.version == 0) {
                        lack_versions.push((at, *key));
                    }
                    Answer::Get(pb::GetResponse { entry })
                }
                Step::Put { key, put, expires_at_ms } => {
                    let before = now[*key].take();
                    let expires_at_ms = kept_expiry(before.as_ref(), put.keep_expiry, *expires_at_ms);
                    let (name, value) = (self.keys[*key].clone(), put.value.clone());
                    put_into(&mut batch, name.clone(), value.clone(), expires_at_ms);
                    now[*key] = Some(Entry { key: name, value, version: 0, expires_at_ms });
                    lack_versions.push((at, *key));
                    let previous =
                        previous(before.as_ref().filter(|_| put.return_previous), self.value_bytes_max);
                    Answer::Put(pb::PutResponse { version: 0, previous })
                }
                Step::Delete { key, return_previous } => {
                    let before = now[*key].take();
                    batch.delete(self.keys[*key].clone());
                    let previous =
                        previous(before.as_ref().filter(|_| *return_previous), self.value_bytes_max);
                    Answer::Delete(pb::DeleteResponse { existed: before.is_some(), previous })
                }
            };
            bytes += bytes_of(&answer);
            check_answer(bytes, self.value_bytes_max)?;
            results.push(pb::TxnResult { result: Some(answer) });
        }
        Ok((batch, Done { succeeded, results, lack_versions }))
    }
}

/// Returns the bytes of a result in the message.
fn bytes_of(answer: &Answer) -> usize {
    let entry = match answer {
        Answer::Get(get) => &get.entry,
        Answer::Put(put) => &put.previous,
        Answer::Delete(delete) => &delete.previous,
    };
    ENTRY_BYTES + entry.as_ref().map_or(0, |entry| entry.key.len() + entry.value.len())
}

/// Returns the index of a key, which must be present.
fn place(keys: &[Bytes], key: &Bytes) -> usize {
    keys.binary_search(key).expect("the list has every key of the transaction")
}

impl Compare {
    fn of(keys: &[Bytes], compare: pb::Compare, wrong: impl Fn(&str) -> Status) -> Result<Compare, Status> {
        let relation = pb::Relation::try_from(compare.relation).map_err(|_| wrong("has no relation"))?;
        let target = match compare.target {
            None | Some(Target::Absent(false) | Target::Present(false)) => {
                return Err(wrong("has no target; it is absent: true, present: true, a value or a version"));
            }
            Some(Target::Absent(true) | Target::Present(true)) if relation != pb::Relation::Unspecified => {
                return Err(wrong("has a relation, which only value and version have"));
            }
            Some(target) => target,
        };
        Ok(Compare { key: place(keys, &compare.key), target, relation })
    }

    fn holds(&self, entry: Option<&Entry>) -> bool {
        let ordering = match &self.target {
            Target::Absent(_) => return entry.is_none(),
            Target::Present(_) => return entry.is_some(),
            Target::Value(value) => match entry {
                Some(entry) => entry.value.cmp(value),
                None => return false,
            },
            Target::Version(version) => version_of(entry).unwrap_or(0).cmp(version),
        };
        match self.relation {
            pb::Relation::Unspecified | pb::Relation::Equal => ordering == Ordering::Equal,
            pb::Relation::NotEqual => ordering != Ordering::Equal,
            pb::Relation::Less => ordering == Ordering::Less,
            pb::Relation::Greater => ordering == Ordering::Greater,
        }
    }
}

impl Step {
    fn of(
        call: &Call,
        keys: &[Bytes],
        operation: pb::TxnOperation,
        wrong: impl Fn(&str) -> Status,
    ) -> Result<Step, Status> {
        match operation.operation {
            None => Err(wrong("is neither get nor put nor delete")),
            Some(Operation::Get(txn_operation::Get { key, without_value })) => {
                Ok(Step::Get { key: place(keys, &key), without_value })
            }
            Some(Operation::Put(put)) => {
                let expires_at_ms = expires_at_ms(&call.store, put.expiry)?;
                Ok(Step::Put { key: place(keys, &put.key), put, expires_at_ms })
            }
            Some(Operation::Delete(txn_operation::Delete { key, return_previous })) => {
                Ok(Step::Delete { key: place(keys, &key), return_previous })
            }
        }
    }

    /// Returns true if the step writes, and the index of its key.
    fn key(&self) -> (bool, usize) {
        match self {
            Step::Get { key, .. } => (false, *key),
            Step::Put { key, .. } | Step::Delete { key, .. } => (true, *key),
        }
    }
}
