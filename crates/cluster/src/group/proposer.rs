//! Packs waiting proposals into entries. Proposals that arrive while an entry is in flight share the next one. That one also waits
//! for the writers that the first answers, if the first took long.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_engine::Announced;
use futures_util::future::{BoxFuture, select};

use super::entry::{Step, encode_entry};
use super::queue::{Batch, Next};
use super::status::count;
use super::{Group, KeyspaceMachine};
use crate::raft::error::{GroupError, NotReady};
use crate::raft::member::WriteEnd;

/// Time between two looks at a log that is full.
const PAUSE: Duration = Duration::from_millis(10);

impl Group {
    /// Queues a proposal.
    pub(super) fn push(
        &self,
        term: u64,
        step: Step,
        held: Box<dyn Send>,
    ) -> BoxFuture<'static, Result<u64, GroupError>> {
        let refused = match self.ready_term() {
            Ok(ready) if ready == term => return self.queue.push(term, step, held, self.now()),
            Ok(_) => NotReady { leader: self.serving.leader() },
            Err(why) => why,
        };
        count(&self.counters.refused, 1);
        Box::pin(std::future::ready(Err(GroupError::NotReady(refused))))
    }

    /// Sends proposals until the replica is stopped.
    pub(super) async fn send_proposals(self: Arc<Group>) {
        let settings = &self.parts.settings;
        while !self.queue.is_stopped() {
            let entry_bytes = settings.entry_bytes.min(self.entry_bytes_max());
            let in_flight = settings.entries_in_flight;
            let mut gathers = None;
            let lacks_room = loop {
                match self.queue.next(in_flight, self.now()) {
                    Next::Now => (),
                    Next::After(wait) => {
                        gathers = Some(wait);
                        break false;
                    }
                    Next::Later => break false,
                }
                let Some(announced) = self.announce_proposed(self.queue.next_bytes(entry_bytes)) else {
                    break true;
                };
                let Some(batch) = self.queue.take(entry_bytes, in_flight, self.now()) else { break false };
                self.send(batch, announced).await;
            };
            if lacks_room {
                self.upkeep.notify_one();
                self.parts.runtime.sleep(PAUSE).await;
                continue;
            }
            let Some(wait) = gathers else {
                self.queue.work.notified().await;
                continue;
            };
            select(pin!(self.queue.work.notified()), self.parts.runtime.sleep(wait)).await;
        }
    }

    /// Sends an entry, for which there is room in the log until it ends.
    async fn send(&self, batch: Batch, announced: Announced) {
        let Batch { number, term, steps, oldest } = batch;
        let Ok(instance) = self.running() else {
            let leader = self.serving.leader();
            self.end(number, &WriteEnd::Refused(NotReady { leader }));
            return;
        };
        let entry = encode_entry(self.level.load(Ordering::Relaxed), steps.iter());
        let (machine, runtime) = (self.machine.clone(), self.parts.runtime.clone());
        let committed_at = Arc::new(AtomicU64::new(0));
        let noted = committed_at.clone();
        let on_commit = move |index| {
            machine_keeps(&machine, index, steps);
            noted.store(runtime.now().as_micros() as u64, Ordering::Relaxed);
        };
        let (queue, counters, runtime) =
            (self.queue.clone(), self.counters.clone(), self.parts.runtime.clone());
        let on_end = move |end: WriteEnd| {
            drop(announced);
            let answered = queue.end(number, &end, runtime.now());
            let counter = match &end {
                WriteEnd::Applied(_) => &counters.proposals,
                WriteEnd::Refused(_) => &counters.refused,
                WriteEnd::Uncertain(_) => &counters.uncertain,
            };
            count(counter, answered);
            if let WriteEnd::Applied(_) = end {
                let (now, committed) =
                    (runtime.now().as_micros() as u64, committed_at.load(Ordering::Relaxed));
                count(&counters.led_entries, 1);
                count(&counters.commit_us, committed.saturating_sub(oldest.as_micros() as u64));
                count(&counters.apply_us, now.saturating_sub(committed));
            }
        };
        instance.write(term, entry, on_commit, on_end).await;
    }

    /// Ends an entry that was not sent.
    fn end(&self, number: u64, end: &WriteEnd) {
        let answered = self.queue.end(number, end, self.now());
        count(&self.counters.refused, answered);
    }
}

/// Keeps the steps of a committed entry, so that they need not be decoded, and observers see the origin of each change.
fn machine_keeps(machine: &KeyspaceMachine, index: u64, steps: Vec<Step>) {
    machine.own.lock().insert(index, steps);
}
