//! Connections of other nodes, and their requests.

use std::convert::Infallible;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use super::frame::{FrameReader, HEAD_BYTES, Head, Heard, Kind, check_length, frame};
use super::handshake::{Handshake, farewell};
use super::hello::{Lane, REFUSED_BYTES_MAX, Who};
use super::members::Way;
use super::messages::{decode_request, put_response};
use super::outgoing::{BUFFER_BYTES, RESPONSE_BYTES_MAX, Session};
use super::refusal::{Refusal, RefusalReason as Reason};
use super::shared::{PERMIT_BYTES, Shared};
use super::tls;
use crate::peers::{PeerHandler, PeerRequest, PeerResponse};

/// Memory of a request in work besides its bytes, in bytes.
const REQUEST_BYTES: usize = 4 << 10;

/// Maximum length of a request of a node that is not a member, in bytes.
const GUEST_BYTES_MAX: usize = 16 << 10;

/// Pause after a failed accept, as when no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer on its way, with the memory of its request.
type Outbound = (u64, PeerResponse, OwnedSemaphorePermit);

/// Accepts connections until the wire is stopped.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener, handler: Arc<dyn PeerHandler>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection of another node was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = shared.unauthenticated.clone().try_acquire_owned() else {
            let most = shared.settings.limits.unauthenticated_max;
            let text = format!("{most} connections have not authenticated yet (unauthenticated_max)");
            shared.refusals.note(true, &peer.to_string(), &Refusal::new(Reason::TooMany, text));
            continue;
        };
        let served = serve(shared.clone(), stream, permit, handler.clone());
        shared.spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%peer, %error, "a connection of another node ended");
            }
        });
    }
}

async fn serve(
    shared: Arc<Shared>,
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    handler: Arc<dyn PeerHandler>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let peer = stream.peer_addr()?.to_string();
    let limits = &shared.settings.limits;
    let deadline = Instant::now() + limits.hello_timeout;
    let tls = shared.tls();
    let channel = timeout(limits.hello_timeout, tls::accepted(tls.as_deref(), stream)).await?;
    let mut channel = channel.inspect_err(|error| shared.note_tls(&peer, error))?;
    let handshake = Handshake {
        channel: &mut channel,
        secret: shared.settings.secret.as_ref(),
        me: shared.who(),
        levels: shared.levels(),
        time: deadline.saturating_duration_since(Instant::now()),
    };
    let admitted = handshake.accept(|who, lane, version| {
        let (seat, kicked) = shared.admit(who, Way::In(lane), version)?;
        Ok((seat, kicked, who.clone(), lane))
    });
    let (version, (seat, kicked, who, lane)) = match admitted.await {
        Ok(admitted) => admitted,
        Err(failed) => {
            shared.part(&mut channel, &failed, &peer).await;
            return Err(io::Error::other(failed.to_string()));
        }
    };
    drop(permit);
    let session = Session { channel, version, seat, kicked };
    shared.welcome(session.seat.node, lane);
    handle(&shared, session, Guest { handler, who, lane }).await
}

/// The peer of an incoming connection.
struct Guest {
    handler: Arc<dyn PeerHandler>,
    who: Who,
    lane: Lane,
}

/// Handles requests until the connection ends.
async fn handle(shared: &Arc<Shared>, session: Session, guest: Guest) -> io::Result<()> {
    let Session { mut channel, version, seat, kicked } = session;
    let heard = seat.node.and_then(|node| shared.heard(node));
    if let Some(heard) = &heard {
        heard.note();
    }
    // Its length is bounded by the memory for requests in work.
    let (answers, outbound) = mpsc::unbounded_channel();
    let handler = guest.handler.clone();
    let requests = Requests { shared, node: seat.node, guest, answers };
    let ended: io::Result<Infallible> = tokio::select! {
        ended = requests.receive(&mut channel.reader, version, heard) => ended,
        ended = answer(shared, version, &mut channel.writer, (outbound, handler)) => ended,
        _ = kicked => return Ok(()),
    };
    let Err(error) = ended;
    if error.kind() == io::ErrorKind::InvalidData {
        let refusal = Refusal::new(Reason::Malformed, error.to_string());
        let peer = channel.peer.to_string();
        shared.refusals.note(true, &peer, &refusal);
        farewell(&mut channel, &refusal).await;
    }
    Err(error)
}

struct Requests<'c> {
    shared: &'c Arc<Shared>,
    node: Option<u64>,
    guest: Guest,
    answers: mpsc::UnboundedSender<Outbound>,
}

