//! Malicious clients against a server in its own process: its memory stays within the budget, honest clients are served all the
//! time, and nothing panics or hangs.
//!
//! `ESKER_HOSTILE_SECONDS` extends every attack. `cargo test -p esker-server --test hostile -- --ignored all_at_once` runs all
//! attacks at once, for a minute by default. With `--nocapture p99` instead, they run one after the other, and the latency of
//! honest clients is compared with that without an attack (`latency`); `ESKER_HOSTILE_ATTACK` selects one attack.
#![allow(clippy::disallowed_methods, reason = "the tests live in real time, as the server does")]

mod attack;
mod commands;
mod grpc;
mod honest;
mod http2;
mod latency;
mod server;
mod turns;

use std::time::{Duration, Instant};

use attack::Attack;
use honest::{Honest, Served};
use server::{CLIENT_BYTES, Hosted};

/// Permitted memory beyond the budget, in bytes: five percent, and memory retained by the allocator.
const SLACK_BYTES: u64 = CLIENT_BYTES / 20 + (8 << 20);

/// Minimum number of answers for each honest client beside an attack.
const ANSWERS_MIN: usize = 20;

/// Maximum number of rounds of an attack. A slow machine needs several rounds to show an effect that a fast one shows in the
/// first; a server that starves its clients or tolerates attackers shows it in none.
const ROUNDS_MAX: u32 = 15;

fn seconds(usual: u64) -> Duration {
    let given = std::env::var("ESKER_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(usual))
}

/// Runs attacks concurrently and checks the requirements during and after them. Returns the metrics at the end.
fn withstand(attacks: &[Attack], time: Duration) -> server::Metrics {
    withstand_until(attacks, time, |_| true)
}

/// As [`withstand`], in rounds of `time` until the metrics show the server's defence and honest clients have received their
/// answers.
fn withstand_until(
    attacks: &[Attack],
    time: Duration,
    is_shown: impl Fn(&server::Metrics) -> bool,
) -> server::Metrics {
    server::raise_file_limit();
    let server = Hosted::start();
    let before = server.resident_peak_anew();
    let honest = [Honest::start(server.resp), Honest::start_grpc(server.grpc)];
    let (mut most, mut newcomers, mut rounds) = (0, 0, 0);
    loop {
        let until = Instant::now() + time;
        std::thread::scope(|scope| {
            for attack in attacks {
                scope.spawn(|| attack.run(&server, until));
            }
            while Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
                most = most.max(server.metrics().get("esker_client_memory_bytes"));
                if attacks.iter().all(|attack| attack.is_from_afar()) {
                    honest::newcomer(server.resp);
                    honest::newcomer_grpc(server.grpc);
                    newcomers += 1;
                }
            }
        });
        rounds += 1;
        let are_served = honest.iter().all(|honest| honest.answers() >= ANSWERS_MIN);
        if are_served && is_shown(&server.metrics()) || rounds == ROUNDS_MAX {
            break;
        }
    }
    let served = honest.map(Honest::stop);
    let peak = server.resident_peak();
    println!(
        "{attacks:?}: counted {} KiB, resident +{} KiB, honest {:?} answers, slowest {:?}, \
         {newcomers} newcomers, {rounds} rounds",
        most >> 10,
        peak.saturating_sub(before) >> 10,
        served.each_ref().map(Served::answers),
        served.each_ref().map(Served::slowest),
    );
    assert!(most <= CLIENT_BYTES, "clients held {most} bytes of {CLIENT_BYTES}");
    let of_store = attacks.iter().map(|attack| attack.store_bytes()).max().unwrap_or(0);
    assert!(
        peak <= before + CLIENT_BYTES + SLACK_BYTES + of_store,
        "resident memory grew from {before} to {peak}, and clients may have {CLIENT_BYTES}"
    );
    for served in served {
        let answers = served.answers();
        assert!(answers >= ANSWERS_MIN, "an honest client had {answers} answers in {rounds} rounds");
    }
    let metrics = server.metrics();
    assert!(is_shown(&metrics), "the server's defence does not show in the metrics after {rounds} rounds");
    server.stop();
    metrics
}

#[test]
fn declared_lengths_reserve_nothing() {
    withstand(&[Attack::DeclaredLengths], seconds(2));
}

