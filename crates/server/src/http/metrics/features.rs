//! Metrics of databases, pub/sub channels, client-side caching and scripts.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use super::Text;
use crate::base::pool::JobCounts;
use crate::service::Service;
use crate::service::channels::Kind;
use crate::service::traces::TraceCounts;
use crate::service::tracking::Totals;

pub(super) fn features(text: &mut Text, service: &Service) {
    let keys = 0..service.databases().len();
    let keys = keys.map(|number| format!("{{database=\"{number}\"}} {}", service.keys(number as u8)));
    text.lines("database_keys", "Keys of each database.", keys);
    let expiring = service.databases().iter().enumerate().map(|(number, store)| {
        format!("{{database=\"{number}\"}} {}", service.expiring.of(number, store.len()).0)
    });
    let help = "Keys of each database that expire: with more than 256 keys estimated from 256 of them.";
    text.lines("database_keys_expiring", help, expiring);
    let lookups = &service.counters.lookups;
    text.counter("key_hits_total", "Keys that were asked for and were there.", lookups.hits());
    text.counter("key_misses_total", "Keys that were asked for and were not there.", lookups.misses());
    for (name, help, which) in [
        ("database_hits_total", "Keys of each database that were asked for and were there.", 0),
        ("database_misses_total", "Keys of each database that were asked for and were not there.", 1),
    ] {
        text.head(name, "counter", help);
        for number in 0..service.databases().len() {
            let _ = writeln!(text.0, "esker_{name}{{database=\"{number}\"}} {}", lookups.of(number)[which]);
        }
    }
    let of = |(label, kind)| ("kind", label, service.channels.names_bytes(kind).1 as u64);
    let kinds = [("channel", Kind::Channel), ("pattern", Kind::Pattern), ("shard", Kind::Shard)].map(of);
    text.labelled("subscribed_names", "gauge", "Names that anybody subscribes to, by kind.", &kinds);
    let pools = [("background", service.pool.counts())];
    let jobs = |of: fn(&JobCounts) -> u64| pools.each_ref().map(|(pool, counts)| ("pool", *pool, of(counts)));
    let help = "Jobs that wait for a thread of a pool.";
    text.labelled("jobs_queued", "gauge", help, &jobs(|counts| counts.queued));
    let help = "Jobs that run on a thread of a pool.";
    text.labelled("jobs_running", "gauge", help, &jobs(|counts| counts.running));
    text.labelled("jobs_done_total", "counter", "Jobs that ended.", &jobs(|counts| counts.done));
    let help = "Jobs that never began: too many waited, the deadline passed or the client was gone.";
    text.labelled("jobs_refused_total", "counter", help, &jobs(|counts| counts.refused));
    traces(text, service);
    let Totals { keys, items, prefixes } = service.tracking.totals();
    let (scripts, script_bytes) = service.scripts.cache().size();
    for (name, help, value) in [
        (
            "tracking_clients",
            "Clients with invalidation messages enabled (CLIENT TRACKING).",
            service.tracking.clients(),
        ),
        ("tracking_keys", "Keys that are remembered for them.", keys),
        ("tracking_items", "Pairs of such a key and a client that keeps it.", items),
        ("tracking_prefixes", "Key prefixes of tracking clients in broadcasting mode.", prefixes),
        ("scripts", "Scripts that are known.", scripts),
        ("scripts_bytes", "Memory of scripts that are known.", script_bytes),
    ] {
        text.gauge(name, help, value);
    }
}

/// Adds the spans of slow requests, which are 0 without a collector.
fn traces(text: &mut Text, service: &Service) {
    let none = TraceCounts::default();
    let counts = service.traces.as_ref().map_or(&none, |traces| &traces.counts);
    let sent = counts.sent.load(Ordering::Relaxed);
    text.counter("trace_spans_sent_total", "Spans of slow requests that the collector took.", sent);
    let dropped = counts.dropped().map(|(reason, spans)| ("reason", reason, spans));
    text.labelled(
        "trace_spans_dropped_total",
        "counter",
        "Spans of slow requests that were dropped, by reason.",
        &dropped,
    );
}
