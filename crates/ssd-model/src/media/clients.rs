//! Clients of a drive: a fixed number of requests in flight, each followed by the next as soon as it completes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::{Latencies, Recorder, Timing};
use crate::request::Kind;
use crate::{Drive, Error, Handle};

/// Timing of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timed {
    /// Total time on the modelled drive in seconds.
    pub seconds: f64,
    /// Reads per second.
    pub reads_per_s: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// MiB read per second.
    pub read_mib_per_s: f64,
    /// MiB written per second.
    pub write_mib_per_s: f64,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes until their acknowledgement.
    pub writes: Latencies,
}

/// Requests in flight on a drive.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Completion time and client of each request in flight.
    slots: BinaryHeap<Reverse<(u64, usize)>>,
    /// Issue time of the last request; `began` is that of the first one that counts.
    at: u64,
    began: u64,
    /// Completion time of the last request that counts.
    ended: u64,
    bytes: [u64; 2],
    latencies: [Recorder; 2],
}

impl Clients {
    pub(crate) fn new(in_flight: usize) -> Clients {
        let slots = (0..in_flight).map(|slot| Reverse((0, slot))).collect();
        Clients { slots, at: 0, began: 0, ended: 0, bytes: [0; 2], latencies: Default::default() }
    }

    /// Returns the client that is free first; it issues the next request.
    pub(crate) fn next(&self) -> usize {
        let Reverse((_, slot)) = self.slots.peek().expect("there is a slot for each request in flight");
        *slot
    }

    /// Issues a request of that client.
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

    /// Resets the statistics.
    pub(crate) fn forget(&mut self) {
        (self.began, self.ended) = (self.at, self.at);
        (self.bytes, self.latencies) = ([0; 2], Default::default());
    }

    /// Returns the statistics since the reset.
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