#[test]
fn large_values_that_stop_halfway() {
    withstand_until(&[Attack::HalfValues], seconds(4), |metrics| {
        metrics.get("esker_client_memory_waits_total") > 0
    });
}

#[test]
fn long_and_deep_arrays() {
    withstand(&[Attack::LongArrays, Attack::DeepArrays], seconds(3));
}

#[test]
fn a_byte_at_a_time() {
    withstand_until(&[Attack::Trickle], seconds(4), |metrics| {
        metrics.get("esker_connections_dropped_total{reason=\"slow_command\"}") > 0
    });
}

#[test]
fn readers_that_never_read() {
    // Most of them reach the point of unread replies: batches that wait for memory leave some for others.
    withstand_until(&[Attack::NeverReads], seconds(5), |metrics| {
        metrics.get("esker_connections_dropped_total{reason=\"slow_reader\"}") >= 20
    });
}

#[test]
fn thousands_of_connections() {
    let metrics = withstand(&[Attack::Connections], seconds(3));
    assert!(metrics.get("esker_connections_refused_total") > 0, "all were let in");
}

#[test]
fn half_a_handshake() {
    withstand_until(&[Attack::HalfTls], seconds(4), |metrics| metrics.get("esker_tls_failures_total") > 0);
}

#[test]
fn random_bytes() {
    withstand_until(&[Attack::Random], seconds(3), |metrics| {
        metrics.get("esker_connections_dropped_total{reason=\"protocol\"}") > 0
    });
}

#[test]
fn giant_messages() {
    withstand_until(&[Attack::GrpcMessages], seconds(4), |metrics| {
        metrics.failures("RESOURCE_EXHAUSTED") > 0 && metrics.failures("DEADLINE_EXCEEDED") > 0
    });
}

#[test]
fn thousands_of_calls() {
    withstand(&[Attack::GrpcStreams], seconds(4));
}

#[test]
fn calls_that_are_taken_back() {
    withstand(&[Attack::GrpcResets], seconds(3));
}

#[test]
fn callers_that_never_read() {
    withstand_until(&[Attack::GrpcSlowReaders], seconds(6), |metrics| {
        metrics.get("esker_connections_dropped_total{reason=\"slow_reader\"}") > 0
    });
}

#[test]
fn half_a_conversation() {
    withstand_until(&[Attack::GrpcHalfOpen], seconds(4), |metrics| {
        metrics.get("esker_connections_dropped_total{reason=\"login\"}") > 0
    });
}

#[test]
fn metadata_without_end() {
    withstand(&[Attack::GrpcMetadata], seconds(3));
}

#[test]
fn random_frames() {
    withstand(&[Attack::GrpcRandom], seconds(3));
}

#[test]
fn watches_that_are_not_read() {
    withstand_until(&[Attack::GrpcWatches], seconds(4), |metrics| {
        metrics.get("esker_grpc_watches_missed_total") > 0
    });
}

#[test]
fn answers_that_are_to_be_remembered() {
    withstand(&[Attack::GrpcRemembered], seconds(4));
}

#[test]
fn transactions_of_long_answers() {
    withstand(&[Attack::LongTransactions], seconds(5));
}

#[test]
fn names_of_megabytes() {
    withstand(&[Attack::LongNames], seconds(4));
}

#[test]
fn patterns_that_take_long() {
    withstand(&[Attack::Patterns], seconds(5));
}

#[test]
fn values_of_zeros() {
    withstand(&[Attack::Zeros], seconds(5));
}

#[test]
fn keys_that_are_kept_and_prefixes_without_end() {
    withstand(&[Attack::Keepers], seconds(5));
}

#[test]
fn silent_health_checkers_of_another_address() {
    withstand_until(&[Attack::GrpcHealth], seconds(4), |metrics| {
        metrics.get("esker_connections_dropped_total{reason=\"login\"}") > 0
            && metrics.get("esker_connections_refused_total") > 0
    });
}

#[test]
fn silent_handshakes_of_another_address() {
    withstand_until(&[Attack::SilentTls], seconds(4), |metrics| {
        metrics.get("esker_tls_failures_total") > 0 && metrics.get("esker_connections_refused_total") > 0
    });
}

#[test]
#[ignore = "takes a minute"]
fn all_at_once() {
    withstand(&Attack::ALL, seconds(60));
}

/// Not a test, but the server process of the other tests.
#[test]
fn as_server() {
    server::serve_if_asked();
}
