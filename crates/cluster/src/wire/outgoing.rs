//! Connections to other nodes.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::frame::{FrameReader, Heard, Kind, check_length, frame};
use super::handshake::{Failed, Handshake, farewell};
use super::hello::Lane;
use super::link::{Answer, Link};
use super::members::Way;
use super::messages::decode_response;
use super::refusal::{Refusal, RefusalReason as Reason};
use super::shared::{Seat, Shared};
use super::tls::{self, Channel};

/// Maximum length of an answer, in bytes.
pub(super) const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Buffers of a connection, in bytes.
pub(super) const BUFFER_BYTES: usize = 32 << 10;

/// An established connection.
pub(super) struct Session {
    pub(super) channel: Channel,
    /// Version of the frames.
    pub(super) version: u8,
    pub(super) seat: Seat,
    /// Completes when the connection has to end.
    pub(super) kicked: oneshot::Receiver<Refusal>,
}

/// Connects to an address and performs the hello. `expected`: the number of the node there, if it is known.
pub(super) async fn dial(
    shared: &Arc<Shared>,
    address: &str,
    lane: Lane,
    expected: Option<u64>,
) -> Result<Session, Failed> {
    let limits = &shared.settings.limits;
    let late =
        |what: &str| Failed::Io(io::Error::new(io::ErrorKind::TimedOut, format!("{what} takes too long")));
    let stream = timeout(limits.dial_timeout, TcpStream::connect(address)).await;
    let stream = stream.map_err(|_| late("the connection"))?.map_err(Failed::Io)?;
    stream.set_nodelay(true).map_err(Failed::Io)?;
    let tls = shared.tls();
    let channel = timeout(limits.hello_timeout, tls::connected(tls.as_deref(), stream, address)).await;
    let mut channel = channel.map_err(|_| late("the TLS handshake"))?.map_err(Failed::of_tls)?;
    let handshake = Handshake {
        channel: &mut channel,
        secret: shared.settings.secret.as_ref(),
        me: shared.who(),
        levels: shared.levels(),
        time: limits.hello_timeout,
    };
    let admitted = handshake.connect(lane, |who, version| {
        let is_another = expected.is_some_and(|node| node != who.identity.node);
        if is_another && who.instance != shared.instance {
            let text = format!(
                "node {} answers at {address}, the address of node {}",
                who.identity.node,
                expected.unwrap_or_default()
            );
            return Err(Refusal::new(Reason::OtherNode, text));
        }
        shared.admit(who, Way::Out(lane), version)
    });
    match admitted.await {
        Ok((version, (seat, kicked))) => Ok(Session { channel, version, seat, kicked }),
        Err(failed) => {
            shared.part(&mut channel, &failed, address).await;
            Err(failed)
        }
    }
}

impl Shared {
    /// Logs the end of a hello, and tells the peer a refusal by this node.
    pub(super) async fn part(&self, channel: &mut Channel, failed: &Failed, peer: &str) {
        match failed {
            Failed::ByUs(refusal) => {
                self.refusals.note(true, peer, refusal);
                farewell(channel, refusal).await;
            }
            Failed::ByPeer(refusal) => self.refusals.note(false, peer, refusal),
            Failed::Io(error) => tracing::debug!(peer, %error, "no connection between nodes"),
        }
    }
}

/// Keeps a link connected: an immediate attempt for requests, the first call for parts of snapshots.
pub(super) async fn keep(shared: Arc<Shared>, link: Arc<Link>, node: u64, address: String, heard: Heard) {
    let (first, most) = shared.settings.limits.backoff;
    let mut pause = first;
    loop {
        if link.lane == Lane::Parts && !link.has_calls() {
            link.work.notified().await;
        }
        let why = match dial(&shared, &address, link.lane, Some(node)).await {
            Err(failed) => failed.to_string(),
            Ok(session) => {
                pause = first;
                link.up();
                tracing::debug!(node, address, lane = ?link.lane, "connected to another node");
                converse(&shared, &link, session, Some(heard.clone())).await
            }
        };
        link.down(&format!("node {node} at {address}: {why}"));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = link.hurry.notified() => {}
        }
        pause = (pause * 2).min(most);
        if link.lane == Lane::Parts {
            link.renew();
        }
    }
}

