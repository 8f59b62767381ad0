//! The network case: measures `esker serve` and redis-server, both with redis-benchmark.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker_bench::process::Usage;
use esker_bench::{Failure, Result};

use crate::contest::engine::Engine;
use crate::results::record::{Measured, Record, Records};
use crate::run::cgroup::Group as Limit;
use crate::run::comparison::Comparison;
use crate::run::parse::{Latency, Run};
use crate::run::{child, machine};

const VALUE_BYTES: u64 = 4096;
const CLIENTS: u64 = 32;
/// Time limit for a server's answer.
const PATIENCE: Duration = Duration::from_secs(30);
const KEY_BYTES: u64 = 16;

/// The measured commands, with the name of the step and the share of puts.
const COMMANDS: [(&str, &str, f64); 2] = [("set", "net-set", 1.0), ("get", "net-get", 0.0)];

/// Measures the servers that take part, in turn.
pub(crate) fn measure(comparison: &Comparison, records: &mut Records, repetition: u64) -> Result<()> {
    for engine in [Engine::Esker, Engine::Redis] {
        let there = COMMANDS.iter().all(|(_, step, _)| records.has(repetition, step, engine.name()));
        if !comparison.engines.contains(&engine) || there {
            continue;
        }
        records.forget(repetition, "network", engine.name())?;
        let dir = comparison.dir.join(engine.name());
        machine::remove(&dir)?;
        machine::make(&dir)?;
        comparison.machine.drop_caches();
        eprintln!("          round {repetition}  {:<12} {}", "network", engine.name());
        let result = serve(comparison, engine, &dir, repetition);
        machine::remove(&dir)?;
        match result {
            Ok(made) => made.into_iter().try_for_each(|record| records.push(record))?,
            Err(failure) => {
                let (Failure::Usage(why) | Failure::Failed(why)) = failure;
                eprintln!("          network on {} failed: {why}", engine.name());
                records.push(Record { failed: Some(why), ..record(engine, repetition, COMMANDS[0]) })?;
            }
        }
    }
    Ok(())
}

fn record(engine: Engine, repetition: u64, (_, step, put_share): (&str, &str, f64)) -> Record {
    Record {
        repetition,
        group: "network".into(),
        step: step.into(),
        engine: engine.name().into(),
        user_bytes_per_put: KEY_BYTES + VALUE_BYTES,
        put_share,
        in_flight: CLIENTS,
        ..Record::default()
    }
}

