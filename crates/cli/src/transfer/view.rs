//! Records of a closed store that cannot be opened for writing, as they lie in its log.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

use esker_inspect::{InspectError, Item, StoreView};

use super::local::DAMAGED;
use super::record::{LeftOut, Record, Source, now_ms};
use crate::terminal::Failure;

/// Records that were read and wait to be written.
const AHEAD: usize = 256;

/// What the scan hands over: a record, or one that is damaged, or the failure that ends it.
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
    /// Begins a scan, in a thread of its own: a scan hands records over, and a transfer asks for them.
    ///
    /// # Errors
    /// If there is no store, another process has it open, or it was not closed.
    pub(super) fn open(paths: &[PathBuf]) -> Result<ViewSource, Failure> {
        let view = StoreView::open(paths).map_err(failure)?;
        let shown = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
        if view.is_in_use() {
            return Err(Failure::Usage(format!(
                "{shown} is open in another process: give the address of the server that has it open"
            )));
        }
        if !view.is_closed() {
            return Err(Failure::Failed(format!(
                "{shown} lies on a file system that takes no writes, and was not closed: what its staging file holds is recovered \
                 by opening the store, which writes; copy it to a file system that takes writes"
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
                // The transfer may have ended.
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
