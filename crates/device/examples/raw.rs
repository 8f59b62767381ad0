//! Measures a device without an engine on top.
//!
//! ```text
//! raw <path> randread [--depth 64] [--seconds 5] [--bytes 4096]
//! raw <path> dsync    [--depth 1]  [--seconds 5] [--bytes 4096]
//! raw <path> seqwrite [--depth 8]  [--seconds 5] [--bytes 262144]
//! ```
//!
//! `--backend uring|threads`, `--buffered`, `--size <bytes>` (a file is created with this size and written once).
//! `dsync` and `seqwrite` OVERWRITE the file or device.
#![expect(clippy::disallowed_methods, reason = "a measurement looks at the clock")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use esker_device::{Backend, Direct, OpenOptions, WriteMode, block_on, open};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

struct Arguments {
    options: OpenOptions,
    mode: String,
    depth: usize,
    seconds: u64,
    bytes: usize,
    size: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("a path is missing")?;
    let mode = arguments.next().ok_or("randread, dsync or seqwrite is missing")?;
    let (depth, bytes) = match mode.as_str() {
        "randread" => (64, 4096),
        "dsync" => (1, 4096),
        "seqwrite" => (8, 256 << 10),
        other => return Err(format!("{other} is not randread, dsync or seqwrite")),
    };
    let options = OpenOptions::new(path).create(true);
    let mut parsed = Arguments { options, mode, depth, seconds: 5, bytes, size: 1 << 30 };
    while let Some(name) = arguments.next() {
        if name == "--buffered" {
            parsed.options.direct = Direct::Never;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{name} {value}: {error}"));
        match name.as_str() {
            "--depth" => parsed.depth = number()? as usize,
            "--seconds" => parsed.seconds = number()?,
            "--bytes" => parsed.bytes = number()? as usize,
            "--size" => parsed.size = number()?,
            "--backend" if value == "uring" => parsed.options.backend = Backend::Uring,
            "--backend" if value == "threads" => parsed.options.backend = Backend::Threads,
            _ => return Err(format!("{name} {value} is not known")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let outcome = arguments().and_then(|arguments| run(&arguments));
    if let Err(error) = outcome {
        eprintln!("raw: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let (device, warnings) = open(arguments.options.clone()).map_err(|error| error.to_string())?;
    warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let device = &*device;
    if device.geometry().bytes == 0 {
        block_on(device.resize(arguments.size)).map_err(|error| error.to_string())?;
        eprintln!("writing {} bytes once, so that reads and overwrites meet written blocks", arguments.size);
        // Each block differs, so that no layer below can deduplicate them.
        let outcome = drive(16, u64::MAX, arguments.size / (1 << 20), |index| {
            let mut buffer = device.buffer(1 << 20);
            let mut state = index + 1;
            buffer.chunks_mut(8).for_each(|chunk| {
                state = random(state);
                chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
            });
            device.write(index << 20, buffer.into(), WriteMode::Plain)
        });
        outcome?;
        block_on(device.flush()).map_err(|error| error.to_string())?;
    }
    eprintln!("{:?}", device.geometry());
    let (bytes, depth) = (arguments.bytes, arguments.depth);
    let places = device.geometry().bytes / bytes as u64;
    let before = device.counters();
    let mut latencies = match arguments.mode.as_str() {
        "randread" => drive(depth, arguments.seconds, u64::MAX, |index| {
            let read = device.read(random(index) % places * bytes as u64, device.buffer(bytes));
            async move { read.await.1 }
        })?,
        mode => drive(depth, arguments.seconds, u64::MAX, |index| {
            let mut buffer = device.buffer(bytes);
            buffer[..8].copy_from_slice(&index.to_le_bytes());
            let mode = if mode == "dsync" { WriteMode::Durable } else { WriteMode::Plain };
            device.write(index % places * bytes as u64, buffer.into(), mode)
        })?,
    };
    let after = device.counters();
    latencies.sort_unstable();
    let at =
        |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1000.0;
    let count = latencies.len() as f64;
    let calls = (after.submit_calls - before.submit_calls) as f64;
    println!(
        "{} depth {depth}, {bytes} bytes: {:.0} IOPS, {:.1} MB/s, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, \
         {:.2} calls/op",
        arguments.mode,
        count / arguments.seconds as f64,
        count * bytes as f64 / arguments.seconds as f64 / 1e6,
        at(0.5),
        at(0.99),
        at(0.999),
        calls / count,
    );
    Ok(())
}

fn random(state: u64) -> u64 {
    let mixed = state.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8
}

/// Keeps `depth` operations in flight for `seconds` seconds or `count` operations, and returns the latency of each.
fn drive<F: Future<Output = Result<(), esker_device::DeviceError>>>(
    depth: usize,
    seconds: u64,
    count: u64,
    submit: impl Fn(u64) -> F,
) -> Result<Vec<Duration>, String> {
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut next = 0;
    let timed = |index: u64| {
        let started = Instant::now();
        let operation = submit(index);
        async move { (started, operation.await) }
    };
    let mut running = FuturesUnordered::new();
    block_on(async {
        while next < count.min(depth as u64) {
            running.push(timed(next));
            next += 1;
        }
        while let Some((started, outcome)) = running.next().await {
            outcome.map_err(|error| error.to_string())?;
            let now = Instant::now();
            latencies.push(now - started);
            if next < count && (now - start).as_secs() < seconds {
                running.push(timed(next));
                next += 1;
            }
        }
        Ok(latencies)
    })
}
