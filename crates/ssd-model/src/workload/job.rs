//! A job: block size, alignment, mix, pattern, writers. From a TOML table, or built by a caller.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};

use super::blocks::Blocks;
use crate::{Error, SECTOR_BYTES, Shape};

/// Maximum number of writers, and of requests in flight per writer.
const IN_FLIGHT_MOST: u32 = 65_536;

/// Distribution of offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub enum Pattern {
    /// Each request follows the previous one of the same writer; each writer has its own part of the span.
    Sequential,
    /// Uniformly random.
    #[default]
    Random,
    /// Zipf: the place of rank `n` has a weight of `1 / n^s`.
    Zipf(f64),
}

impl Pattern {
    /// Parses `sequential`, `random` or `zipf:1.2`.
    pub fn parse(text: &str) -> Result<Pattern, Error> {
        let exponent = |number: &str| number.parse().ok().filter(|s| *s > 0.0 && *s < 10.0);
        match text.split_once(':') {
            None if text == "sequential" => Ok(Pattern::Sequential),
            None if text == "random" => Ok(Pattern::Random),
            Some(("zipf", number)) if exponent(number).is_some() => {
                Ok(Pattern::Zipf(exponent(number).unwrap_or_default()))
            }
            _ => Err(Error::Value {
                what: "the pattern",
                given: format!("'{text}'"),
                allowed: "sequential, random, or zipf with an exponent such as zipf:1.2",
            }),
        }
    }
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Name in tables; if empty, it is derived from the other fields.
    pub name: String,
    /// Length of each request, or a mix of lengths.
    pub block: Blocks,
    /// Alignment of offsets in bytes; 0: the length of the shortest request.
    #[serde(deserialize_with = "size")]
    pub align: u64,
    /// Bytes added to each offset, such as the start of a misaligned partition.
    #[serde(deserialize_with = "size")]
    pub shift: u64,
    /// Distribution of offsets.
    #[serde(deserialize_with = "pattern")]
    pub pattern: Pattern,
    /// Share of requests that are reads.
    pub reads: f64,
    /// Share of requests that are TRIMs.
    pub trims: f64,
    /// Number of writers; sequential ones have one stream each.
    pub writers: u32,
    /// Requests in flight per writer.
    pub queue_depth: u32,
    /// Share of the namespace that the job uses.
    pub span: f64,
    /// True to TRIM the range outside the span before the job; otherwise it holds old data.
    pub trim_rest: bool,
    /// Number of placement handles, assigned to the writers in turn.
    pub handles: u16,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            name: String::new(),
            block: Blocks::from(4096),
            align: 0,
            shift: 0,
            pattern: Pattern::Random,
            reads: 0.0,
            trims: 0.0,
            writers: 1,
            queue_depth: 128,
            span: 1.0,
            trim_rest: false,
            handles: 1,
        }
    }
}

/// A file of jobs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// The jobs in execution order, each on a fresh drive.
    #[serde(default, rename = "job")]
    pub jobs: Vec<Job>,
}

impl Jobs {
    /// Reads a file of jobs.
    pub fn read(path: &Path) -> Result<Jobs, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::file(path))?;
        let failed = |what: String| Error::Jobs { path: path.to_owned(), what };
        let jobs: Jobs = toml::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if jobs.jobs.is_empty() {
            return Err(failed("the file contains no [[job]]".to_owned()));
        }
        Ok(jobs)
    }
}

impl Job {
    /// Returns the job's name, or a description derived from its fields.
    pub fn title(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let block = &self.block;
        let mut title = match self.pattern {
            Pattern::Sequential => format!("{block} sequential"),
            Pattern::Random => format!("{block} random"),
            Pattern::Zipf(exponent) => format!("{block} Zipf {exponent}"),
        };
        if self.align() != self.block.shortest() {
            title += &format!(" on {}", crate::report::size(self.align()));
        }
        if self.shift > 0 {
            title += &format!(" + {}", crate::report::size(self.shift));
        }
        if self.reads > 0.0 {
            title += &format!(", {:.0} % reads", self.reads * 100.0);
        }
        if self.trims > 0.0 {
            title += &format!(", {:.0} % TRIM", self.trims * 100.0);
        }
        title
    }

    pub(super) fn align(&self) -> u64 {
        if self.align == 0 { self.block.shortest() } else { self.align }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.writers as usize * self.queue_depth as usize
    }

    /// Returns the bytes of the namespace that offsets without the shift may reach.
    pub(super) fn span_bytes(&self, shape: &Shape) -> u64 {
        (shape.namespace_bytes as f64 * self.span) as u64 - self.shift
    }

