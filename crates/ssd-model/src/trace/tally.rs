//! Totals of a trace's requests, independent of any drive.

use serde::Serialize;

use crate::request::{Kind, Request};

/// Totals of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Number of writes.
    pub writes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Number of reads.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Number of TRIMs.
    pub trims: u64,
    /// Bytes of those TRIMs.
    pub trim_bytes: u64,
    /// Writes shorter than an IU.
    pub sub_iu_writes: u64,
    /// Writes of at least an IU that do not start and end at IU boundaries.
    pub misaligned_writes: u64,
    /// Bytes of the sub-IU and misaligned writes.
    pub partial_bytes: u64,
    /// Highest end of a request in bytes.
    pub end_bytes: u64,
    /// Time from the first request to the last.
    pub duration_ns: u64,
    #[serde(skip)]
    first_ns: Option<u64>,
}

impl Tally {
    pub(super) fn add(&mut self, request: &Request, iu_bytes: u32) {
        let iu = u64::from(iu_bytes);
        match request.kind {
            Kind::Write => {
                self.writes += 1;
                self.write_bytes += request.bytes;
                if !(request.offset | request.bytes).is_multiple_of(iu) {
                    let is_sub_iu = request.bytes < iu;
                    self.sub_iu_writes += u64::from(is_sub_iu);
                    self.misaligned_writes += u64::from(!is_sub_iu);
                    self.partial_bytes += request.bytes;
                }
            }
            Kind::Read => {
                self.reads += 1;
                self.read_bytes += request.bytes;
            }
            Kind::Trim => {
                self.trims += 1;
                self.trim_bytes += request.bytes;
            }
        }
        self.end_bytes = self.end_bytes.max(request.offset.saturating_add(request.bytes));
        let first = *self.first_ns.get_or_insert(request.at_ns);
        self.duration_ns = self.duration_ns.max(request.at_ns.saturating_sub(first));
    }

    /// Returns the share of writes that are sub-IU or misaligned.
    pub fn partial_share(&self) -> f64 {
        (self.sub_iu_writes + self.misaligned_writes) as f64 / self.writes.max(1) as f64
    }

    /// Returns the bytes written per day at the trace's pace; `None` if the trace has no times.
    pub fn bytes_a_day(&self) -> Option<f64> {
        (self.duration_ns > 0).then(|| self.write_bytes as f64 / self.duration_ns as f64 * 86_400e9)
    }
}
