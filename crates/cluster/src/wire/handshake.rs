//! The hello of a connection, from both sides.
//!
//! Both sides prove that they know the secret; the connecting side first, because a listening socket is easier to reach for a
//! stranger who would guess a weak secret from a proof.

use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use esker_seeded_bugs::{Bug, planted};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::frame::{FrameReader, HELLO_VERSION, Head, Kind, frame};
use super::hello::{
    Challenge, HELLO_BYTES_MAX, Hello, Lane, Nonce, PROOF_BYTES_MAX, REFUSED_BYTES_MAX, Transcript, Welcome,
    Who,
};
use super::refusal::{Refusal, RefusalReason as Reason};
use super::settings::Secret;
use super::tls::Channel;
use crate::levels::Levels;

/// The end of a hello without a connection.
#[derive(Debug)]
pub(super) enum Failed {
    /// The connection broke, or took too long.
    Io(io::Error),
    /// This node refused the peer.
    ByUs(Refusal),
    /// The peer refused this node.
    ByPeer(Refusal),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        match error.kind() {
            _ if is_of_tls(&error) => Failed::of_tls(error),
            io::ErrorKind::InvalidData => Failed::ByUs(Refusal::new(Reason::Malformed, error.to_string())),
            _ => Failed::Io(error),
        }
    }
}

fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

impl Failed {
    /// An error of a TLS connection, which may report the certificate of either side.
    pub(super) fn of_tls(error: io::Error) -> Failed {
        Failed::Io(match is_of_tls(&error) {
            true => io::Error::new(error.kind(), format!("TLS: {error}")),
            false => error,
        })
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Io(error) => error.fmt(f),
            Failed::ByUs(refusal) => write!(f, "refused: {refusal}"),
            Failed::ByPeer(refusal) => write!(f, "it refused the connection: {refusal}"),
        }
    }
}

/// Returns random bytes of the system.
pub(super) fn random() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    SystemRandom::new().fill(&mut nonce).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(nonce)
}

fn wrong_secret(which: &str) -> Refusal {
    let text = format!("{which} does not know the secret of the cluster; check cluster-secret on both nodes");
    Refusal::new(Reason::Secret, text)
}

fn secret_mismatch(here: bool) -> Refusal {
    let (with, without) = if here {
        ("the listening node", "the connecting one")
    } else {
        ("the connecting node", "the listening one")
    };
    let text =
        format!("{with} has a secret of the cluster and {without} has none; set cluster-secret on both");
    Refusal::new(Reason::Secret, text)
}

fn malformed(what: &str) -> Failed {
    Failed::ByUs(Refusal::new(Reason::Malformed, format!("{what} is damaged, or not of this protocol")))
}

/// State that both sides need for a hello: the connection, the secret, the own identity, the levels and the time.
pub(super) struct Handshake<'h> {
    pub(super) channel: &'h mut Channel,
    pub(super) secret: Option<&'h Secret>,
    pub(super) me: Who,
    /// Levels that this node accepts, and the one that its cluster uses.
    pub(super) levels: (Levels, u8),
    /// Time for the whole hello.
    pub(super) time: Duration,
}

