//! Other Rust engines under db_bench's flags and in db_bench's output format, for `esker-compare`.
//!
//! `esker-rivals --engine=fjall --benchmarks=fillrandom,readrandom --num=1000000 --value_size=4096 --threads=4 --db=DIR`
//!
//! A benchmark is as many threads as are asked for, each with a call at a time.

mod engine;
mod figures;
mod flags;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngCore, SeedableRng};

use engine::{Engine, Failure};
use figures::Figures;
use flags::Flags;

/// Noise from which values are cut, so that nothing below can compress them.
const NOISE_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words == ["--version"] {
        for (name, version) in engine::VERSIONS {
            println!("{name} {version}");
        }
        return ExitCode::SUCCESS;
    }
    match Flags::parse(&words).map_err(Failure::from).and_then(|flags| run(&flags)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("esker-rivals: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The operations of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Write,
    WriteEach,
    Read,
    Mixed,
    Scan,
}

fn run(flags: &Flags) -> Result<(), Failure> {
    if !flags.use_existing_db && flags.db.exists() {
        std::fs::remove_dir_all(&flags.db)?;
    }
    std::fs::create_dir_all(&flags.db)?;
    let engine = engine::open(flags)?;
    let mut noise = vec![0; NOISE_BYTES + flags.value_size];
    SmallRng::seed_from_u64(flags.seed).fill_bytes(&mut noise);
    println!("Engine:     {}\nEntries:    {}\nThreads:    {}", flags.engine, flags.num, flags.threads);
    let mut all = Vec::new();
    for (turn, name) in flags.benchmarks.iter().enumerate() {
        let work = match name.as_str() {
            "fillrandom" | "overwrite" => Work::Write,
            "filluniquerandom" => Work::WriteEach,
            "readrandom" => Work::Read,
            "readrandomwriterandom" => Work::Mixed,
            "readseq" => Work::Scan,
            "waitforcompaction" => {
                let began = Instant::now();
                engine.settle()?;
                println!("waitforcompaction: {:.3} seconds", began.elapsed().as_secs_f64());
                continue;
            }
            _ => return Err(format!("unknown benchmark '{name}'").into()),
        };
        let figures = measure(flags, &*engine, name, work, turn as u64, &noise)?;
        print!("{}", figures.text());
        all.push(figures.json());
    }
    engine.settle()?;
    if let Some(path) = &flags.json {
        std::fs::write(path, serde_json::json!({ "runs": all }).to_string())?;
    }
    Ok(())
}

fn measure(
    flags: &Flags,
    engine: &dyn Engine,
    name: &str,
    work: Work,
    turn: u64,
    noise: &[u8],
) -> Result<Figures, Failure> {
    let began = Instant::now();
    let until = flags.duration.map(|seconds| began + Duration::from_secs(seconds));
    let mut order = Vec::new();
    if work == Work::WriteEach {
        order = (0..flags.num).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(flags.seed ^ turn << 32));
    }
    let clients =
        Clients { flags, engine, name, work, turn, noise, began, until, order, next: AtomicU64::new(0) };
    let parts = std::thread::scope(|scope| {
        let clients = &clients;
        let threads: Vec<_> =
            (0..flags.threads).map(|index| scope.spawn(move || clients.run(index))).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    let mut figures = Figures::new(name);
    for part in parts {
        figures.add(&part.map_err(|_| Failure::from("a thread ended by a bug"))??);
    }
    figures.seconds = began.elapsed().as_secs_f64();
    Ok(figures)
}

/// State that all threads of a benchmark share.
struct Clients<'a> {
    flags: &'a Flags,
    engine: &'a dyn Engine,
    name: &'a str,
    work: Work,
    turn: u64,
    noise: &'a [u8],
    began: Instant,
    until: Option<Instant>,
    /// Where each key comes once: all of them, and which of them is the next.
    order: Vec<u64>,
    next: AtomicU64,
}

impl Clients<'_> {
    /// One thread.
    fn run(&self, index: u64) -> Result<Figures, Failure> {
        let (flags, each_once) = (self.flags, self.work == Work::WriteEach);
        let mut random = SmallRng::seed_from_u64(flags.seed ^ self.turn << 32 ^ (index + 1) << 16);
        let mut figures = Figures::new(self.name);
        if self.work == Work::Scan {
            let mut start = Instant::now();
            self.engine.scan(flags.reads, &mut |bytes| {
                let now = Instant::now();
                figures.read(now - start, Some(bytes));
                start = now;
            })?;
            figures.thread_seconds = self.began.elapsed().as_secs_f64();
            return Ok(figures);
        }
        let until = self.until.filter(|_| !each_once);
        let each = match self.work {
            Work::Write => flags.writes,
            Work::WriteEach => u64::MAX,
            Work::Read | Work::Mixed | Work::Scan => flags.reads,
        };
        let mut done = 0;
        while until.is_some() || done < each {
            let number = if each_once {
                let Some(number) = self.order.get(self.next.fetch_add(1, Ordering::Relaxed) as usize) else {
                    break;
                };
                *number
            } else {
                random.random_range(0..flags.num)
            };
            let read = match self.work {
                Work::Read => true,
                Work::Mixed => random.random_range(0..100) < flags.readwritepercent,
                Work::Write | Work::WriteEach | Work::Scan => false,
            };
            let start = Instant::now();
            if until.is_some_and(|until| start >= until) {
                break;
            }
            let key = key(number, flags.key_size);
            if read {
                let found = self.engine.get(&key)?;
                figures.read(start.elapsed(), found.map(|bytes| bytes + key.len()));
            } else {
                let at = random.random_range(0..NOISE_BYTES);
                self.engine.put(&key, &self.noise[at..at + flags.value_size])?;
                figures.wrote(start.elapsed(), key.len() + flags.value_size);
            }
            done += 1;
        }
        figures.thread_seconds = self.began.elapsed().as_secs_f64();
        Ok(figures)
    }
}

/// The key of a number, as db_bench writes it.
fn key(number: u64, bytes: usize) -> Vec<u8> {
    let number = number.to_be_bytes();
    let mut key = vec![b'0'; bytes.max(number.len())];
    key[..number.len()].copy_from_slice(&number);
    key
}
