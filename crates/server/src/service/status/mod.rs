//! What a server does right now, as one document: for `/status.json`, `INFO status`, `esker top` and the page at `/`.
//!
//! - `document`: the document, which both sides know.
//! - `sample`: what was counted at one moment; rates are the difference of two.
//! - `map`: the segments of a tier in a bounded number of cells.
//! - `make`: the document of a server.
//!
//! Counters are sampled once a second, so everybody who looks sees the rates of the same second, however many look and
//! however often. What is no rate is looked at when it is asked for, and the document is made at most five times a second.

mod document;
mod make;
mod map;
mod sample;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};

use crate::service::Service;

pub use document::{
    Amplification, Cause, Clients, Drive, FORMAT, Map, Memory, Percentiles, Rates, Recovering, Space, State,
    Status, Tier,
};
pub(crate) use make::disk_bytes;
pub use map::{Cell, KINDS};

use sample::Sample;

/// How often counters are sampled.
const EVERY: Duration = Duration::from_secs(1);

/// How old the document may be that is answered.
const FRESH: Duration = Duration::from_millis(200);

/// Bytes of the document at most, but for the paths of the tiers.
pub(crate) const BYTES_MAX: usize = 24 << 10;

/// What was counted at the last two ticks, and the document that was made last.
#[derive(Default)]
pub(crate) struct Sampler {
    ticks: Mutex<[Option<Arc<Sample>>; 2]>,
    made: Mutex<Option<(Instant, Bytes)>>,
}

impl Sampler {
    /// Samples for ever.
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

    /// What was counted at the last two ticks; none before there were two.
    fn window(&self) -> Option<(Arc<Sample>, Arc<Sample>)> {
        let ticks = lock(&self.ticks);
        ticks[0].clone().zip(ticks[1].clone())
    }

    /// What happened in the last second, by kind; all zero in the first.
    pub(crate) fn rates(&self) -> Rates {
        self.window().map_or(Rates::default(), |(before, after)| after.rates_since(&before))
    }

    /// The document as JSON.
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
        serde_json::to_vec(self).expect("it has nothing that JSON has not").into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
