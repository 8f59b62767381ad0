//! Reads records of a closed store on read-only media directly from its log.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

use esker_inspect::{InspectError, Item, StoreView};

use super::local::DAMAGED;
use super::record::{LeftOut, Record, Source};
use crate::inspect::memory::default_limits;
use crate::terminal::Failure;
use crate::time::now_ms;

/// Number of records read ahead.
const AHEAD: usize = 256;

/// An item of the scan: a record, a damaged record, or the failure that ends the scan.
enum Seen {
    Record(Record),
    Damaged,
    Failed(Failure),
}

pub(super) struct ViewSource {
    seen: Receiver<Seen>,
    passed: u64,
}

fn failure(error: InspectError) -> Failure {
    match error.is_of_the_call() {
        true => Failure::Usage(error.to_string()),
        false => Failure::Failed(error.to_string()),
    }
}

impl ViewSource {
    /// Starts a scan in its own thread, because a scan pushes records and a transfer pulls them.
    ///
    /// # Errors
    /// If the store does not exist, is open in another process, or was not closed.
    pub(super) fn open(paths: &[PathBuf]) -> Result<ViewSource, Failure> {
        let view = StoreView::open(paths).map_err(failure)?.with_memory(default_limits());
        let shown = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        if view.is_in_use() {
            return Err(Failure::Usage(format!(
                "{shown} is open in another process: give the address of the server that has it open"
            )));
        }
        if !view.is_closed() {
            return Err(Failure::Failed(format!(
                "{shown} lies on a read-only file system and was not closed: the records in its staging file are recovered \
                 by opening the store, which writes; copy it to a writable file system"
            )));
        }
        let (sender, seen) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            let scanned = view.scan(None, now_ms(), &(), |item| {
                let one = match item {
                    Ok(Item { database, key, value, expires_at_ms, .. }) => {
                        let (key, value) = (key.into(), value.into());
                        Seen::Record(Record { database, key, value, expires_at_ms })
                    }
                    Err(_) => Seen::Damaged,
                };
                // The receiver is gone if the transfer has ended.
                Ok(if sender.send(one).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            });
            if let Err(error) = scanned {
                let _ = sender.send(Seen::Failed(failure(error)));
            }
        });
        Ok(ViewSource { seen, passed: 0 })
    }
}

impl Source for ViewSource {
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure> {
        while let Ok(seen) = self.seen.recv() {
            self.passed += 1;
            match seen {
                Seen::Record(record) => return Ok(Some(record)),
                Seen::Damaged => left_out.add(DAMAGED),
                Seen::Failed(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.passed, None)
    }
}
