//! Clients that mean harm, against a server in a process of its own: its memory stays within the budget, an honest
//! client is served all the while, nothing panics and nothing hangs.
//!
//! `ESKER_HOSTILE_SECONDS` makes every attack last longer; `cargo test -p esker-server --test hostile -- --ignored all_at_once`
//! runs all of them at once, for a minute by default; with `--nocapture p99` instead, one after the other, and compares what
//! honest clients wait for with what they wait for alone (`latency`), beside each attack or the one that
//! `ESKER_HOSTILE_ATTACK` names.
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

/// What memory may be over the budget: five parts of a hundred, and what the allocator keeps between blocks.
const SLACK_BYTES: u64 = CLIENT_BYTES / 20 + (8 << 20);

/// An honest client may wait so long for one answer, on a machine that runs everything else as well.
const LATENCY_MAX: Duration = Duration::from_secs(2);

fn seconds(usual: u64) -> Duration {
    let given = std::env::var("ESKER_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(usual))
}

/// Runs attacks at the same time and checks what must hold during and after them. Returns the metrics at the end.
fn withstand(attacks: &[Attack], time: Duration) -> server::Metrics {
    server::raise_file_limit();
    let server = Hosted::start();
    let before = server.resident_peak_anew();
    let honest = [Honest::start(server.resp), Honest::start_grpc(server.grpc)];
    let until = Instant::now() + time;
    let (most, newcomers) = std::thread::scope(|scope| {
        for attack in attacks {
            scope.spawn(|| attack.run(&server, until));
        }
        let (mut most, mut newcomers) = (0, 0);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            most = most.max(server.metrics().get("esker_client_memory_bytes"));
            if attacks.iter().all(|attack| attack.is_from_afar()) {
                honest::newcomer(server.resp);
                honest::newcomer_grpc(server.grpc);
                newcomers += 1;
            }
        }
        (most, newcomers)
    });
    let served = honest.map(Honest::stop);
    let peak = server.resident_peak();
    println!(
        "{attacks:?}: counted {} KiB, resident +{} KiB, honest {:?} answers, slowest {:?}, \
         {newcomers} newcomers",
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
        assert!(served.answers() >= 20, "the honest client had {} answers", served.answers());
        assert!(served.slowest() < LATENCY_MAX, "the honest client waited {:?}", served.slowest());
    }
    let metrics = server.metrics();
    server.stop();
    metrics
}

#[test]
fn declared_lengths_reserve_nothing() {
    withstand(&[Attack::DeclaredLengths], seconds(2));
}

#[test]
fn large_values_that_stop_halfway() {
    let metrics = withstand(&[Attack::HalfValues], seconds(4));
    assert!(metrics.get("esker_client_memory_waits_total") > 0, "nobody had to wait");
}

#[test]
fn long_and_deep_arrays() {
    withstand(&[Attack::LongArrays, Attack::DeepArrays], seconds(3));
}

#[test]
fn a_byte_at_a_time() {
    let metrics = withstand(&[Attack::Trickle], seconds(4));
    assert!(
        metrics.get("esker_connections_dropped_total{reason=\"slow_command\"}") > 0,
        "all were borne with"
    );
}

#[test]
fn readers_that_never_read() {
    let metrics = withstand(&[Attack::NeverReads], seconds(5));
    // Most of them get as far as answers that they do not take: batches that wait for memory leave some for others.
    let dropped = metrics.get("esker_connections_dropped_total{reason=\"slow_reader\"}");
    assert!(dropped >= 20, "{dropped} were dropped");
}

#[test]
fn thousands_of_connections() {
    let metrics = withstand(&[Attack::Connections], seconds(3));
    assert!(metrics.get("esker_connections_refused_total") > 0, "all were let in");
}

#[test]
fn half_a_handshake() {
    let metrics = withstand(&[Attack::HalfTls], seconds(4));
    assert!(metrics.get("esker_tls_failures_total") > 0, "all were borne with");
}

#[test]
fn random_bytes() {
    let metrics = withstand(&[Attack::Random], seconds(3));
    assert!(metrics.get("esker_connections_dropped_total{reason=\"protocol\"}") > 0, "all were RESP");
}

#[test]
fn giant_messages() {
    let metrics = withstand(&[Attack::GrpcMessages], seconds(4));
    assert!(metrics.failures("RESOURCE_EXHAUSTED") > 0, "none was too large");
    assert!(metrics.failures("DEADLINE_EXCEEDED") > 0, "all were borne with");
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
    let metrics = withstand(&[Attack::GrpcSlowReaders], seconds(6));
    assert!(
        metrics.get("esker_connections_dropped_total{reason=\"slow_reader\"}") > 0,
        "all were borne with"
    );
}

#[test]
fn half_a_conversation() {
    let metrics = withstand(&[Attack::GrpcHalfOpen], seconds(4));
    assert!(metrics.get("esker_connections_dropped_total{reason=\"login\"}") > 0, "all were borne with");
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
    let metrics = withstand(&[Attack::GrpcWatches], seconds(4));
    assert!(metrics.get("esker_grpc_watches_missed_total") > 0, "none was too slow");
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
    let metrics = withstand(&[Attack::GrpcHealth], seconds(4));
    assert!(metrics.get("esker_connections_dropped_total{reason=\"login\"}") > 0, "all were borne with");
    assert!(metrics.get("esker_connections_refused_total") > 0, "all were let in");
}

#[test]
fn silent_handshakes_of_another_address() {
    let metrics = withstand(&[Attack::SilentTls], seconds(4));
    assert!(metrics.get("esker_tls_failures_total") > 0, "all were borne with");
    assert!(metrics.get("esker_connections_refused_total") > 0, "all were let in");
}

#[test]
#[ignore = "takes a minute"]
fn all_at_once() {
    withstand(&Attack::ALL, seconds(60));
}

/// Not a test but the process that the others start.
#[test]
fn as_server() {
    server::serve_if_asked();
}