/// A server process that is ended on drop.
struct Server {
    child: Child,
    words: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(
    comparison: &Comparison,
    engine: Engine,
    dir: &Path,
    port: u16,
    limit: Option<&Limit>,
) -> Result<Server> {
    let sizes = &comparison.sizes;
    let text = |value: &Path| value.display().to_string();
    let (program, words): (PathBuf, Vec<String>) = if engine == Engine::Redis {
        let fixed =
            "--bind 127.0.0.1 --save --appendonly yes --appendfsync no --auto-aof-rewrite-percentage 0";
        let mut words: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
        // An empty list of snapshots is an empty word.
        words.insert(3, String::new());
        words.extend(["--port".into(), port.to_string(), "--dir".into(), text(dir)]);
        ("redis-server".into(), words)
    } else {
        let mut words: Vec<String> = vec!["serve".into(), "--dir".into(), text(&dir.join("db"))];
        words.extend(["--resp".into(), format!("127.0.0.1:{port}"), "--durability".into(), "process".into()]);
        words.extend(["--memory".into(), (sizes.memory_bytes * 7 / 8).to_string()]);
        (comparison.programs.server.clone(), words)
    };
    let log = comparison.out.join("logs").join(format!("serve-{}.txt", engine.name()));
    let file =
        std::fs::File::create(&log).map_err(|error| Failure::failed(&log.display().to_string(), error))?;
    let errors = file.try_clone().map_err(|error| Failure::failed(&log.display().to_string(), error))?;
    let child = child::command(&program, &words, limit)
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .map_err(|error| Failure::failed(&format!("starting {}", program.display()), error))?;
    let mut server = Server { child, words: child::typed(&program, &words) };
    let began = Instant::now();
    while !answers(port) {
        if !matches!(server.child.try_wait(), Ok(None)) || began.elapsed() > PATIENCE {
            return Err(Failure::Failed(format!(
                "{} does not serve; see {}",
                program.display(),
                log.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}

/// Returns true if a server has loaded its data; one that is loading answers with an error.
fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).map(|()| answer == *b"+PONG")
    };
    ask().unwrap_or(false)
}

/// Starts a server, fills it, and measures the commands.
fn serve(comparison: &Comparison, engine: Engine, dir: &Path, repetition: u64) -> Result<Vec<Record>> {
    let limit = comparison.limit()?;
    // A port that is free now.
    let port = TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| Failure::failed("finding a free port", error))?
        .port();
    let server = start(comparison, engine, dir, port, limit.as_ref())?;
    // Half of the memory, because redis-server keeps all its data in it.
    let keys = comparison.sizes.hit_keys();
    let requests = (keys * 4).clamp(1000, comparison.sizes.seconds * 50_000);
    let mut made = Vec::new();
    for command in COMMANDS {
        let words = [
            ("-p", port.to_string()),
            ("-c", CLIENTS.to_string()),
            ("-n", requests.to_string()),
            ("-r", keys.to_string()),
            ("-d", VALUE_BYTES.to_string()),
            ("-t", command.0.to_owned()),
        ];
        let mut client = Command::new("redis-benchmark");
        words.iter().for_each(|(flag, value)| {
            client.arg(flag).arg(value);
        });
        let before = Usage::of(server.child.id());
        let began = Instant::now();
        let output = client
            .arg("--csv")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::failed("starting redis-benchmark", error))?;
        let seconds = began.elapsed().as_secs_f64();
        let usage = Usage::of(server.child.id()).since(before);
        let said = String::from_utf8_lossy(&output.stdout);
        let run = said.lines().filter_map(|line| csv(line, requests)).find(|run| run.name == command.0);
        let run = run.ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Failure::Failed(format!("redis-benchmark gave no figures after {seconds:.0} s: {said}{errors}"))
        })?;
        let line = words.map(|(flag, value)| format!("{flag} {value}")).join(" ");
        made.push(Record {
            command: format!("{}\nredis-benchmark {line} --csv", server.words),
            runs: vec![Measured { run, usage }],
            usage,
            peak_bytes: limit.as_ref().and_then(Limit::peak_bytes),
            ..record(engine, repetition, command)
        });
    }
    Ok(made)
}

/// Parses a line of redis-benchmark's table: test, rate, and in milliseconds average, min, p50, p95, p99,
/// max.
fn csv(line: &str, requests: u64) -> Option<Run> {
    let fields: Vec<&str> = line.split(',').map(|field| field.trim_matches('"')).collect();
    let [test, numbers @ ..] = &fields[..] else { return None };
    let numbers: Vec<f64> = numbers.iter().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [rate, mean, _, p50, p95, p99, max] = numbers[..] else { return None };
    let percentiles = [("50", p50), ("95", p95), ("99", p99)].map(|(p, ms)| (p.to_owned(), ms * 1e3));
    let latency =
        Latency { count: requests, mean: mean * 1e3, max: max * 1e3, percentiles: percentiles.into() };
    let name = test.to_ascii_lowercase();
    let kind = if name == "get" { "read" } else { "write" };
    Some(Run {
        name,
        micros_per_operation: mean * 1e3,
        operations_per_s: rate,
        seconds: requests as f64 / rate,
        operations: requests,
        latency_us: BTreeMap::from([(kind.to_owned(), latency)]),
        ..Run::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmark_table_is_parsed() {
        // The output of version 7.0.15.
        let text = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"SET\",\"71428.57\",\"0.401\",\"0.112\",\"0.383\",\"0.591\",\"0.999\",\"2.103\"\n";
        let runs: Vec<_> = text.lines().filter_map(|line| csv(line, 100_000)).collect();
        let [run] = &runs[..] else { panic!("{runs:?}") };
        assert_eq!((run.name.as_str(), run.operations_per_s, run.operations), ("set", 71428.57, 100_000));
        assert_eq!(run.latency_us["write"].percentiles["99"], 999.0);
    }
}