impl Requests<'_> {
    async fn receive(
        &self,
        reader: impl AsyncRead + Unpin,
        version: u8,
        heard: Option<Heard>,
    ) -> io::Result<Infallible> {
        let limits = &self.shared.settings.limits;
        let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        let mut reader = FrameReader::new(reader, version, limits.silence_max, heard);
        let most = if self.node.is_some() { limits.frame_bytes_max } else { GUEST_BYTES_MAX };
        loop {
            let head = reader.head().await?;
            match head.kind {
                Kind::Ping => check_length(&head, 0)?,
                Kind::Request => check_length(&head, most)?,
                // The peer does not accept this node, which proved its identity last.
                Kind::Refused => {
                    check_length(&head, REFUSED_BYTES_MAX)?;
                    let refusal = Refusal::decode(reader.payload(&head).await?);
                    let what = refusal.as_ref().map_or_else(String::new, |refusal| refusal.text.clone());
                    if let Some(refusal) = refusal {
                        self.shared.refusals.note(false, &self.guest.who.address, &refusal);
                    }
                    return Err(io::Error::new(io::ErrorKind::ConnectionRefused, what));
                }
                kind => {
                    let what = format!("a frame {kind:?} instead of a request");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
            }
            // Until there is room, nothing is read, and the sender's queue fills up.
            let permit = match head.kind {
                Kind::Request => Some(self.room(&head).await?),
                _ => None,
            };
            let payload = reader.payload(&head).await?;
            if let Some(permit) = permit {
                self.handle(head.id, payload, permit);
            }
        }
    }

    async fn room(&self, head: &Head) -> io::Result<OwnedSemaphorePermit> {
        let budget = &self.shared.budgets[usize::from(self.guest.lane == Lane::Parts)];
        let permits = (head.length + REQUEST_BYTES).div_ceil(PERMIT_BYTES);
        let most = self.shared.settings.limits.incoming_bytes_max / PERMIT_BYTES;
        let room = budget.clone().acquire_many_owned(permits.min(most) as u32).await;
        room.map_err(io::Error::other)
    }

    fn handle(&self, id: u64, payload: Bytes, permit: OwnedSemaphorePermit) {
        let (answers, handler, node) = (self.answers.clone(), self.guest.handler.clone(), self.node);
        let request = decode_request(payload)
            .ok_or_else(|| "the request is damaged, or of a kind that this version does not know".to_owned())
            .and_then(|request| self.check(request));
        self.shared.spawn(async move {
            let response = match request {
                Err(why) => PeerResponse::Refused(why),
                Ok(request) => {
                    // The handler is made within, because it may panic before it returns a future, too.
                    let handled = AssertUnwindSafe(async move { handler.handle(node, request).await });
                    handled.catch_unwind().await.unwrap_or_else(|_| {
                        tracing::error!("the handler of a request of another node panicked");
                        PeerResponse::Refused(
                            "the handler of the request panicked; see the log of the node".into(),
                        )
                    })
                }
            };
            // Without a receiver the connection has ended.
            let _ = answers.send((id, response, permit));
        });
    }

    /// Checks that a node that is not a member asks for nothing but to become one, with its own store.
    fn check(&self, request: PeerRequest) -> Result<PeerRequest, String> {
        if self.node.is_some() {
            return Ok(request);
        }
        match &request {
            PeerRequest::Join(record) if record.store == self.guest.who.identity.store => Ok(request),
            PeerRequest::Join(record) => Err(format!(
                "a node with the store {:016x} asks to join with the store {:016x}",
                self.guest.who.identity.store, record.store
            )),
            _ => Err("the node is not a member of the cluster, and can only ask to join".into()),
        }
    }
}

/// Sends answers, and pings while there are none.
async fn answer(
    shared: &Shared,
    version: u8,
    writer: impl AsyncWrite + Unpin,
    (mut outbound, handler): (mpsc::UnboundedReceiver<Outbound>, Arc<dyn PeerHandler>),
) -> io::Result<Infallible> {
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, writer);
    let ping = frame(version, Kind::Ping, 0, |_| {});
    loop {
        let mut next = outbound.try_recv().ok();
        if next.is_none() {
            // Answers of the other tasks that are ready share a write to the socket.
            yield_now().await;
            next = outbound.try_recv().ok();
        }
        let next = match next {
            Some(next) => Some(next),
            None => {
                writer.flush().await?;
                timeout(shared.settings.limits.ping_interval, outbound.recv()).await.unwrap_or_default()
            }
        };
        match next {
            None => writer.write_all(&ping).await?,
            Some((id, response, permit)) => {
                let bytes = encoded(version, id, (handler.position(), &response));
                // A peer that reads no answers would keep the memory of its requests.
                timeout(shared.settings.limits.request_timeout, writer.write_all(&bytes)).await??;
                drop(permit);
            }
        }
    }
}

fn encoded(version: u8, id: u64, (position, response): (u64, &PeerResponse)) -> Vec<u8> {
    let encode = |response: &PeerResponse| {
        frame(version, Kind::Response, id, |to| {
            to.put_u64_le(position);
            put_response(to, response);
        })
    };
    let bytes = encode(response);
    if bytes.len() - HEAD_BYTES <= RESPONSE_BYTES_MAX {
        return bytes;
    }
    let length = bytes.len() - HEAD_BYTES;
    encode(&PeerResponse::Refused(format!(
        "the answer has {length} bytes, and at most {RESPONSE_BYTES_MAX} are sent"
    )))
}

impl Shared {
    /// Logs a failed TLS handshake as a refusal. Probes that only check the open port are left out.
    fn note_tls(&self, peer: &str, error: &io::Error) {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        if !matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
            let text = format!("the TLS handshake failed: {error}");
            self.refusals.note(true, peer, &Refusal::new(Reason::Tls, text));
        }
    }
}
