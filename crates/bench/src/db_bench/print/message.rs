//! The message in parentheses after a benchmark's line, in db_bench's words.

use super::measure::{Counts, Kind};
use crate::db_bench::command_line::benchmark::Work;

/// Returns the message for a kind of work. `key_size` is the part of each write's bytes that is not
/// value.
pub(crate) fn message(work: Work, counts: &Counts, key_size: usize) -> String {
    let (reads, found) = (counts.reads, counts.found);
    let [gets, writes, deletes, updates, seeks] =
        [Kind::Read, Kind::Write, Kind::Delete, Kind::Update, Kind::Seek].map(|kind| counts.of(kind));
    match work {
        Work::Read { .. } | Work::Ycsb(_) => format!("({found} of {reads} found)"),
        Work::Update => format!("( updates:{updates} found:{found})"),
        Work::ReadWrite => {
            format!("( reads:{gets} writes:{writes} total:{} found:{found})", counts.operations)
        }
        Work::ReadWriteDelete => {
            let total = counts.operations;
            format!("( get:{gets} put:{writes} del:{deletes} total:{total} found:{found})")
        }
        Work::Mix => {
            let values = counts.bytes_of(Kind::Write).saturating_sub(writes * key_size as u64);
            let value = values as f64 / writes.max(1) as f64;
            // A seek reads one key and no following ones, because keys have no order.
            format!(
                "( Gets:{gets} Puts:{writes} Seek:{seeks}, reads {found} in {reads} found, \
                 avg size: {value:.1} value, 0.0 scan)"
            )
        }
        Work::Fill(_) | Work::Scan | Work::Delete(_) | Work::Raw(_) | Work::RawPressure => String::new(),
    }
}
