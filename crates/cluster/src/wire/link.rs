//! Requests to one node on one connection, before they are sent and until they are answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{HEAD_BYTES, Kind, seal};
use super::hello::Lane;
use super::settings::WireLimits;
use crate::peers::PeerResponse;

/// The answer to a call, or the reason why there is none.
pub(super) type Answer = Result<PeerResponse, String>;

/// Requests to one node on one connection, which may be down.
pub(super) struct Link {
    pub(super) lane: Lane,
    state: Mutex<State>,
    /// Notified when a request is queued.
    pub(super) work: Notify,
    /// Notified when the node is known to be up, so that a pause before the next attempt ends.
    pub(super) hurry: Notify,
    /// Cancelled when the link is not used any more.
    pub(super) closed: CancellationToken,
}

struct State {
    phase: Phase,
    /// Unanswered calls by their numbers, which rise.
    calls: BTreeMap<u64, Call>,
    /// Numbers of the calls that wait to be sent.
    queue: BTreeSet<u64>,
    /// Bytes of frames that wait to be sent, with the one that is being written.
    queued_bytes: usize,
    /// Bytes of the frame that is being written.
    written_bytes: usize,
    next: u64,
}

enum Phase {
    /// No attempt to connect has ended yet: calls wait for the first one.
    New,
    Up,
    /// Calls fail with this text.
    Down(String),
}

struct Call {
    /// The frame with room for its head, until it is sent.
    frame: Option<Vec<u8>>,
    answer: oneshot::Sender<Answer>,
    deadline: Instant,
}

/// Removes a call when its future is dropped.
struct Slot {
    link: Arc<Link>,
    number: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.link.state.lock().remove(self.number);
    }
}

impl State {
    fn remove(&mut self, number: u64) -> Option<Call> {
        self.queue.remove(&number);
        let call = self.calls.remove(&number)?;
        self.queued_bytes -= call.frame.as_ref().map_or(0, Vec::len);
        Some(call)
    }
}

impl Link {
    pub(super) fn new(lane: Lane) -> Arc<Link> {
        let state = State {
            phase: Phase::New,
            calls: BTreeMap::new(),
            queue: BTreeSet::new(),
            queued_bytes: 0,
            written_bytes: 0,
            next: 1,
        };
        Arc::new(Link {
            lane,
            state: Mutex::new(state),
            work: Notify::new(),
            hurry: Notify::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Checks that there is a connection, or a first attempt.
    ///
    /// # Errors
    /// The text of the last failure.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.state.lock().phase {
            Phase::Down(why) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Queues a frame, which has room for its head. Dropping the future frees the memory of the call.
    ///
    /// # Errors
    /// A text: there is no connection, or a limit is reached.
    pub(super) fn call(
        self: &Arc<Link>,
        frame: Vec<u8>,
        limits: &WireLimits,
    ) -> Result<BoxFuture<'static, Answer>, String> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            if let Phase::Down(why) = &state.phase {
                return Err(why.clone());
            }
            let (waiting, most) = (state.queued_bytes, limits.outgoing_bytes_max);
            if waiting > 0 && waiting + frame.len() > most {
                return Err(format!(
                    "{waiting} bytes of requests wait to be sent, and {} more exceed outgoing_bytes_max = {most}",
                    frame.len()
                ));
            }
            if state.calls.len() >= limits.calls_max {
                return Err(format!(
                    "{} requests are unanswered, as many as calls_max allows",
                    state.calls.len()
                ));
            }
            let number = state.next;
            state.next += 1;
            state.queued_bytes += frame.len();
            state.queue.insert(number);
            let deadline = Instant::now() + limits.request_timeout;
            state.calls.insert(number, Call { frame: Some(frame), answer, deadline });
            number
        };
        self.work.notify_one();
        let slot = Slot { link: self.clone(), number };
        Ok(Box::pin(async move {
            let answer = answered.await;
            drop(slot);
            answer.unwrap_or_else(|_| Err("the connection was closed".into()))
        }))
    }

    /// Returns the next frame to be sent, with its head.
    pub(super) fn next(&self, version: u8) -> Option<Vec<u8>> {
        let (number, mut frame) = {
            let mut state = self.state.lock();
            state.queued_bytes -= std::mem::take(&mut state.written_bytes);
            let number = state.queue.pop_first()?;
            let frame = state.calls.get_mut(&number)?.frame.take()?;
            state.written_bytes = frame.len();
            (number, frame)
        };
        debug_assert!(frame.len() >= HEAD_BYTES);
        seal(&mut frame, version, Kind::Request, number);
        Some(frame)
    }

    /// Hands the answer to the caller, if it still waits.
    pub(super) fn complete(&self, number: u64, answer: Answer) {
        let call = self.state.lock().remove(number);
        if let Some(call) = call {
            let _ = call.answer.send(answer);
        }
    }

    /// Fails the calls whose time is over.
    pub(super) fn expire(&self, limits: &WireLimits) {
        let now = Instant::now();
        loop {
            let late = {
                let mut state = self.state.lock();
                // All have the same time, so the oldest ends first.
                let first = state.calls.first_key_value().filter(|(_, call)| call.deadline <= now);
                let Some(number) = first.map(|(number, _)| *number) else { return };
                state.remove(number)
            };
            if let Some(call) = late {
                let _ = call.answer.send(Err(format!("no answer within {:?}", limits.request_timeout)));
            }
        }
    }

    /// Notes that the connection is established.
    pub(super) fn up(&self) {
        self.state.lock().phase = Phase::Up;
    }

    /// Notes that there is no connection, and fails all calls.
    pub(super) fn down(&self, why: &str) {
        let calls = {
            let mut state = self.state.lock();
            state.phase = Phase::Down(why.to_owned());
            state.queue.clear();
            (state.queued_bytes, state.written_bytes) = (0, 0);
            std::mem::take(&mut state.calls)
        };
        for (_, call) in calls {
            let _ = call.answer.send(Err(why.to_owned()));
        }
    }

    /// Lets the next call wait for the next attempt to connect.
    pub(super) fn renew(&self) {
        self.state.lock().phase = Phase::New;
    }

    /// Returns true if there are unanswered calls.
    pub(super) fn has_calls(&self) -> bool {
        !self.state.lock().calls.is_empty()
    }

    /// Returns the bytes that wait to be sent, and the number of unanswered calls.
    pub(super) fn usage(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.queued_bytes, state.calls.len())
    }
}
