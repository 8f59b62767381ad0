//! A device that stops at the first failed write or flush, so that lost bytes are never treated as durable.
//!
//! The kernel reports *once* that bytes could not be written, to the first caller that asks, and then forgets the
//! error. Of two concurrent flushes one may therefore fail and the other succeed although the bytes that the second
//! covers are lost as well; and every flush after them succeeds. The same holds for durable writes, which flush too.
//! This module corrects that:
//!
//! 1. The first failed write or flush is remembered permanently. From then on every write and every flush fails with
//!    that error, including those in flight, whatever the device reports for them. Reads continue.
//! 2. The success of a flush is reported only after every flush and durable write that was in flight when it completed
//!    has succeeded too, because one of those may have received the error instead. The success of a durable write
//!    likewise waits for flushes. It waits for other durable writes only if writes go through the page cache; with
//!    direct I/O, a write's error is reported to that write.
//!
//! The thread that completes the operation records its outcome, even if the caller has dropped its future.

#[cfg(test)]
#[path = "fail_stop_tests.rs"]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::pending::Completion;
use crate::wake::wake;
use crate::{
    Buffer, Device, DeviceCounters, DeviceError, Geometry, OperationKind, Pending, PlacementHandle, Source,
    Task, WriteMode,
};

type Outcome = Result<(), DeviceError>;

/// A device whose first failed write or flush ends all writing to it.
pub struct FailStop {
    device: Arc<dyn Device>,
    shared: Arc<Shared>,
}

/// The durability that an operation's success asserts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// None.
    Nothing,
    /// Its own bytes are durable.
    Write,
    /// Everything written before is durable.
    Flush,
}

struct Shared {
    state: Mutex<Submissions>,
    /// True with direct I/O: the error of a write is reported to that write and to no other.
    direct: bool,
    path: Arc<str>,
}

#[derive(Default)]
struct Submissions {
    failure: Option<DeviceError>,
    submitted: u64,
    /// Operations in flight that claim durability, by number.
    under_way: BTreeMap<u64, Claim>,
    /// Operations that succeeded, but wait for others that were in flight when they completed (rule 2).
    held: Vec<Held>,
}

struct Held {
    waits_for: Vec<u64>,
    answer: Completion<Outcome>,
}

/// An operation in flight. Dropping it without an outcome counts as a failure.
struct InFlight {
    shared: Arc<Shared>,
    number: u64,
    answer: Option<Completion<Outcome>>,
}

impl FailStop {
    /// Wraps a device with the fail-stop rules.
    pub fn over(device: Arc<dyn Device>) -> FailStop {
        let (direct, path) = (device.geometry().direct, device.path().into());
        FailStop { device, shared: Arc::new(Shared { state: Mutex::default(), direct, path }) }
    }

    /// Returns the failure that ended all writing, if any.
    pub fn failure(&self) -> Option<DeviceError> {
        self.shared.state.lock().failure.clone()
    }

    /// Ends all writing with this error, unless an earlier failure did.
    pub fn fail(&self, error: &DeviceError) {
        self.shared.state.lock().failure.get_or_insert_with(|| error.clone());
    }

    fn submit(&self, claim: Claim, submit: impl FnOnce(&dyn Device) -> Pending<Outcome>) -> Pending<Outcome> {
        let (pending, answer) = Pending::new();
        let number = {
            let mut state = self.shared.state.lock();
            if let Some(failure) = &state.failure {
                return Pending::ready(Err(failure.clone()));
            }
            let number = state.submitted;
            state.submitted += 1;
            if claim != Claim::Nothing {
                state.under_way.insert(number, claim);
            }
            number
        };
        let submitted = InFlight { shared: self.shared.clone(), number, answer: Some(answer) };
        submit(&*self.device).pass_on(move |outcome| submitted.ended(outcome));
        pending
    }
}

impl InFlight {
    fn ended(mut self, outcome: Outcome) -> Option<Waker> {
        self.answer.take().and_then(|answer| self.shared.ended(self.number, outcome, answer))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        let (op, path) = (OperationKind::Flush, self.shared.path.clone());
        let lost = DeviceError::Vanished { op, offset: 0, bytes: 0, path };
        if let Some(waker) = self.shared.ended(self.number, Err(lost), answer) {
            wake(waker);
        }
    }
}

