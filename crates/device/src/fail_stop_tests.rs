//! These tests control the order in which operations complete, so that each case is exact.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use futures_lite::future::{block_on, poll_once};

use super::*;
use crate::Geometry;

/// A device whose operations complete when the test says so.
struct Scripted {
    geometry: Geometry,
    submitted: Mutex<Vec<Option<Completion<Outcome>>>>,
}

impl Scripted {
    fn submit(&self) -> Pending<Outcome> {
        let (pending, completion) = Pending::new();
        self.submitted.lock().push(Some(completion));
        pending
    }

    fn answer(&self, number: usize, outcome: Outcome) {
        let completion = self.submitted.lock()[number].take();
        completion.expect("it is answered once").finish(outcome);
    }
}

impl Device for Scripted {
    fn geometry(&self) -> Geometry {
        self.geometry.clone()
    }

    fn path(&self) -> String {
        "scripted".into()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn read(&self, _: u64, buffer: Buffer) -> Pending<(Buffer, Outcome)> {
        Pending::ready((buffer, Ok(())))
    }

    fn write(&self, _: u64, _: Source, _: WriteMode) -> Pending<Outcome> {
        self.submit()
    }

    fn flush(&self) -> Pending<Outcome> {
        self.submit()
    }

    fn discard(&self, _: u64, _: u64) -> Pending<Outcome> {
        Pending::ready(Ok(()))
    }

    fn resize(&self, _: u64) -> Pending<Outcome> {
        self.submit()
    }

    fn counters(&self) -> DeviceCounters {
        DeviceCounters::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Durable,
    Flush,
    Resize,
}

use Kind::{Durable, Flush, Plain, Resize};

impl Kind {
    fn operation(self) -> OperationKind {
        match self {
            Plain | Durable => OperationKind::Write,
            Flush => OperationKind::Flush,
            Resize => OperationKind::Resize,
        }
    }
}

struct Bench {
    script: Arc<Scripted>,
    device: FailStop,
}

impl Bench {
    fn new(direct: bool) -> Bench {
        let geometry = Geometry { direct, ..Geometry::memory(1 << 20) };
        let script = Arc::new(Scripted { geometry, submitted: Mutex::default() });
        Bench { device: FailStop::over(script.clone()), script }
    }

    fn submit(&self, kind: Kind) -> Pending<Outcome> {
        let source = || Source::Owned(Buffer::zeroed(512));
        match kind {
            Plain => self.device.write(0, source(), WriteMode::Plain),
            Durable => self.device.write(0, source(), WriteMode::Durable),
            Flush => self.device.flush(),
            Resize => self.device.resize(1 << 20),
        }
    }
}

fn error(op: OperationKind) -> DeviceError {
    DeviceError::from_io(op, &"scripted".into(), 0, 0, std::io::Error::from_raw_os_error(libc::EIO))
}

fn told(pending: &mut Pending<Outcome>) -> Option<Outcome> {
    block_on(poll_once(pending))
}

/// If a flush or another operation fails while an operation is in flight, the success of that operation is not
/// reported, in whichever order they complete. (The cases: which fails, which succeeds, whether the device is direct,
/// whether the success that completes *first* waits for the other.)
#[test]
fn no_success_is_believed_beside_a_failure() {
    for (fails, succeeds, direct, waits) in [
        (Flush, Flush, true, true),
        (Flush, Durable, true, true),
        (Flush, Resize, true, true),
        (Durable, Flush, true, true),
        (Durable, Resize, true, true),
        (Durable, Durable, true, false),
        (Durable, Durable, false, true),
        (Flush, Durable, false, true),
        (Plain, Flush, true, false),
        (Plain, Durable, true, false),
        (Flush, Plain, true, false),
    ] {
        let case = format!("{fails:?} fails beside {succeeds:?}, direct: {direct}");
        for failure_first in [true, false] {
            let bench = Bench::new(direct);
            let (mut failed, mut other) = (bench.submit(fails), bench.submit(succeeds));
            if failure_first {
                bench.script.answer(0, Err(error(fails.operation())));
                bench.script.answer(1, Ok(()));
                assert!(matches!(told(&mut other), Some(Err(_))), "{case}");
            } else {
                bench.script.answer(1, Ok(()));
                let early = told(&mut other);
                assert_eq!(early.is_none(), waits, "{case}");
                bench.script.answer(0, Err(error(fails.operation())));
                let outcome = early.or_else(|| told(&mut other)).expect("nothing is under way");
                assert_eq!(outcome.is_err(), waits, "{case}");
            }
            assert!(matches!(told(&mut failed), Some(Err(_))), "{case}");
            assert!(bench.device.failure().is_some(), "{case}");
            // No operation succeeds any more, and none reaches the device.
            let asked = bench.script.submitted.lock().len();
            for kind in [Plain, Durable, Flush, Resize] {
                assert!(matches!(told(&mut bench.submit(kind)), Some(Err(_))), "{case}, then {kind:?}");
            }
            assert_eq!(bench.script.submitted.lock().len(), asked, "{case}");
            let (_, read) = bench.device.read(0, Buffer::zeroed(512)).wait();
            assert!(read.is_ok(), "reads go on");
        }
    }
}

/// A failure counts even if no caller waits for its operation.
#[test]
fn a_failure_that_nobody_looks_at_is_remembered() {
    for kind in [Plain, Durable, Flush] {
        let bench = Bench::new(true);
        drop(bench.submit(kind));
        bench.script.answer(0, Err(error(kind.operation())));
        assert!(matches!(told(&mut bench.submit(Flush)), Some(Err(_))), "{kind:?}");
    }
    let bench = Bench::new(true);
    let mut abandoned = bench.submit(Flush);
    bench.script.submitted.lock().clear();
    assert!(matches!(told(&mut abandoned), Some(Err(_))), "no answer is no success");
}

/// A success is reported as soon as the operations that were in flight at its completion have ended. Later operations
/// do not delay it.
#[test]
fn a_success_waits_for_what_was_under_way_and_for_nothing_later() {
    let bench = Bench::new(true);
    let (mut first, mut second) = (bench.submit(Flush), bench.submit(Flush));
    bench.script.answer(1, Ok(()));
    assert!(told(&mut second).is_none());
    let mut third = bench.submit(Flush);
    bench.script.answer(0, Ok(()));
    assert!(matches!(told(&mut second), Some(Ok(()))), "the third came later");
    assert!(told(&mut first).is_none(), "it waits for the third");
    bench.script.answer(2, Ok(()));
    assert!(matches!(told(&mut first), Some(Ok(()))));
    assert!(matches!(told(&mut third), Some(Ok(()))));
    assert!(bench.device.failure().is_none());
}

struct Panics;

impl std::task::Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("as it is meant to");
    }
}