/// Sends requests and receives answers until the connection ends. Returns the reason.
pub(super) async fn converse(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    session: Session,
    heard: Option<Heard>,
) -> String {
    let Session { channel, version, seat, kicked } = session;
    let session_node = seat.node;
    let limits = &shared.settings.limits;
    if let Some(heard) = &heard {
        heard.note();
    }
    let reader = BufReader::with_capacity(BUFFER_BYTES, channel.reader);
    let reader = FrameReader::new(reader, version, limits.silence_max, heard);
    let ticks = async {
        loop {
            tokio::time::sleep(limits.ping_interval).await;
            link.expire(limits);
        }
    };
    let ended: io::Result<Infallible> = tokio::select! {
        ended = receive(shared, link, reader, session_node) => ended,
        ended = send(shared, link, version, channel.writer) => ended,
        refusal = kicked => return refusal.map_or_else(|_| "it ended".into(), |refusal| refusal.text),
        () = ticks => unreachable!("it has no end"),
    };
    let Err(error) = ended;
    if let Some(refusal) = error.get_ref().and_then(|inner| inner.downcast_ref::<Told>()) {
        shared.refusals.note(false, &channel.peer.to_string(), &refusal.0);
    }
    format!("the connection was lost: {error}")
}

/// A refusal that the peer sent after the hello.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Told(Refusal);

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn receive(
    shared: &Shared,
    link: &Link,
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    node: Option<u64>,
) -> io::Result<Infallible> {
    loop {
        let head = reader.head().await?;
        check_length(&head, if head.kind == Kind::Ping { 0 } else { RESPONSE_BYTES_MAX })?;
        let mut payload = reader.payload(&head).await?;
        match head.kind {
            Kind::Ping => {}
            Kind::Response => {
                let position =
                    payload.try_get_u64_le().map_err(|_| invalid("an answer without a position"))?;
                // Before the answer has an effect.
                node.into_iter().for_each(|node| shared.note_position(node, position));
                link.complete(head.id, answer(payload));
            }
            Kind::Refused => {
                let refusal = Refusal::decode(payload).ok_or_else(|| invalid("a refusal is damaged"))?;
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, Told(refusal)));
            }
            kind => return Err(invalid(format!("a frame {kind:?} instead of an answer"))),
        }
    }
}

fn answer(payload: Bytes) -> Answer {
    let answer = decode_response(payload);
    answer.ok_or_else(|| "the answer is damaged, or of a kind that this version does not know".to_owned())
}

async fn send(
    shared: &Shared,
    link: &Link,
    version: u8,
    writer: impl AsyncWrite + Unpin,
) -> io::Result<Infallible> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
    let ping = frame(version, Kind::Ping, 0, |_| {});
    loop {
        let Some(first) = link.next(version) else {
            if timeout(shared.settings.limits.ping_interval, link.work.notified()).await.is_err() {
                writer.write_all(&ping).await?;
                writer.flush().await?;
            }
            continue;
        };
        writer.write_all(&first).await?;
        // The other tasks that are ready first: requests of all groups, such as their heartbeats, share a write to the socket.
        yield_now().await;
        while let Some(frame) = link.next(version) {
            writer.write_all(&frame).await?;
        }
        writer.flush().await?;
    }
}

/// Sends one request to an address, and returns the answer.
pub(super) async fn ask(shared: &Arc<Shared>, address: &str, frame: Vec<u8>) -> Answer {
    let session = dial(shared, address, Lane::Once, None).await;
    let session = session.map_err(|failed| format!("{address}: {failed}"))?;
    let link = Link::new(Lane::Once);
    link.up();
    let answer = link.call(frame, &shared.settings.limits)?;
    tokio::select! {
        answer = answer => answer.map_err(|why| format!("{address}: {why}")),
        why = converse(shared, &link, session, None) => Err(format!("{address}: {why}")),
    }
}
