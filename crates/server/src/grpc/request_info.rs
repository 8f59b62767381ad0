//! Common properties of unary requests: method name, keys for the slow log, and write options.

use std::time::Duration;

use bytes::Bytes;
use tonic::{Code, Status};

use super::call::Call;
use super::cluster::{Effect, is_on_version};
use super::error::no_versions;
use super::pb;
use super::pb::compare::Target;
use super::pb::compare_and_swap_request::Expected;
use super::pb::operation::Write;
use super::rights::Rights;
use crate::service::traces::{Protocol, Request};
use crate::service::{Service, wall_clock_ms};

/// Maximum bytes of a key in the slow log.
const KEY_BYTES_MAX: usize = 128;

/// Keys of a request, for the slow log: the first key, and the number of further keys.
#[derive(Default)]
pub(super) struct About {
    key: Option<Bytes>,
    more: usize,
}

impl About {
    fn key(key: &Bytes) -> About {
        About { key: Some(key.clone()), more: 0 }
    }

    fn keys<'a>(mut keys: impl Iterator<Item = &'a Bytes>) -> About {
        About { key: keys.next().cloned(), more: keys.count() }
    }
}

/// A unary request.
pub(super) trait Asked: prost::Message + Rights + Default + 'static {
    const METHOD: &str;

    /// The writes of the call, if its answer is no error.
    const EFFECT: Effect;

    /// True if all keys must be in one slot of a cluster.
    const IS_ATOMIC: bool = false;

    fn about(&self) -> About;

    /// Returns true if the request compares a version.
    fn compares_version(&self) -> bool {
        false
    }

    /// Returns the write options, if the request has any.
    fn options(&mut self) -> Option<&mut pb::WriteOptions> {
        None
    }
}

macro_rules! asked {
    ($($request:ident $method:literal $effect:ident: $($writes:ident)? $(, $compares:expr)?;)*) => {
        $(impl Asked for pb::$request {
            const METHOD: &str = $method;
            const EFFECT: Effect = Effect::$effect;

            fn about(&self) -> About {
                About::key(&self.key)
            }

            $(fn compares_version(&self) -> bool {
                let compares: fn(&Self) -> bool = $compares;
                compares(self)
            })?

            $(fn options(&mut self) -> Option<&mut pb::WriteOptions> {
                self.$writes.as_mut()
            })?
        })*
    };
}

asked! {
    GetRequest "Get" None:;
    HeadRequest "Head" None:;
    PutRequest "Put" Certain: options, |put| is_on_version(put.condition.as_ref());
    DeleteRequest "Delete" Possible: options, |delete| is_on_version(delete.condition.as_ref());
    CompareAndSwapRequest "CompareAndSwap" Possible: options, |swap| matches!(swap.expected, Some(Expected::Version(_)));
    IncrementRequest "Increment" Certain: options;
    TouchRequest "Touch" Possible: options, |touch| is_on_version(touch.condition.as_ref());
}

impl Asked for pb::MultiGetRequest {
    const METHOD: &str = "MultiGet";
    const EFFECT: Effect = Effect::None;

    fn about(&self) -> About {
        About::keys(self.keys.iter())
    }
}

impl Asked for pb::BatchRequest {
    const METHOD: &str = "Batch";
    const EFFECT: Effect = Effect::Certain;
    const IS_ATOMIC: bool = true;

    fn about(&self) -> About {
        About::keys(self.operations.iter().filter_map(|operation| match operation.write.as_ref()? {
            Write::Put(put) => Some(&put.key),
            Write::Delete(key) => Some(key),
        }))
    }

    fn options(&mut self) -> Option<&mut pb::WriteOptions> {
        self.options.as_mut()
    }
}

impl Asked for pb::TxnRequest {
    const METHOD: &str = "Txn";
    const EFFECT: Effect = Effect::Possible;
    const IS_ATOMIC: bool = true;

    fn about(&self) -> About {
        let of_operations = self.success.iter().chain(&self.failure).filter_map(super::txn::key_of);
        About::keys(self.compares.iter().map(|compare| &compare.key).chain(of_operations))
    }

    fn compares_version(&self) -> bool {
        self.compares.iter().any(|compare| matches!(compare.target, Some(Target::Version(_))))
    }

    fn options(&mut self) -> Option<&mut pb::WriteOptions> {
        self.options.as_mut()
    }
}

/// Checks a request whose rights were checked for a cluster: its keys, and that it compares no version.
pub(super) fn check_in_cluster<Q: Asked>(asked: &Q, call: &Call) -> Result<(), Status> {
    match &call.cluster {
        Some(_) if asked.compares_version() => Err(no_versions()),
        Some(cluster) if Q::IS_ATOMIC => cluster.check_one_slot(),
        _ => Ok(()),
    }
}

/// Records a call in the slow log if it was slow.
pub(super) fn note_if_slow<Q: Asked>(service: &Service, call: &Call, about: About, took: Duration) {
    let took_us = took.as_micros() as u64;
    if !service.slowlog.is_slow(took_us) {
        return;
    }
    let mut arguments = vec![format!("esker.v1.Esker/{}", Q::METHOD).into_bytes()];
    if let Some(key) = about.key {
        let mut shown = key[..key.len().min(KEY_BYTES_MAX)].to_vec();
        if shown.len() < key.len() {
            shown.extend_from_slice(format!("... ({} more bytes)", key.len() - shown.len()).as_bytes());
        }
        arguments.push(shown);
    }
    if about.more > 0 {
        arguments.push(format!("... ({} more keys)", about.more).into_bytes());
    }
    let name = call.user.name().as_bytes().to_vec();
    service.slowlog.note(wall_clock_ms() / 1000, took_us, arguments, call.client.peer.clone(), name);
}

/// Notes a call with its outcome for the traces if it was slow.
pub(super) fn trace_if_slow<Q: Asked>(service: &Service, call: &Call, code: Code, took: Duration) {
    if let Some(traces) = service.traces.as_ref().filter(|traces| traces.is_slow(took)) {
        let (database, peer, parent) = (call.database, &call.client.peer, call.parent);
        let protocol = Protocol::Grpc { code };
        traces.note(Request { name: Q::METHOD, protocol, database, peer, parent }, took);
    }
}
