//! The protocol, written a second time from its description: connections that send frames which no node sends.

use std::io;

use ring::hmac;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::SECRET;
use esker_cluster::wire::NodeIdentity;

pub(crate) const HELLO: u8 = 1;
pub(crate) const CHALLENGE: u8 = 2;
pub(crate) const PROOF: u8 = 3;
pub(crate) const WELCOME: u8 = 4;
pub(crate) const REFUSED: u8 = 5;
pub(crate) const REQUEST: u8 = 6;
pub(crate) const RESPONSE: u8 = 7;
pub(crate) const PING: u8 = 8;

const CONNECTING: &[u8] = b"esker wire: connecting side\0";
const LISTENING: &[u8] = b"esker wire: listening side\0";

/// Returns a frame.
pub(crate) fn frame(version: u8, kind: u8, id: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_le_bytes().to_vec();
    bytes.extend([version, kind]);
    bytes.extend(id.to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), payload);
    bytes.extend(sum.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Reads a frame that is not a ping. Returns its kind, request and payload.
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<(u8, u64, Vec<u8>)> {
    loop {
        let mut head = [0; 18];
        stream.read_exact(&mut head).await?;
        let length = u32::from_le_bytes(head[..4].try_into().expect("4 bytes"));
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await?;
        let id = u64::from_le_bytes(head[6..14].try_into().expect("8 bytes"));
        if head[5] != PING {
            return Ok((head[5], id, payload));
        }
    }
}

/// Returns the reason of the refusal that comes next. Panics if none comes.
pub(crate) async fn refused(stream: &mut TcpStream) -> u8 {
    let (kind, _, payload) = read(stream).await.expect("a refusal before the end");
    assert_eq!(kind, REFUSED, "{payload:?}");
    payload[0]
}

/// Waits for the end of a connection, whatever comes before.
pub(crate) async fn end(stream: &mut TcpStream) {
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

/// Returns a side as in a hello.
pub(crate) fn side(identity: NodeIdentity, instance: u64, address: &str) -> Vec<u8> {
    let NodeIdentity { cluster, node, store, starts, .. } = identity;
    let mut bytes: Vec<u8> =
        [cluster, node, store, starts, instance].into_iter().flat_map(u64::to_le_bytes).collect();
    // No start is known.
    bytes.extend([0; 8 * 16]);
    assert!(address.len() < 128, "one byte of length");
    bytes.push(address.len() as u8);
    bytes.extend(address.as_bytes());
    bytes
}

/// Returns a hello.
pub(crate) fn hello(versions: [u8; 2], lane: u8, nonce: [u8; 32], side: &[u8]) -> Vec<u8> {
    [b"ESKW", &versions[..], &[lane, 1], &nonce, side].concat()
}

/// Returns the proof of the connecting side, or with `side` of the listening one.
pub(crate) fn proof(secret: &str, hello: &[u8], challenge: &[u8], side: Option<&[u8]>) -> Vec<u8> {
    let mut message = if side.is_some() { LISTENING.to_vec() } else { CONNECTING.to_vec() };
    for part in [hello, challenge] {
        message.extend((part.len() as u32).to_le_bytes());
        message.extend(part);
    }
    message.extend([0; 33]);
    message.extend(side.unwrap_or_default());
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::sign(&key, &message).as_ref().to_vec()
}

/// Sends a hello with an identity, and the right proof. Returns the connection, the hello and the proof as they were sent.
async fn prove(address: &str, identity: NodeIdentity) -> (TcpStream, Vec<u8>, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let hello = hello([1, 1], 0, [3; 32], &side(identity, 77, "127.0.0.1:1"));
    stream.write_all(&frame(0, HELLO, 0, &hello)).await.expect("it is sent");
    let (kind, _, challenge) = read(&mut stream).await.expect("a challenge");
    assert_eq!(kind, CHALLENGE);
    let proof = proof(SECRET, &hello, &challenge, None);
    stream.write_all(&frame(0, PROOF, 0, &proof)).await.expect("it is sent");
    (stream, frame(0, HELLO, 0, &hello), frame(0, PROOF, 0, &proof))
}

/// As `prove`, and reads the welcome.
pub(crate) async fn connect(address: &str, identity: NodeIdentity) -> (TcpStream, Vec<u8>, Vec<u8>) {
    let (mut stream, hello, proof) = prove(address, identity).await;
    let (kind, _, welcome) = read(&mut stream).await.expect("a welcome");
    assert_eq!(kind, WELCOME, "{}", String::from_utf8_lossy(&welcome));
    (stream, hello, proof)
}

/// As `prove`, and returns the reason of the refusal.
pub(crate) async fn refusal_of(address: &str, identity: NodeIdentity) -> u8 {
    refused(&mut prove(address, identity).await.0).await
}