impl Handshake<'_> {
    async fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let bytes = frame(HELLO_VERSION, kind, 0, |to| to.put_slice(payload));
        self.channel.writer.write_all(&bytes).await?;
        self.channel.writer.flush().await
    }

    async fn receive(&mut self, kind: Kind, bytes_max: usize) -> Result<Bytes, Failed> {
        // Without a buffer, because bytes after the hello belong to the next reader.
        let mut reader = FrameReader::new(&mut self.channel.reader, HELLO_VERSION, self.time, None);
        let (head, payload): (Head, Bytes) = reader.expect(kind, bytes_max.max(REFUSED_BYTES_MAX)).await?;
        if head.kind == Kind::Refused {
            let refusal = Refusal::decode(payload).ok_or_else(|| malformed("a refusal"))?;
            return Err(Failed::ByPeer(refusal));
        }
        match payload.len() <= bytes_max {
            true => Ok(payload),
            false => Err(malformed("a frame of the hello")),
        }
    }

    /// Performs the hello of the side that connects. `admit` accepts the other side with the version of
    /// the frames, or refuses it. Returns the version of the following frames.
    pub(super) async fn connect<T>(
        mut self,
        lane: Lane,
        admit: impl FnOnce(&Who, u8) -> Result<T, Refusal>,
    ) -> Result<(u8, T), Failed> {
        let done = timeout(self.time, self.connect_inner(lane, admit)).await;
        done.unwrap_or_else(|_| Err(Failed::Io(io::ErrorKind::TimedOut.into())))
    }

    async fn connect_inner<T>(
        &mut self,
        lane: Lane,
        admit: impl FnOnce(&Who, u8) -> Result<T, Refusal>,
    ) -> Result<(u8, T), Failed> {
        let (secret, has_secret) = (self.secret, self.secret.is_some());
        let (levels, _) = self.levels;
        let hello = Hello { levels, lane, has_secret, nonce: random()?, who: self.me.clone() };
        let hello = hello.encode();
        self.send(Kind::Hello, &hello).await?;
        let challenge_bytes = self.receive(Kind::Challenge, HELLO_BYTES_MAX).await?;
        let challenge =
            Challenge::decode(challenge_bytes.clone(), levels).ok_or_else(|| malformed("a challenge"))?;
        if challenge.has_secret != has_secret {
            return Err(Failed::ByUs(secret_mismatch(challenge.has_secret)));
        }
        let transcript =
            Transcript { hello: &hello, challenge: &challenge_bytes, binding: self.channel.binding };
        let proof = transcript.proof(secret, None);
        self.send(Kind::Proof, &proof).await?;
        let welcome = self.receive(Kind::Welcome, HELLO_BYTES_MAX).await?;
        let welcome = Welcome::decode(welcome).ok_or_else(|| malformed("a welcome"))?;
        let is_proof = transcript.is_proof(secret, Some(&welcome.who), &welcome.proof);
        if !is_proof && !planted(Bug::ListenerProofIgnored) {
            return Err(Failed::ByUs(wrong_secret("the listening node")));
        }
        let admitted = admit(&welcome.who, challenge.version).map_err(Failed::ByUs)?;
        Ok((challenge.version, admitted))
    }

    /// Performs the hello of the side that listens. `admit` accepts the other side with the version of
    /// the frames, or refuses it. Returns the version of the following frames.
    pub(super) async fn accept<T>(
        mut self,
        admit: impl FnOnce(&Who, Lane, u8) -> Result<T, Refusal>,
    ) -> Result<(u8, T), Failed> {
        let done = timeout(self.time, self.accept_inner(admit)).await;
        done.unwrap_or_else(|_| Err(Failed::Io(io::ErrorKind::TimedOut.into())))
    }

    async fn accept_inner<T>(
        &mut self,
        admit: impl FnOnce(&Who, Lane, u8) -> Result<T, Refusal>,
    ) -> Result<(u8, T), Failed> {
        let (secret, has_secret) = (self.secret, self.secret.is_some());
        let hello_bytes = self.receive(Kind::Hello, HELLO_BYTES_MAX).await?;
        let hello = Hello::decode(hello_bytes.clone()).ok_or_else(|| malformed("a hello"))?;
        let version = hello.version(self.levels.0, self.levels.1).map_err(Failed::ByUs)?;
        if hello.has_secret != has_secret {
            return Err(Failed::ByUs(secret_mismatch(has_secret)));
        }
        let nonce = if planted(Bug::ChallengeRepeats) { Nonce::default() } else { random()? };
        let challenge = Challenge { version, has_secret, nonce }.encode();
        self.send(Kind::Challenge, &challenge).await?;
        let proof = self.receive(Kind::Proof, PROOF_BYTES_MAX).await?;
        let transcript =
            Transcript { hello: &hello_bytes, challenge: &challenge, binding: self.channel.binding };
        if !transcript.is_proof(secret, None, &proof) && !planted(Bug::ConnectorProofIgnored) {
            return Err(Failed::ByUs(wrong_secret("the connecting node")));
        }
        let admitted = admit(&hello.who, hello.lane, version).map_err(Failed::ByUs)?;
        let proof = transcript.proof(secret, Some(&self.me));
        let welcome = Welcome { who: self.me.clone(), proof };
        self.send(Kind::Welcome, &welcome.encode()).await?;
        Ok((version, admitted))
    }
}

/// Time and bytes that are read from a refused peer, so that it reads the refusal before the connection is reset.
const FAREWELL: (Duration, u64) = (Duration::from_millis(500), 256 << 10);

/// Tells the peer why it is refused, and closes the connection.
pub(super) async fn farewell(channel: &mut Channel, refusal: &Refusal) {
    let bytes = frame(HELLO_VERSION, Kind::Refused, 0, |to| refusal.put(to));
    let Channel { reader, writer, .. } = channel;
    let said = async {
        writer.write_all(&bytes).await?;
        writer.shutdown().await?;
        tokio::io::copy(&mut reader.take(FAREWELL.1), &mut tokio::io::sink()).await
    };
    // The peer may have gone, or not listen; the connection ends in any case.
    let _ = timeout(FAREWELL.0, said).await;
}