/// Nor does the panic reach the thread that completes the operation, which may be that of a ring.
#[test]
fn a_waker_that_panics_keeps_no_other_from_its_answer() {
    for fails in [false, true] {
        let bench = Bench::new(true);
        let (mut flush, mut first, mut second) =
            (bench.submit(Flush), bench.submit(Durable), bench.submit(Durable));
        let waker = Arc::new(Panics).into();
        assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
        (1..=2).for_each(|number| bench.script.answer(number, Ok(())));
        assert!(told(&mut second).is_none(), "it waits for the flush");
        bench.script.answer(0, if fails { Err(error(OperationKind::Flush)) } else { Ok(()) });
        for told in [told(&mut flush), told(&mut first), told(&mut second)] {
            assert_eq!(told.expect("it is answered").is_err(), fails);
        }
    }
    let bench = Bench::new(true);
    let mut abandoned = bench.submit(Flush);
    let waker = Arc::new(Panics).into();
    assert!(Pin::new(&mut abandoned).poll(&mut Context::from_waker(&waker)).is_pending());
    bench.script.submitted.lock().clear();
    assert!(matches!(told(&mut abandoned), Some(Err(_))));
}

/// An operation that was refused before any attempt leaves the medium's state known.
#[test]
fn a_refusal_is_no_failure() {
    let bench = Bench::new(true);
    let path: Arc<str> = "scripted".into();
    let refusals = [
        (Durable, DeviceError::invalid(&path, "a test")),
        (
            Durable,
            DeviceError::Unaligned {
                op: OperationKind::Write,
                offset: 1,
                bytes: 1,
                block_bytes: 512,
                path: path.clone(),
            },
        ),
        // A failed request for more space does not affect existing data.
        (
            Resize,
            DeviceError::Full {
                shortage: crate::Shortage::Space,
                op: OperationKind::Resize,
                offset: 0,
                bytes: 0,
                path,
            },
        ),
    ];
    for (number, (kind, refusal)) in refusals.into_iter().enumerate() {
        let mut refused = bench.submit(kind);
        bench.script.answer(number, Err(refusal));
        assert!(matches!(told(&mut refused), Some(Err(_))));
    }
    assert!(bench.device.failure().is_none());
    let mut flush = bench.submit(Flush);
    bench.script.answer(3, Ok(()));
    assert!(matches!(told(&mut flush), Some(Ok(()))));
}
