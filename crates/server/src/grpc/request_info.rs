//! Common properties of unary requests: method name, keys for the slow log, and write options.

use std::time::Duration;

use bytes::Bytes;

use super::call::Call;
use super::pb;
use super::pb::operation::Write;
use super::rights::Rights;
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

    fn about(&self) -> About;

    /// Returns the write options, if the request has any.
    fn options(&mut self) -> Option<&mut pb::WriteOptions> {
        None
    }
}

macro_rules! asked {
    ($($request:ident $method:literal: $($writes:ident)?;)*) => {
        $(impl Asked for pb::$request {
            const METHOD: &str = $method;

            fn about(&self) -> About {
                About::key(&self.key)
            }

            $(fn options(&mut self) -> Option<&mut pb::WriteOptions> {
                self.$writes.as_mut()
            })?
        })*
    };
}

asked! {
    GetRequest "Get":;
    HeadRequest "Head":;
    PutRequest "Put": options;
    DeleteRequest "Delete": options;
    CompareAndSwapRequest "CompareAndSwap": options;
    IncrementRequest "Increment": options;
    TouchRequest "Touch": options;
}

impl Asked for pb::MultiGetRequest {
    const METHOD: &str = "MultiGet";

    fn about(&self) -> About {
        About::keys(self.keys.iter())
    }
}

impl Asked for pb::BatchRequest {
    const METHOD: &str = "Batch";

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

    fn about(&self) -> About {
        let of_operations = self.success.iter().chain(&self.failure).filter_map(super::txn::key_of);
        About::keys(self.compares.iter().map(|compare| &compare.key).chain(of_operations))
    }

    fn options(&mut self) -> Option<&mut pb::WriteOptions> {
        self.options.as_mut()
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
