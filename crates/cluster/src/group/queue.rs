//! Proposals that wait for the next entry, and entries on their way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::entry::{Step, step_bytes};
use crate::raft::error::{GroupError, NotReady};
use crate::raft::member::WriteEnd;

/// Bytes that wait above which an entry is sent before the one on its way has ended. Below, proposals share the next entry: it costs
/// the nodes as much as an entry with one proposal.
const PIPELINE_BYTES: usize = 256 << 10;

type Answer = Result<u64, GroupError>;

/// A proposal that waits for an entry.
struct Waiting {
    term: u64,
    step: Step,
    bytes: usize,
    at: Duration,
    writer: Writer,
}

/// The writer of a proposal, and the reservation that ends with it.
struct Writer {
    answer: Option<oneshot::Sender<Answer>>,
    _held: Box<dyn Send>,
}

/// Proposals that make one entry.
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) term: u64,
    pub(super) steps: Vec<Step>,
    pub(super) oldest: Duration,
}

/// Proposals of an entry on its way.
struct OnItsWay {
    writers: Vec<Writer>,
    bytes: usize,
    since: Duration,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    on_their_way: BTreeMap<u64, OnItsWay>,
    next_number: u64,
    bytes: usize,
    is_paused: bool,
    is_stopped: bool,
}

impl State {
    /// Returns true if an entry may be sent, as far as the ones on their way decide.
    fn may_send(&self, in_flight: usize) -> bool {
        let on_their_way = self.on_their_way.len();
        let waiting_bytes =
            || self.bytes - self.on_their_way.values().map(|entry| entry.bytes).sum::<usize>();
        !self.is_paused
            && (on_their_way == 0 || on_their_way < in_flight && waiting_bytes() >= PIPELINE_BYTES)
    }
}

/// Proposals of a group, in order.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the proposer.
    pub(super) work: Notify,
}

