//! Fills and overwrites a store, and measures the writes.

use std::cell::Cell as Shared;
use std::time::{Duration, Instant};

use esker_device::block_on;
use esker_engine::{Durability, ErrorKind};
use esker_log::TYPICAL_ENTRY_BYTES;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::Serialize;

use super::arguments::{Arguments, Cell};
use super::{closed_form, reference};
use crate::instruments::account::Account;
use crate::instruments::failure::{Failure, Result};
use crate::instruments::load::drive;
use crate::instruments::progress;
use crate::instruments::store_bed::{Bed, Tiers};
use crate::workload::{Popularity, Values, key};

const KEY_BYTES: usize = 16;
/// Time of refused puts after which collection counts as failed.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The results of a measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) distribution: String,
    pub(crate) reserve_percent: u8,
    /// Share of the user limit that is filled.
    pub(crate) fill_percent: u8,
    /// Bytes written to the output tier per byte of records moved there (with one tier: put there).
    pub(crate) wa_per_destaged_byte: f64,
    /// Bytes written to all devices per byte of key or value put.
    pub(crate) wa_per_user_byte: f64,
    /// Records appended per record put: the cost of collection, without headers, padding and summaries.
    pub(crate) wa_of_records: Option<f64>,
    /// `wa_per_user_byte` of each turn, to judge whether the state is steady.
    pub(crate) wa_by_turn: Vec<f64>,
    /// Closed form for a uniform load with the configured reserve.
    pub(crate) closed_form: f64,
    /// Closed form for a uniform load with the effective reserve.
    pub(crate) closed_form_effective: f64,
    /// Share of the space for records that holds no current record.
    pub(crate) effective_reserve: f64,
    pub(crate) goal: Option<f64>,
    pub(crate) reference: Vec<Reference>,
    pub(crate) keys: u64,
    pub(crate) verified_keys: u64,
    pub(crate) record_bytes: u64,
    pub(crate) segments: u64,
    pub(crate) records_per_segment: u64,
    pub(crate) second_half: Account,
    pub(crate) unnamed_bytes: i64,
    /// Puts that were refused because the store was full, and retried.
    pub(crate) refused: u64,
    pub(crate) seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Reference {
    pub(crate) rule: &'static str,
    pub(crate) wa: f64,
}

/// Sizes derived from the arguments.
struct Sizes {
    record_bytes: u64,
    records_per_segment: u64,
    segments: u64,
}

impl Sizes {
    fn of(arguments: &Arguments) -> Result<Sizes> {
        // A sequence number of the first epoch.
        let sequence = 1 << esker_log::SEQUENCE_EPOCH_SHIFT | arguments.records;
        let value_bytes = arguments.value_bytes as usize;
        let header = esker_log::record_header_bytes(KEY_BYTES, value_bytes, sequence, None);
        let record = (header + KEY_BYTES + value_bytes) as u64;
        let record_bytes = record.next_multiple_of(esker_log::MIN_GRANULE_BYTES);
        let fits = |records: u64| {
            let frames = (64 + records * record_bytes).next_multiple_of(arguments.iu);
            let summary = esker_log::summary_space_bytes(records as usize, arguments.iu as usize) as u64;
            frames + summary <= arguments.segment
        };
        let records_per_segment = (1..=arguments.segment / record_bytes).take_while(|n| fits(*n)).last();
        let records_per_segment = records_per_segment.ok_or_else(|| {
            Failure::usage(format!(
                "a record of {record_bytes} bytes does not fit in a segment of {} bytes",
                arguments.segment
            ))
        })?;
        let segments = arguments.records.div_ceil(records_per_segment).max(64);
        Ok(Sizes { record_bytes, records_per_segment, segments })
    }
}

