//! Bytes of other nodes, for fuzzing: any bytes are decoded as every message. A panic is a failure.

use std::fmt::Debug;

use bytes::Bytes;

use super::frame::{HEAD_BYTES, Head};
use super::hello::{Challenge, Hello, Welcome};
use super::messages::{decode_request, decode_response, put_request, put_response};
use super::refusal::Refusal;
use crate::group::{decode_entry, encode_entry};
use crate::levels::Levels;

/// Checks that a message that was decoded survives encoding and decoding unchanged.
fn survives<T: Debug>(bytes: &Bytes, decode: impl Fn(Bytes) -> Option<T>, encode: impl Fn(&T) -> Vec<u8>) {
    if let Some(message) = decode(bytes.clone()) {
        let again = decode(encode(&message).into());
        assert_eq!(again.map(|again| format!("{again:?}")), Some(format!("{message:?}")));
    }
}

/// Decodes any bytes as a request, a response, each message of the hello, the head of a frame, and an entry of the log.
pub fn messages(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    survives(&bytes, decode_request, |request| {
        let mut to = Vec::new();
        put_request(&mut to, request);
        to
    });
    survives(&bytes, decode_response, |response| {
        let mut to = Vec::new();
        put_response(&mut to, response);
        to
    });
    survives(&bytes, Hello::decode, Hello::encode);
    let any = Levels { lowest: 0, highest: u8::MAX };
    survives(&bytes, |bytes| Challenge::decode(bytes, any), Challenge::encode);
    survives(&bytes, Welcome::decode, Welcome::encode);
    let level = bytes.first().copied().unwrap_or_default();
    survives(&bytes, |bytes| decode_entry(&bytes), |steps| encode_entry(level, steps.iter()).into());
    let _ = Refusal::decode(bytes.clone());
    if let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        let _ = Head::decode(head, 1).map(|head| head.check(&bytes[HEAD_BYTES..]));
    }
}
