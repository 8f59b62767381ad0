//! Messages of the hello, and the proofs that both sides know the secret. See the documentation of [`wire`](super).

use bytes::{Buf, BufMut, Bytes};
use ring::hmac;

use super::frame::HEAD_BYTES;
use super::refusal::{Refusal, RefusalReason};
use super::settings::Secret;
use crate::input::{get_bool, get_text, put_text};
use crate::levels::Levels;
use crate::peers::NodeIdentity;
use crate::sightings::{HISTORY_BYTES, StartHistory};

const MAGIC: &[u8; 4] = b"ESKW";

/// Maximum length of an advertised address, in bytes: a name of 255, and a port.
pub(super) const ADDRESS_BYTES_MAX: usize = 262;
/// Maximum payload of a hello, a challenge and a welcome.
pub(super) const HELLO_BYTES_MAX: usize = 476;
/// Maximum payload of a proof.
pub(super) const PROOF_BYTES_MAX: usize = 32;
/// Maximum payload of a refusal.
pub(super) const REFUSED_BYTES_MAX: usize = 512;

// A peer that has not authenticated sends two frames: a hello, and a proof or a refusal.
const _: () = assert!(2 * HEAD_BYTES + HELLO_BYTES_MAX + REFUSED_BYTES_MAX <= 1024);
// A hello is the longest: magic, versions, lane, secret and nonce before one side, whose address has two bytes of length.
const _: () = assert!(4 + 4 + 32 + 5 * 8 + HISTORY_BYTES + 2 + ADDRESS_BYTES_MAX <= HELLO_BYTES_MAX);

/// Random bytes of one side, drawn for each connection.
pub(super) type Nonce = [u8; 32];

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Lane {
    /// Requests of a known node.
    Main = 0,
    /// Parts of snapshots.
    Parts = 1,
    /// One request, before the nodes know each other.
    Once = 2,
}

/// One side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) identity: NodeIdentity,
    /// Random number of the process.
    pub(super) instance: u64,
    /// Advertised address.
    pub(super) address: String,
}

/// First frame, of the side that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Levels that it accepts.
    pub(super) levels: Levels,
    pub(super) lane: Lane,
    pub(super) has_secret: bool,
    pub(super) nonce: Nonce,
    pub(super) who: Who,
}

/// Second frame, of the side that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) version: u8,
    pub(super) has_secret: bool,
    pub(super) nonce: Nonce,
}

/// Last frame, of the side that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    pub(super) who: Who,
    pub(super) proof: Bytes,
}

fn get_nonce(from: &mut Bytes) -> Option<Nonce> {
    let mut nonce = Nonce::default();
    from.try_copy_to_slice(&mut nonce).ok().map(|()| nonce)
}

impl Who {
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        let NodeIdentity { cluster, node, store, starts, history } = self.identity;
        [cluster, node, store, starts, self.instance].into_iter().for_each(|number| to.put_u64_le(number));
        history.put(to);
        put_text(to, &self.address);
    }

    fn get(from: &mut Bytes) -> Option<Who> {
        let mut number = || from.try_get_u64_le().ok();
        let (cluster, node, store, starts) = (number()?, number()?, number()?, number()?);
        let instance = number()?;
        let history = StartHistory::take(from)?;
        let identity = NodeIdentity { cluster, node, store, starts, history };
        let is_address =
            |text: &String| text.len() <= ADDRESS_BYTES_MAX && text.chars().all(|c| c.is_ascii_graphic());
        Some(Who { identity, instance, address: get_text(from).filter(is_address)? })
    }
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = MAGIC.to_vec();
        to.put_slice(&[self.levels.lowest, self.levels.highest, self.lane as u8, self.has_secret.into()]);
        to.put_slice(&self.nonce);
        self.who.put(&mut to);
        to
    }

    pub(super) fn decode(mut from: Bytes) -> Option<Hello> {
        let mut magic = [0; 4];
        from.try_copy_to_slice(&mut magic).ok().filter(|()| magic == *MAGIC)?;
        let levels = Levels { lowest: from.try_get_u8().ok()?, highest: from.try_get_u8().ok()? };
        let number = from.try_get_u8().ok()?;
        let lane = [Lane::Main, Lane::Parts, Lane::Once].into_iter().find(|lane| *lane as u8 == number)?;
        let has_secret = get_bool(&mut from)?;
        let (nonce, who) = (get_nonce(&mut from)?, Who::get(&mut from)?);
        from.is_empty().then_some(Hello { levels, lane, has_secret, nonce, who })
    }

    /// Returns the level of the connection to a node that accepts `ours` in a cluster that uses `level`.
    pub(super) fn version(&self, ours: Levels, level: u8) -> Result<u8, Refusal> {
        ours.common(self.levels, level).ok_or_else(|| {
            let (supported, address) = (Levels::supported(), &self.who.address);
            let text = format!(
                "no common level of the protocol between nodes: the connecting node at {address} has {}, and the listening one \
                 accepts {ours} (its cluster uses level {level}, its program has {supported}); upgrade the older program",
                self.levels
            );
            Refusal::new(RefusalReason::Version, text)
        })
    }
}