    /// Validates the job for a drive.
    pub fn check(&self, shape: &Shape) -> Result<(), Error> {
        let value = |what, given: String, allowed| Err(Error::Value { what, given, allowed });
        let lengths = self.block.lengths().map(|bytes| ("the block size", bytes));
        for (what, bytes) in
            lengths.chain([("the alignment", self.align()), ("the shift of offsets", self.shift)])
        {
            if !bytes.is_multiple_of(SECTOR_BYTES) || (bytes == 0 && what != "the shift of offsets") {
                return value(what, format!("{bytes} bytes"), "a whole number of sectors of 512 bytes");
            }
        }
        if self.writers == 0 || self.queue_depth == 0 {
            return value("the number of writers, or of requests in flight,", "0".into(), "1 or more");
        }
        if self.writers.saturating_mul(self.queue_depth) > IN_FLIGHT_MOST {
            let given = format!("{} × {}", self.writers, self.queue_depth);
            return value("the number of requests in flight", given, "at most 65536");
        }
        let shares = [self.reads, self.trims, 1.0 - self.reads - self.trims];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            let given = format!("{} and {}", self.reads, self.trims);
            return value("the share of reads and of TRIMs", given, "from 0 to 1, and at most 1 together");
        }
        if !(1..=128).contains(&self.handles) {
            return value("the number of placement handles", self.handles.to_string(), "from 1 to 128");
        }
        if !(self.span > 0.0 && self.span <= 1.0) {
            return value("the span", self.span.to_string(), "more than 0 and at most 1");
        }
        let span = (shape.namespace_bytes as f64 * self.span) as u64;
        let stream = span.saturating_sub(self.shift) / u64::from(self.writers);
        if self.shift >= span || stream < self.block.longest().saturating_add(self.align()) {
            let given = format!("{} for each of {} writers", crate::report::size(stream), self.writers);
            return value("the room in the span", given, "an alignment more than a block: make it wider");
        }
        Ok(())
    }
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given {
        Bytes(u64),
        Text(String),
    }
    match Given::deserialize(from)? {
        Given::Bytes(bytes) => Ok(bytes),
        Given::Text(text) => esker_command::parse(&text).map_err(serde::de::Error::custom),
    }
}

fn pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Pattern, D::Error> {
    Pattern::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Jobs, Error> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.toml");
        std::fs::write(&path, text).expect("it is written");
        Jobs::read(&path)
    }

    #[test]
    fn job_file_is_read_and_faults_are_named() {
        let text = "[[job]]\nblock = \"64k\"\npattern = \"zipf:1.2\"\nreads = 0.7\n[[job]]\nblock = 8192\nalign = \"4k\"";
        let jobs = read(text).expect("it is good").jobs;
        assert_eq!(
            (&jobs[0].block, jobs[0].pattern, jobs[0].reads),
            (&65_536.into(), Pattern::Zipf(1.2), 0.7)
        );
        assert_eq!(jobs[0].title(), "64 KiB Zipf 1.2, 70 % reads");
        assert_eq!(jobs[1].title(), "8 KiB random on 4 KiB");
        let mixed = read("[[job]]\nblock = \"4k/25:64k/75\"").expect("it is good").jobs;
        assert_eq!(mixed[0].title(), "4 KiB/25 % + 64 KiB/75 % random");
        assert_eq!((mixed[0].align(), mixed[0].block.longest()), (4096, 65_536));
        for (text, said) in [
            ("", "no [[job]]"),
            ("[[job]]\nblock = \"4k/25:64k/70\"", "add up to 95"),
            ("[[job]]\nblock = \"4q\"", "'4q' is not a size"),
            ("[[job]]\npattern = \"up\"", "zipf:1.2"),
            ("[[job]]\nblok = 1", "unknown field `blok`"),
        ] {
            let error = read(text).expect_err("it is refused").to_string();
            assert!(error.contains("jobs.toml") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn impossible_jobs_are_refused() {
        let shape = Shape::over_provisioned(64 << 10, 1 << 30, 0.2);
        let good = Job { writers: 4, ..Job::default() };
        good.check(&shape).expect("it is good");
        for (job, said) in [
            (Job { block: 100.into(), ..good.clone() }, "sectors of 512"),
            (Job { block: 0.into(), ..good.clone() }, "sectors of 512"),
            (Job { writers: 0, ..good.clone() }, "1 or more"),
            (Job { queue_depth: 1 << 20, ..good.clone() }, "at most 65536"),
            (Job { reads: 0.6, trims: 0.6, ..good.clone() }, "at most 1 together"),
            (Job { reads: f64::NAN, ..good.clone() }, "from 0 to 1"),
            (Job { span: 0.0, ..good.clone() }, "more than 0"),
            (Job { block: (512 << 20).into(), ..good.clone() }, "make it wider"),
            (Job { block: (u64::MAX / 512 * 512).into(), ..good.clone() }, "make it wider"),
            (Job { shift: 1 << 30, ..good.clone() }, "make it wider"),
            (Job { handles: 0, ..good.clone() }, "from 1 to 128"),
        ] {
            let error = job.check(&shape).expect_err("it is refused").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