impl Queue {
    /// Adds a proposal. The future has its outcome.
    pub(super) fn push(
        &self,
        term: u64,
        step: Step,
        held: Box<dyn Send>,
        now: Duration,
    ) -> BoxFuture<'static, Answer> {
        let (answer, answered) = oneshot::channel();
        let bytes = step_bytes(&step);
        {
            let mut state = self.state.lock();
            if !state.is_stopped {
                state.bytes += bytes;
                let writer = Writer { answer: Some(answer), _held: held };
                state.waiting.push_back(Waiting { term, step, bytes, at: now, writer });
            }
        }
        self.work.notify_one();
        Box::pin(async move {
            // A proposal that came after the stop was dropped at once.
            answered.await.unwrap_or(Err(GroupError::NotReady(NotReady { leader: None })))
        })
    }

    /// Takes proposals of one term that fit in an entry; `None` if none may be sent now.
    pub(super) fn take(&self, entry_bytes: usize, in_flight: usize, now: Duration) -> Option<Batch> {
        let mut state = self.state.lock();
        if !state.may_send(in_flight) {
            return None;
        }
        let first = state.waiting.front()?;
        let (term, oldest) = (first.term, first.at);
        let (mut steps, mut writers, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = state.waiting.front() {
            if !steps.is_empty() && (next.term != term || bytes + next.bytes > entry_bytes) {
                break;
            }
            let Some(next) = state.waiting.pop_front() else { break };
            bytes += next.bytes;
            steps.push(next.step);
            writers.push(next.writer);
        }
        let number = state.next_number;
        state.next_number += 1;
        state.on_their_way.insert(number, OnItsWay { writers, bytes, since: now });
        Some(Batch { number, term, steps, oldest })
    }

    /// Returns the maximum bytes of the next entry.
    pub(super) fn next_bytes(&self, entry_bytes: usize) -> usize {
        let state = self.state.lock();
        state.waiting.front().map_or(0, |first| first.bytes.max(entry_bytes.min(state.bytes)))
    }

    /// Returns true if a proposal waits that could be sent now, as far as the queue knows.
    pub(super) fn has_waiting(&self, in_flight: usize) -> bool {
        let state = self.state.lock();
        state.may_send(in_flight) && !state.waiting.is_empty()
    }

    /// Ends an entry: reservations end, then its writers are answered. Returns their number.
    pub(super) fn end(&self, number: u64, end: &WriteEnd) -> u64 {
        let ended = {
            let mut state = self.state.lock();
            let Some(ended) = state.on_their_way.remove(&number) else { return 0 };
            state.bytes -= ended.bytes;
            ended
        };
        self.work.notify_one();
        let mut answered = 0;
        for (at, Writer { answer, _held: held }) in ended.writers.into_iter().enumerate() {
            drop(held);
            let Some(answer) = answer else { continue };
            answered += 1;
            // A writer that no longer waits has dropped its end.
            let _ = answer.send(match end {
                WriteEnd::Applied(versions) => Ok(version(versions, at)),
                WriteEnd::Refused(why) => Err(GroupError::NotReady(*why)),
                WriteEnd::Uncertain(why) => Err(GroupError::Uncertain(why.clone())),
            });
        }
        answered
    }

    /// Answers the writers of entries that are on their way since `before` as uncertain. Their reservations stay until the
    /// entries end. Returns the number of writers.
    pub(super) fn answer_late(&self, before: Duration) -> u64 {
        let mut late = Vec::new();
        {
            let mut state = self.state.lock();
            let entries = state.on_their_way.values_mut().filter(|entry| entry.since < before);
            late.extend(
                entries.flat_map(|entry| &mut entry.writers).filter_map(|writer| writer.answer.take()),
            );
        }
        let count = late.len() as u64;
        for answer in late {
            let why = "the entry with it is not committed yet".to_owned();
            let _ = answer.send(Err(GroupError::Uncertain(why)));
        }
        count
    }

    /// Refuses waiting proposals of other terms than `term`. They were never appended. Returns their number.
    pub(super) fn refuse_others(&self, term: Option<u64>, leader: Option<u64>) -> u64 {
        self.refuse(|next| Some(next.term) != term, &GroupError::NotReady(NotReady { leader }))
    }

    /// Refuses proposals that wait since `before`. They were never appended. Returns their number.
    pub(super) fn refuse_late(&self, before: Duration) -> u64 {
        let why = "entries before it are not committed, or the log of the node is full".to_owned();
        self.refuse(|next| next.at < before, &GroupError::NoMajority(why))
    }

    fn refuse(&self, is_refused: impl Fn(&Waiting) -> bool, error: &GroupError) -> u64 {
        let refused = {
            let mut state = self.state.lock();
            if !state.waiting.iter().any(&is_refused) {
                return 0;
            }
            let all = std::mem::take(&mut state.waiting);
            let (refused, kept): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(is_refused);
            state.waiting = kept;
            state.bytes -= refused.iter().map(|next| next.bytes).sum::<usize>();
            refused
        };
        let count = refused.len() as u64;
        for Waiting { writer: Writer { answer, _held: held }, .. } in refused {
            drop(held);
            if let Some(answer) = answer {
                let _ = answer.send(Err(error.clone()));
            }
        }
        count
    }

    /// Keeps proposals from being sent, or sends them again.
    pub(super) fn pause(&self, is_paused: bool) {
        self.state.lock().is_paused = is_paused;
        self.work.notify_one();
    }

    /// Refuses all proposals from now on.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.refuse_others(None, None);
        self.work.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    pub(super) fn has_entries_on_their_way(&self) -> bool {
        !self.state.lock().on_their_way.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().bytes as u64
    }
}

fn version(versions: &[u8], at: usize) -> u64 {
    let (versions, _) = versions.as_chunks::<8>();
    versions.get(at).map_or(0, |version| u64::from_le_bytes(*version))
}