impl Shared {
    /// Handles a completed operation: reports or holds its outcome, and reports held outcomes that waited for nothing
    /// else. Returns the waker of this operation.
    fn ended(&self, number: u64, outcome: Outcome, answer: Completion<Outcome>) -> Option<Waker> {
        let mut state = self.state.lock();
        let claim = state.under_way.remove(&number).unwrap_or(Claim::Nothing);
        // A plain write that found no space harmed no bytes outside its own range and claims no durability, so it does
        // not stop the device.
        let is_harmless =
            |error: &DeviceError| claim == Claim::Nothing && matches!(error, DeviceError::Full { .. });
        if let Err(error) = &outcome
            && error.leaves_doubt()
            && !is_harmless(error)
            && !planted(Bug::FailedFlushForgotten)
        {
            state.failure.get_or_insert_with(|| error.clone());
        }
        let failure = state.failure.clone();
        let known = match (outcome, &failure) {
            (Err(error), _) => Some(Err(error)),
            (Ok(()), Some(failure)) => Some(Err(failure.clone())),
            (Ok(()), None) if claim == Claim::Nothing => Some(Ok(())),
            (Ok(()), None) => None,
        };
        let released = state.release(number, failure.is_some());
        let own = match known {
            Some(outcome) => Some((answer, outcome)),
            None => state.hold(claim, self.direct, answer).map(|answer| (answer, Ok(()))),
        };
        drop(state);
        for held in released {
            held.answer.finish(failure.clone().map_or(Ok(()), Err));
        }
        own.and_then(|(answer, outcome)| answer.complete(outcome))
    }
}

impl Submissions {
    /// Returns the held operations whose wait is over now that operation `number` has ended, or all of them if `all`.
    fn release(&mut self, number: u64, all: bool) -> Vec<Held> {
        if self.held.is_empty() {
            return Vec::new();
        }
        self.held.iter_mut().for_each(|held| held.waits_for.retain(|other| *other != number));
        self.held.extract_if(.., |held| all || held.waits_for.is_empty()).collect()
    }

    /// Holds a success while an operation in flight may have received an error in its place; otherwise returns the
    /// completion.
    fn hold(
        &mut self,
        claim: Claim,
        direct: bool,
        answer: Completion<Outcome>,
    ) -> Option<Completion<Outcome>> {
        let own_errors = direct && claim == Claim::Write;
        let counts = |other: Claim| other == Claim::Flush || !own_errors;
        let others = self.under_way.iter().filter(|(_, other)| counts(**other));
        let waits_for: Vec<u64> = others.map(|(number, _)| *number).collect();
        if waits_for.is_empty() {
            return Some(answer);
        }
        self.held.push(Held { waits_for, answer });
        None
    }
}

impl Device for FailStop {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn path(&self) -> String {
        self.device.path()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.device.buffer(bytes)
    }

    fn read(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Outcome)> {
        self.device.read(offset, buffer)
    }

    fn read_background(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Outcome)> {
        self.device.read_background(offset, buffer)
    }

    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Outcome> {
        self.write_placed(offset, source, mode, PlacementHandle::default())
    }

    fn write_placed(
        &self,
        offset: u64,
        source: Source,
        mode: WriteMode,
        handle: PlacementHandle,
    ) -> Pending<Outcome> {
        let claim = match mode {
            WriteMode::Plain => Claim::Nothing,
            WriteMode::Durable => Claim::Write,
        };
        self.submit(claim, |device| device.write_placed(offset, source, mode, handle))
    }

    fn flush(&self) -> Pending<Outcome> {
        self.submit(Claim::Flush, |device| device.flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Outcome> {
        self.device.discard(offset, bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Outcome> {
        self.device.allocate(offset, bytes)
    }

    fn room_bytes(&self) -> Option<u64> {
        self.device.room_bytes()
    }

    fn resize(&self, bytes: u64) -> Pending<Outcome> {
        // A resize is durable when it completes, so it flushes.
        self.submit(Claim::Flush, |device| device.resize(bytes))
    }

    fn extend(&self, bytes: u64) -> Pending<Outcome> {
        self.submit(Claim::Flush, |device| device.extend(bytes))
    }

    fn set_write_unit(&self, bytes: u32) {
        self.device.set_write_unit(bytes);
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }

    fn spawn_on_io_thread(&self, name: &'static str, task: Task) -> Option<Task> {
        self.device.spawn_on_io_thread(name, task)
    }
}