impl Challenge {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = vec![self.version, self.has_secret.into()];
        to.put_slice(&self.nonce);
        to
    }

    pub(super) fn decode(mut from: Bytes, levels: Levels) -> Option<Challenge> {
        let (version, has_secret) = (from.try_get_u8().ok()?, get_bool(&mut from)?);
        let nonce = get_nonce(&mut from)?;
        (from.is_empty() && levels.contains(version)).then_some(Challenge { version, has_secret, nonce })
    }
}

impl Welcome {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        self.who.put(&mut to);
        to.put_slice(&self.proof);
        to
    }

    pub(super) fn decode(mut from: Bytes) -> Option<Welcome> {
        let who = Who::get(&mut from)?;
        (from.len() <= PROOF_BYTES_MAX).then_some(Welcome { who, proof: from })
    }
}

/// The exchange that both sides authenticate: the connecting side's proof covers the first two frames, and the listening
/// side's also its identity.
pub(super) struct Transcript<'m> {
    pub(super) hello: &'m [u8],
    pub(super) challenge: &'m [u8],
    /// Bytes that only the two ends of this TLS connection know, so that a proof cannot be passed on to another one.
    pub(super) binding: Option<[u8; 32]>,
}

/// Prefixes of the two proofs. They differ, so that the proof of one side is none of the other.
const CONNECTING: &[u8] = b"esker wire: connecting side\0";
const LISTENING: &[u8] = b"esker wire: listening side\0";

impl Transcript<'_> {
    /// The message whose code is a proof; `who` is the identity of the listening side in its own proof.
    fn message(&self, who: Option<&Who>) -> Vec<u8> {
        let mut message = if who.is_some() { LISTENING.to_vec() } else { CONNECTING.to_vec() };
        for part in [self.hello, self.challenge] {
            message.put_u32_le(part.len() as u32);
            message.put_slice(part);
        }
        message.put_u8(self.binding.is_some().into());
        message.put_slice(&self.binding.unwrap_or_default());
        if let Some(who) = who {
            who.put(&mut message);
        }
        message
    }

    /// Returns the proof of one side; without a secret, no bytes.
    pub(super) fn proof(&self, secret: Option<&Secret>, who: Option<&Who>) -> Bytes {
        let Some(secret) = secret else { return Bytes::new() };
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.bytes());
        Bytes::copy_from_slice(hmac::sign(&key, &self.message(who)).as_ref())
    }

    /// Compares a proof in constant time.
    pub(super) fn is_proof(&self, secret: Option<&Secret>, who: Option<&Who>, proof: &[u8]) -> bool {
        let Some(secret) = secret else { return proof.is_empty() };
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.bytes());
        hmac::verify(&key, &self.message(who), proof).is_ok()
    }
}