/// Measures one cell of the matrix.
pub(crate) fn measure(arguments: &Arguments, cell: Cell) -> Result<Run> {
    let sizes = Sizes::of(arguments)?;
    let capacity_bytes = sizes.segments * arguments.segment;
    let fast_bytes = arguments.fast_percent.map(|percent| {
        (capacity_bytes * u64::from(percent) / 100)
            .next_multiple_of(arguments.segment)
            .max(16 * arguments.segment)
    });
    let tiers = Tiers { dir: arguments.dir.clone(), fast_bytes, capacity_bytes, unit_bytes: arguments.iu };
    block_on(async {
        let bed = Bed::make(&tiers, |options| {
            let options = options
                .segment_bytes(arguments.segment)
                .memory_bytes(arguments.memory)
                .reserve_percent(cell.reserve_percent)
                .durability(Durability::None)
                .coalesce_for(Duration::from_millis(arguments.coalesce_ms));
            // With a fast tier, all values take the same path, whatever their length.
            if fast_bytes.is_some() {
                options.shaping_threshold_bytes(arguments.value_bytes + 1)
            } else {
                options
            }
        })
        .await?;
        let run = Measurement::new(arguments, cell, &sizes, &bed).run().await;
        let closed = bed.store.close().await;
        let removed = tiers.remove_files();
        let run = run?;
        closed?;
        removed?;
        Ok(run)
    })
}

struct Measurement<'a> {
    arguments: &'a Arguments,
    cell: Cell,
    sizes: &'a Sizes,
    bed: &'a Bed,
    values: Values,
    /// Number of overwrites issued for each key.
    issued: Vec<u64>,
    /// The highest version of each key, and the number of the write that has it. Concurrent writes of one
    /// key complete in any order, and a delayed write may follow many that were issued later.
    newest: Vec<(u64, u64)>,
    refused: Shared<u64>,
}

impl<'a> Measurement<'a> {
    fn new(arguments: &'a Arguments, cell: Cell, sizes: &'a Sizes, bed: &'a Bed) -> Self {
        let values = Values::new(arguments.seed);
        Measurement {
            arguments,
            cell,
            sizes,
            bed,
            values,
            issued: Vec::new(),
            newest: Vec::new(),
            refused: Shared::new(0),
        }
    }

    async fn run(mut self) -> Result<Run> {
        let began = Instant::now();
        self.fill().await?;
        let capacity_records = self.sizes.segments * self.sizes.records_per_segment;
        let keys = self.issued.len() as u64;
        let mut popularity = Popularity::new(self.cell.shape, keys, self.arguments.seed.wrapping_add(0x5EED));
        let bar = progress::bar(
            &format!(
                "{}, {} %, {} % full",
                self.cell.shape, self.cell.reserve_percent, self.cell.fill_percent
            ),
            capacity_records * self.arguments.turns,
        );
        let mut accounts = vec![self.bed.account()];
        for _ in 0..self.arguments.turns {
            self.overwrite(capacity_records, &mut popularity).await?;
            accounts.push(self.bed.account());
            bar.inc(capacity_records);
        }
        bar.finish_and_clear();
        let verified_keys = self.verify().await?;
        Ok(self.report(&accounts, verified_keys, began.elapsed()))
    }

    /// Puts keys until the user limit is reached, minus the puts in flight.
    async fn fill(&mut self) -> Result<()> {
        let limit = self.bed.store.stats().user_limit_bytes;
        let record = self.sizes.record_bytes + TYPICAL_ENTRY_BYTES;
        let keys = (limit * u64::from(self.cell.fill_percent) / 100 / record)
            .saturating_sub(self.arguments.depth + self.sizes.records_per_segment / 8);
        let (mut next, values, bytes) = (0, &self.values, self.arguments.value_bytes as usize);
        let store = &self.bed.store;
        let put = || {
            let number = next;
            next += 1;
            (number < keys).then(|| store.put(key(number, KEY_BYTES), values.value(number, 0, bytes)))
        };
        drive(self.arguments.depth as usize, put, |done| done.map(|_| ()).map_err(Failure::from)).await?;
        (self.issued, self.newest) = (vec![0; keys as usize], vec![(0, 0); keys as usize]);
        Ok(store.flush().await?)
    }

