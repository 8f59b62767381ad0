//! Clients of a drive: so many requests in flight, the next one as soon as one is done.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::{Latencies, Recorder, Timing};
use crate::request::Kind;
use crate::{Drive, Error, Handle};

/// How long requests took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timed {
    /// How long all of them took on the modelled drive.
    pub seconds: f64,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Writes a second.
    pub writes_per_s: f64,
    /// MiB read in a second.
    pub read_mib_per_s: f64,
    /// MiB written in a second.
    pub write_mib_per_s: f64,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes, until they are acknowledged.
    pub writes: Latencies,
}

/// Requests in flight on a drive.
#[derive(Debug)]
pub(crate) struct Clients {
    /// When each is done, and whose it is.
    slots: BinaryHeap<Reverse<(u64, usize)>>,
    /// When the last request was issued, and the first that counts.
    at: u64,
    began: u64,
    /// When the last of those that count is done.
    ended: u64,
    bytes: [u64; 2],
    latencies: [Recorder; 2],
}

impl Clients {
    pub(crate) fn new(in_flight: usize) -> Clients {
        let slots = (0..in_flight).map(|slot| Reverse((0, slot))).collect();
        Clients { slots, at: 0, began: 0, ended: 0, bytes: [0; 2], latencies: Default::default() }
    }

    /// The client that is free first; the next request is its.
    pub(crate) fn next(&self) -> usize {
        let Reverse((_, slot)) = self.slots.peek().expect("there is a slot for each request in flight");
        *slot
    }

    /// That client's request.
    pub(crate) fn request(
        &mut self,
        drive: &mut Drive<Timing>,
        kind: Kind,
        offset: u64,
        bytes: u64,
        handle: Handle,
    ) -> Result<(), Error> {
        let Reverse((at, slot)) = self.slots.pop().expect("there is a slot for each request in flight");
        self.at = at;
        let done = match kind {
            Kind::Write => {
                let done = drive.flash_mut().accept_write(at, bytes);
                drive.write(offset, bytes, handle)?;
                done
            }
            Kind::Read => {
                drive.flash_mut().start_command(at);
                drive.read(offset, bytes)?;
                drive.flash().finish_read()
            }
            Kind::Trim => {
                drive.flash_mut().start_command(at);
                drive.trim(offset, bytes)?;
                drive.flash().finish_read()
            }
        };
        if let Some(which) = [Kind::Write, Kind::Read].iter().position(|counted| *counted == kind) {
            self.latencies[which].add(done - at);
            self.bytes[which] += bytes;
        }
        self.ended = self.ended.max(done);
        self.slots.push(Reverse((done, slot)));
        Ok(())
    }

    /// What was done so far does not count.
    pub(crate) fn forget(&mut self) {
        (self.began, self.ended) = (self.at, self.at);
        (self.bytes, self.latencies) = ([0; 2], Default::default());
    }

    /// What was done since.
    pub(crate) fn timed(&self) -> Timed {
        let [writes, reads] = [0, 1].map(|which| self.latencies[which].latencies());
        let seconds = (self.ended - self.began) as f64 / 1e9;
        let [write_mib_per_s, read_mib_per_s] =
            self.bytes.map(|bytes| bytes as f64 / seconds / f64::from(1 << 20));
        Timed {
            seconds,
            reads_per_s: reads.count as f64 / seconds,
            writes_per_s: writes.count as f64 / seconds,
            read_mib_per_s,
            write_mib_per_s,
            reads,
            writes,
        }
    }
}
