//! The current state of a server as one document, for `/status.json`, `INFO status`, `esker top` and the page at `/`.
//!
//! - `document`: the document, shared by server and clients.
//! - `sample`: counters at one moment; rates are the difference of two samples.
//! - `map`: the segments of a tier in a bounded number of cells.
//! - `cluster`: the part about a cluster.
//! - `make`: builds the document of a server.
//!
//! Counters are sampled once a second, so that all clients see the rates of the same second, whatever their number and polling
//! interval. Other values are read on request, and the document is built at most five times per second.

mod cluster;
mod document;
mod make;
mod map;
mod sample;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use crate::service::Service;

pub use cluster::{ClusterGroup, ClusterNode, ClusterStatus};
pub use document::{
    Amplification, Cause, Clients, Drive, FORMAT, Map, Memory, Percentiles, Rates, Recovering, Space, State,
    Status, Tier,
};
pub(crate) use make::disk_bytes;
pub use map::{Cell, KINDS};

use sample::Sample;

/// Interval between samples.
const EVERY: Duration = Duration::from_secs(1);

/// Maximum age of a returned document.
const FRESH: Duration = Duration::from_millis(200);

/// Maximum size of the document in bytes, without the paths of the tiers.
pub(crate) const BYTES_MAX: usize = 32 << 10;

/// The last two samples, and the last document.
#[derive(Default)]
pub(crate) struct Sampler {
    ticks: Mutex<[Option<Arc<Sample>>; 2]>,
    made: Mutex<Option<(Instant, Bytes)>>,
}

impl Sampler {
    /// Samples periodically; never returns.
    pub(crate) async fn run(service: Arc<Service>) {
        let mut turn = interval(EVERY);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turn.tick().await;
            let sample = Arc::new(Sample::take(&service.store, &service.counters));
            let mut ticks = lock(&service.status.ticks);
            ticks.swap(0, 1);
            ticks[1] = Some(sample);
        }
    }

    /// Returns the last two samples; `None` before the second one.
    fn window(&self) -> Option<(Arc<Sample>, Arc<Sample>)> {
        let ticks = lock(&self.ticks);
        ticks[0].clone().zip(ticks[1].clone())
    }

    /// Returns the rates of the last second; all zero during the first.
    pub(crate) fn rates(&self) -> Rates {
        self.window().map_or(Rates::default(), |(before, after)| after.rates_since(&before))
    }

    /// Returns the document as JSON.
    pub(crate) fn json(&self, service: &Service) -> Bytes {
        let mut made = lock(&self.made);
        if let Some((_, json)) = made.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return json.clone();
        }
        let window = self.window();
        let window = window.as_ref().map(|(before, after)| (&**before, &**after));
        let json = make::status(service, window).to_json();
        *made = Some((Instant::now(), json.clone()));
        json
    }
}

impl Status {
    pub(crate) fn to_json(&self) -> Bytes {
        serde_json::to_vec(self).expect("the document has only types of JSON").into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
