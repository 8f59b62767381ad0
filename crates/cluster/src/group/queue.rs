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

/// Time an entry was on its way above which the next one waits for the writers that it answered: the nodes are busy, or the flush
/// takes long, and an entry costs the nodes much the same whether it holds one proposal or many.
const GATHER_ABOVE: Duration = Duration::from_millis(3);
/// Divisor of that time: the next entry waits for this part of it at most.
const GATHER_PART: u32 = 4;
/// Longest time for which the next entry waits.
const GATHER_MAX: Duration = Duration::from_millis(10);

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

/// The writers that the next entry waits for, after one that was on its way for long.
#[derive(Default)]
struct Gathering {
    /// Number of proposals with which the next entry is sent.
    proposals: usize,
    /// Time at which it is sent with fewer.
    until: Duration,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    gathering: Gathering,
    on_their_way: BTreeMap<u64, OnItsWay>,
    next_number: u64,
    bytes: usize,
    is_paused: bool,
    is_stopped: bool,
}

impl State {
    /// Returns true if enough waits for an entry beside others.
    fn is_much(&self) -> bool {
        self.bytes - self.on_their_way.values().map(|entry| entry.bytes).sum::<usize>() >= PIPELINE_BYTES
    }

    /// Returns true if the proposal that came last may let an entry be sent, or is the first that an entry may wait with.
    fn changes_next(&self) -> bool {
        let waiting = self.waiting.len();
        let is_alone = self.on_their_way.is_empty();
        is_alone && (waiting == 1 || waiting >= self.gathering.proposals) || self.is_much()
    }

    /// Returns when an entry may be sent, as far as proposals and entries on their way decide.
    fn next(&self, in_flight: usize, now: Duration) -> Next {
        let (on_their_way, is_much) = (self.on_their_way.len(), self.is_much());
        if self.waiting.is_empty()
            || self.is_paused
            || on_their_way > 0 && !(on_their_way < in_flight && is_much)
        {
            return Next::Later;
        }
        match self.gathering.until.checked_sub(now) {
            Some(wait) if !wait.is_zero() && !is_much && self.waiting.len() < self.gathering.proposals => {
                Next::After(wait)
            }
            _ => Next::Now,
        }
    }
}

/// When an entry may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Now,
    /// After this time, or when more proposals wait.
    After(Duration),
    /// When the state changes.
    Later,
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
                if state.changes_next() {
                    self.work.notify_one();
                }
            }
        }
        Box::pin(async move {
            // A proposal that came after the stop was dropped at once.
            answered.await.unwrap_or(Err(GroupError::NotReady(NotReady { leader: None })))
        })
    }

    /// Takes proposals of one term that fit in an entry; `None` if none may be sent now.
    pub(super) fn take(&self, entry_bytes: usize, in_flight: usize, now: Duration) -> Option<Batch> {
        let mut state = self.state.lock();
        if state.next(in_flight, now) != Next::Now {
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

    /// Returns when an entry may be sent, as far as the queue knows.
    pub(super) fn next(&self, in_flight: usize, now: Duration) -> Next {
        self.state.lock().next(in_flight, now)
    }

    /// Ends an entry: reservations end, then its writers are answered. Returns their number.
    pub(super) fn end(&self, number: u64, end: &WriteEnd, now: Duration) -> u64 {
        let ended = {
            let mut state = self.state.lock();
            let Some(ended) = state.on_their_way.remove(&number) else { return 0 };
            state.bytes -= ended.bytes;
            let took = now.saturating_sub(ended.since);
            let wait =
                if took > GATHER_ABOVE { (took / GATHER_PART).min(GATHER_MAX) } else { Duration::ZERO };
            let proposals = ended.writers.len() + state.waiting.len();
            state.gathering = Gathering { proposals, until: now + wait };
            if !state.waiting.is_empty() {
                self.work.notify_one();
            }
            ended
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    const IN_FLIGHT: usize = 4;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn push(queue: &Queue, at_ms: u64) {
        drop(queue.push(1, Step::Clear, Box::new(()), ms(at_ms)));
    }

    /// Sends an entry at 0 and ends it.
    fn after_an_entry(writers: usize, ended_ms: u64) -> Queue {
        let queue = Queue::default();
        (0..writers).for_each(|_| push(&queue, 0));
        let batch = queue.take(1 << 20, IN_FLIGHT, ms(0)).expect("proposals wait");
        assert_eq!(batch.steps.len(), writers);
        queue.end(batch.number, &WriteEnd::Refused(NotReady { leader: None }), ms(ended_ms));
        queue
    }

    #[test]
    fn entry_after_a_slow_one_waits_for_the_answered_writers() {
        let queue = after_an_entry(3, 8);
        assert_eq!(queue.next(IN_FLIGHT, ms(8)), Next::Later);
        push(&queue, 8);
        assert_eq!(queue.next(IN_FLIGHT, ms(8)), Next::After(ms(2)));
        push(&queue, 9);
        assert_eq!(queue.next(IN_FLIGHT, ms(9)), Next::After(ms(1)));
        assert!(queue.take(1 << 20, IN_FLIGHT, ms(9)).is_none());
        assert_eq!(queue.next(IN_FLIGHT, ms(10)), Next::Now, "the time is over");
        push(&queue, 9);
        assert_eq!(queue.next(IN_FLIGHT, ms(9)), Next::Now, "all are back");
        // Writers that waited meanwhile count as well.
        let queue = Queue::default();
        push(&queue, 0);
        let batch = queue.take(1 << 20, IN_FLIGHT, ms(0)).expect("a proposal waits");
        push(&queue, 1);
        queue.end(batch.number, &WriteEnd::Refused(NotReady { leader: None }), ms(8));
        assert_eq!(queue.next(IN_FLIGHT, ms(8)), Next::After(ms(2)));
    }

    #[test]
    fn entry_after_a_fast_one_is_sent_at_once() {
        let queue = after_an_entry(3, 3);
        push(&queue, 3);
        assert_eq!(queue.next(IN_FLIGHT, ms(3)), Next::Now);
        let queue = after_an_entry(1, 1000);
        push(&queue, 1000);
        assert_eq!(queue.next(IN_FLIGHT, ms(1000)), Next::Now, "one writer is not held up");
        let queue = after_an_entry(2, 1000);
        push(&queue, 1000);
        assert_eq!(queue.next(IN_FLIGHT, ms(1000)), Next::After(GATHER_MAX));
    }
}