    /// Overwrites `count` records.
    async fn overwrite(&mut self, count: u64, popularity: &mut Popularity) -> Result<()> {
        let (bed, refused) = (self.bed, &self.refused);
        let (issued, newest) = (&mut self.issued, &mut self.newest);
        let (values, bytes) = (&self.values, self.arguments.value_bytes as usize);
        let mut left = count;
        let put = || {
            left = left.checked_sub(1)?;
            let number = popularity.draw();
            issued[number as usize] += 1;
            let stamp = issued[number as usize];
            let (key, value) = (key(number, KEY_BYTES), values.value(number, stamp, bytes));
            Some(async move {
                let began = Instant::now();
                loop {
                    match bed.store.put(key.clone(), value.clone()).await {
                        Err(error) if error.kind() == ErrorKind::Full && began.elapsed() < REFUSED_FOR => {
                            refused.set(refused.get() + 1);
                            bed.runtime.sleep(Duration::from_millis(1)).await;
                        }
                        done => return done.map(|version| (number, version, stamp)),
                    }
                }
            })
        };
        let done = |done: esker_engine::Result<(u64, u64, u64)>| {
            let (number, version, stamp) = done?;
            let newest = &mut newest[number as usize];
            *newest = (version, stamp).max(*newest);
            Ok(())
        };
        drive(self.arguments.depth as usize, put, done).await?;
        Ok(bed.store.flush().await?)
    }

    /// Reads every key back, and checks that it has the value of the write with the highest version.
    async fn verify(&self) -> Result<u64> {
        let mut verified = 0;
        let numbers: Vec<u64> = (0..self.newest.len() as u64).collect();
        for chunk in numbers.chunks(1024) {
            let get = |number: u64| async move { (number, self.bed.store.get(key(number, KEY_BYTES)).await) };
            let mut gets: FuturesUnordered<_> = chunk.iter().map(|number| get(*number)).collect();
            while let Some((number, found)) = gets.next().await {
                let found = found?.ok_or_else(|| Failure::Failed(format!("key {number} is lost")))?;
                let stamp = self.values.stamp_of(number, &found);
                let (_, newest) = self.newest[number as usize];
                if stamp != Some(newest) {
                    return Err(Failure::Failed(format!(
                        "key {number} has the value of write {stamp:?}; the newest is {newest}"
                    )));
                }
                verified += 1;
            }
        }
        Ok(verified)
    }

    fn report(self, accounts: &[Account], verified_keys: u64, took: Duration) -> Run {
        let (cell, sizes) = (self.cell, self.sizes);
        let per_user_byte = |did: &Account| did.device_bytes() as f64 / did.user_bytes as f64;
        let turns: Vec<Account> = accounts.windows(2).map(|pair| pair[1].since(&pair[0])).collect();
        let middle = &accounts[accounts.len() / 2];
        let second_half = accounts[accounts.len() - 1].since(middle);
        let keys = self.issued.len() as u64;
        let effective_reserve = 1.0 - keys as f64 / (sizes.segments * sizes.records_per_segment) as f64;
        let one_tier = self.bed.fast.is_none();
        let ratio = |over: u64, under: u64| one_tier.then(|| over as f64 / under as f64);
        let records = second_half.user_records + second_half.relocated_records;
        Run {
            distribution: cell.shape.to_string(),
            reserve_percent: cell.reserve_percent,
            fill_percent: cell.fill_percent,
            wa_per_destaged_byte: second_half.capacity_device_bytes as f64
                / second_half.destaged_bytes.max(1) as f64,
            wa_per_user_byte: per_user_byte(&second_half),
            wa_of_records: ratio(records, second_half.user_records),
            wa_by_turn: turns.iter().map(per_user_byte).collect(),
            closed_form: closed_form::uniform(f64::from(cell.reserve_percent) / 100.0),
            closed_form_effective: closed_form::uniform(effective_reserve),
            effective_reserve,
            goal: reference::goal(cell.shape, cell.reserve_percent),
            reference: reference::at(cell.shape, cell.reserve_percent)
                .into_iter()
                .map(|(rule, wa, _)| Reference { rule, wa })
                .collect(),
            keys,
            verified_keys,
            record_bytes: sizes.record_bytes,
            segments: sizes.segments,
            records_per_segment: sizes.records_per_segment,
            unnamed_bytes: second_half.unnamed_bytes(),
            second_half,
            refused: self.refused.get(),
            seconds: took.as_secs_f64(),
        }
    }
}
