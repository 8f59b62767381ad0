//! The image of an ended store: the bytes of its tiers and of its staging file, the expected state of
//! every key, and the losses allowed with the last frames.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use esker::Store;
use esker_device::{Buffer, Device, DeviceKind, MemoryDevice, MemoryOptions, Runtime, Source, WriteMode};
use esker_simulated::Random;

use crate::damage::anatomy::{Anatomy, Format, Part, Piece, Segment, What};
use crate::damage::life::{Ending, Known, LIVES, live};
use crate::damage::plant::{Change, Damage};
use crate::support::history::{Histories, Key, Stamp, stamp_in};
use crate::support::{Config, Tiers, World};

/// The keys that may be found in their state before the last frame if a range of bytes is damaged.
pub(crate) struct Exemption {
    pub(crate) part: Part,
    range: std::ops::Range<u64>,
    may_be: BTreeMap<Key, BTreeSet<Stamp>>,
}

/// A part with its bytes.
struct Stored {
    part: Part,
    bytes: Vec<u8>,
    /// The device of a tier, which is cheap to copy.
    device: Option<MemoryDevice>,
}

/// The image of an ended store.
pub(crate) struct Image {
    pub(crate) number: u64,
    pub(crate) config: Config,
    pub(crate) ending: Ending,
    sync_only: bool,
    stored: Vec<Stored>,
    /// Number of machine starts at the end.
    boots: u64,
    /// Advance of the wall clock at the opening in milliseconds: short times to live have run out by
    /// then.
    ahead_ms: i64,
    pub(crate) histories: Histories,
    /// The state of every key without damage.
    pub(crate) expected: BTreeMap<Key, Stamp>,
    exemptions: Vec<Exemption>,
    pub(crate) anatomy: Anatomy,
}

/// Limit of the steps of a trial, in which a damaged store is opened, compacted and opened again; many
/// times the steps that it needs.
const STEPS_MAX: u64 = 3_000_000;
const TWO_MINUTES_MS: i64 = 120_000;

impl Image {
    /// Runs the store with this number, and takes its bytes.
    pub(crate) fn make(number: u64) -> Image {
        let seed = number / LIVES.len() as u64 * 1_000_003 + number;
        let (tiers, staging, ending) = LIVES[(number % LIVES.len() as u64) as usize];
        let config = config(&mut Random::new(seed), tiers, staging);
        let mut world = World::new(seed, config.clone());
        let Known { histories, sync_only } = live(&mut world, seed, ending);
        let (ended_ms, boots) = (world.runtime.wall_clock_ms(), world.boots);
        let mut stored = Vec::new();
        for (part, device) in [(Part::Fast, &world.fast), (Part::Capacity, &world.capacity)] {
            stored.extend(device.as_ref().map(|device| {
                let bytes = device.snapshot();
                let device = Some(pristine(&config, part, &bytes));
                Stored { part, bytes, device }
            }));
        }
        let staged = world.staging_path().and_then(|path| std::fs::read(path).ok());
        stored.extend(staged.map(|bytes| Stored { part: Part::Staging, bytes, device: None }));
        world.end();
        let fresh = World::new(0, config.clone());
        let ahead_ms = ended_ms as i64 - fresh.runtime.wall_clock_ms() as i64 + TWO_MINUTES_MS;
        fresh.end();
        let mut image = Image {
            number,
            config,
            ending,
            sync_only,
            stored,
            boots,
            ahead_ms,
            histories,
            expected: BTreeMap::new(),
            exemptions: Vec::new(),
            anatomy: Anatomy::default(),
        };
        image.expected = image.found_in(image.world(&[])).expect("a store that is not damaged opens");
        image.check_expected();
        image.examine();
        image
    }

    /// Checks that the store kept its promises before any damage.
    fn check_expected(&self) {
        let now_ms = self.opened_at_ms();
        for (key, found) in &self.expected {
            let named = String::from_utf8_lossy(key);
            assert!(
                self.histories.allows(key, *found, now_ms),
                "image {}: {named} is {found:?}",
                self.number
            );
        }
    }

    fn opened_at_ms(&self) -> u64 {
        let world = self.world(&[]);
        let now_ms = world.runtime.wall_clock_ms();
        world.end();
        now_ms
    }

    /// Finds the structures, and the losses allowed with the last frames.
    fn examine(&mut self) {
        let mut anatomy = Anatomy::default();
        for stored in self.stored.iter().filter(|s| s.device.is_some()) {
            anatomy.dissect(stored.part, &stored.bytes);
        }
        // The lane fills segments of the fast tier, if there is one.
        let format = Format::of(&self.stored[0].bytes);
        if let Some(staging) = self.stored.iter().find(|s| s.part == Part::Staging) {
            anatomy.dissect_staging(&format, &staging.bytes);
        }
        let staged: BTreeSet<u64> = anatomy.staged.iter().map(|(_, segment, _)| *segment).collect();
        let two_tiers = self.config.tiers == Tiers::Both;
        let mut exemptions = Vec::new();
        let mut pieces = Vec::new();
        for segment in newest_unsealed(&anatomy, two_tiers) {
            let users = anatomy.is_users(segment, two_tiers);
            let what = if users { What::LastFrame } else { What::LastCopies };
            // The kill may have torn the first frame: then the segment has none.
            let Some(last) = segment.frames.last() else { continue };
            let range = segment.start + u64::from(last.offset)..segment.start + u64::from(last.end);
            pieces.push(Piece { part: segment.part, what, range, segment: segment.segment });
            if users && !staged.contains(&segment.segment) && self.ending != Ending::Closed {
                exemptions.extend(self.without_last_frames(segment));
            }
        }
        exemptions.extend(self.without_staged(&anatomy));
        anatomy.pieces.extend(pieces);
        self.anatomy = anatomy;
        self.exemptions = exemptions;
    }

    /// Returns the losses allowed at an append point that is not staged: its last frame, or frames that
    /// no later frame proves durable.
    fn without_last_frames(&self, segment: &Segment) -> Vec<Exemption> {
        // The first frame states the durability of the previous segment.
        let durable = segment.frames.iter().skip(1).map(|frame| frame.durable_through).max().unwrap_or(0);
        let end = segment.frames.last().map_or(0, |frame| frame.end);
        let unproven: Vec<_> = segment.frames.iter().filter(|frame| frame.end > durable).collect();
        assert!(!self.sync_only || unproven.len() <= 2, "{unproven:?}: two are in flight at most");
        unproven
            .into_iter()
            .filter_map(|frame| {
                let range = segment.start + u64::from(frame.offset)..segment.start + u64::from(frame.end);
                let zeros = vec![0; (end - frame.offset) as usize];
                let change = Change { writes: vec![(range.start, zeros)], cut: None };
                // A refused opening loses nothing.
                let found = self.found_in(self.world(&[(segment.part, &change)])).ok()?;
                let lost = segment.frames.iter().filter(|f| f.offset >= frame.offset);
                let lost: BTreeSet<&Key> = lost.flat_map(|f| &f.records).map(|r| &r.key).collect();
                let may_be = lost.into_iter().map(|key| (key.clone(), BTreeSet::from([found[key]])));
                Some(Exemption { part: segment.part, range, may_be: may_be.collect() })
            })
            .collect()
    }

    /// Returns the losses allowed in the staging file: records that exist nowhere else. They are the last
    /// frame of their append point, which was not written yet. A record is lost with any damage before it
    /// in its piece of the file.
    fn without_staged(&self, anatomy: &Anatomy) -> Vec<Exemption> {
        let now_ms = self.opened_at_ms();
        let nowhere_else: Vec<_> = anatomy
            .staged
            .iter()
            .filter(|(_, segment, found)| !anatomy.on_device(*segment).contains(&found.offset))
            .collect();
        if nowhere_else.is_empty() {
            return Vec::new();
        }
        // At the same start of the machine, a missing file is reported as a loss.
        let gone = Change { writes: Vec::new(), cut: Some(0) };
        let refused = self
            .found_in(self.world(&[(Part::Staging, &gone)]))
            .expect_err("acknowledged writes are missing");
        assert_eq!(refused.kind(), esker::ErrorKind::Corrupt, "{refused}");
        let mut restarted = self.world(&[]);
        restarted.start_machine();
        let without = self.found_in(restarted).expect("a store opens without the memory of an earlier start");
        let mut may_be: BTreeMap<&Key, BTreeSet<Stamp>> = BTreeMap::new();
        for (_, _, found) in &nowhere_else {
            let stamp = found.stamp.filter(|_| found.expires_at_ms.is_none_or(|at| at > now_ms));
            may_be.entry(&found.key).or_insert_with(|| BTreeSet::from([without[&found.key]])).insert(stamp);
        }
        let exempt = nowhere_else.iter().map(|(start, _, found)| Exemption {
            part: Part::Staging,
            range: *start..start + 4096 + u64::from(found.end),
            may_be: BTreeMap::from([(found.key.clone(), may_be[&found.key].clone())]),
        });
        exempt.collect()
    }

    /// Returns the additional states in which keys may be found after a damage.
    pub(crate) fn may_be(&self, damage: &Damage) -> BTreeMap<&Key, BTreeSet<Stamp>> {
        let length = self.bytes(damage.part).len() as u64;
        let harmed = damage.harmed(length);
        let overlaps = |e: &&Exemption| {
            let meets = |r: &std::ops::Range<u64>| r.start < e.range.end && e.range.start < r.end;
            e.part == damage.part && harmed.iter().any(meets)
        };
        let mut may_be: BTreeMap<&Key, BTreeSet<Stamp>> = BTreeMap::new();
        for (key, stamps) in self.exemptions.iter().filter(overlaps).flat_map(|e| &e.may_be) {
            may_be.entry(key).or_default().extend(stamps);
        }
        may_be
    }

    /// Returns every key's state in a world, or the error of the opening.
    fn found_in(&self, world: World) -> esker::Result<BTreeMap<Key, Stamp>> {
        let found = world.runtime.run(async {
            let store = Store::open(world.options()).await?;
            let mut found = BTreeMap::new();
            for key in self.histories.keys.keys() {
                let value = store.get(key).await?;
                let stamp = value.map(|v| stamp_in(key, &v).expect("somebody wrote this value"));
                found.insert(key.clone(), stamp);
            }
            Ok(found)
        });
        world.end();
        found
    }

    pub(crate) fn bytes(&self, part: Part) -> &[u8] {
        &self.stored.iter().find(|stored| stored.part == part).expect("it has this part").bytes
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (Part, &[u8])> {
        self.stored.iter().map(|stored| (stored.part, stored.bytes.as_slice()))
    }

    /// Returns the structures that a damage changes, in words.
    pub(crate) fn home(&self, damage: &Damage) -> String {
        let two_tiers = self.config.tiers == Tiers::Both;
        let harmed = damage.harmed(damage.at + 1);
        let homes = harmed.iter().map(|range| self.anatomy.home(damage.part, range.start, two_tiers));
        let homes: BTreeSet<&str> = homes.collect();
        homes.into_iter().collect::<Vec<_>>().join(" and ")
    }

    /// Returns the segments that a damage hits and the allowed losses, for replaying it.
    pub(crate) fn describe(&self, damage: &Damage) -> String {
        use std::fmt::Write;
        let mut text = format!("{damage}\n{:?}\n", self.config);
        let harmed = damage.harmed(self.bytes(damage.part).len() as u64);
        let hit = |s: &&Segment| {
            let meets = |r: &std::ops::Range<u64>| r.start < s.start + s.bytes && s.start < r.end;
            s.part == damage.part && harmed.iter().any(meets)
        };
        for s in self.anatomy.segments.iter().filter(hit) {
            let Segment { segment, start, epoch, stream, sealed, .. } = s;
            let _ =
                writeln!(text, "segment {segment} at {start}, epoch {epoch}, {stream:?}, sealed: {sealed}");
            for frame in &s.frames {
                let range = (start + u64::from(frame.offset))..(start + u64::from(frame.end));
                let (durable, records) = (start + u64::from(frame.durable_through), frame.records.len());
                let _ = writeln!(text, "    frame {range:?}, durable through {durable}, {records} records");
            }
        }
        for (key, stamps) in self.may_be(damage) {
            let _ = writeln!(text, "  may be {stamps:?}: {}", String::from_utf8_lossy(key));
        }
        text
    }

    /// Makes a world with changed copies of the parts.
    pub(crate) fn world(&self, changes: &[(Part, &Change)]) -> World {
        let mut world = World::new(self.number, self.config.clone());
        world.boots = self.boots;
        world.runtime.set_steps_max(STEPS_MAX);
        world.runtime.jump_wall_clock(self.ahead_ms);
        for Stored { part, bytes, device } in &self.stored {
            let change = changes.iter().find(|(of, _)| of == part).map(|(_, change)| *change);
            let copy = device.as_ref().map(|device| changed(&world, device, change));
            match part {
                Part::Fast => world.fast = copy,
                Part::Capacity => world.capacity = copy,
                Part::Staging => {
                    let mut bytes = bytes.clone();
                    change.inspect(|change| change.apply(&mut bytes));
                    let path = world.staging_path().expect("a store with staged memory has a place for it");
                    std::fs::write(path, bytes).expect("the staging file can be written");
                }
            }
        }
        world
    }

    /// Returns its name in the table.
    pub(crate) fn name(&self) -> String {
        let staging = if self.config.staging { " + staging" } else { "" };
        format!("{:?}{staging}, {:?}", self.config.tiers, self.ending)
    }
}

/// Returns a small store with one or two tiers.
fn config(random: &mut Random, tiers: Tiers, staging: bool) -> Config {
    let unit_bytes = [4096, 4096, 8192, 16384][random.below(4) as usize];
    let segment_bytes = u64::max([64 << 10, 64 << 10, 128 << 10][random.below(3) as usize], 8 * unit_bytes);
    Config {
        unit_bytes,
        segment_bytes,
        fast_segments: if tiers == Tiers::Both { 2 } else { 12 },
        capacity_segments: 12 + random.below(8),
        hash_bits: [None, None, None, Some(8)][random.below(4) as usize],
        grows: random.one_in(2),
        // Freed slots mostly keep their old content.
        discard_after: [None, None, Some(Duration::from_millis(500))][random.below(3) as usize],
        staging,
        ..Config::new(tiers)
    }
}

/// Returns a device that holds these bytes and has no latency.
fn pristine(config: &Config, part: Part, bytes: &[u8]) -> MemoryDevice {
    let mut options = MemoryOptions::new(bytes.len() as u64);
    options.path = format!("{part:?}").to_lowercase();
    options.discarded = config.discarded;
    if config.grows {
        let segments = if part == Part::Fast { config.fast_segments } else { config.capacity_segments };
        options.geometry.kind = DeviceKind::File;
        options.bytes_max = config.tier_bytes(segments);
    }
    MemoryDevice::from_bytes(options, bytes)
}

fn changed(world: &World, device: &MemoryDevice, change: Option<&Change>) -> MemoryDevice {
    // Everything is durable, so a power failure loses nothing.
    let copy = device.crash(&mut || 0);
    let Some(change) = change else { return copy };
    for (at, bytes) in &change.writes {
        let source = Source::Owned(Buffer::copy_from(bytes));
        world.runtime.run(copy.write(*at, source, WriteMode::Durable)).expect("memory can be written");
    }
    if let Some(end) = change.cut {
        world.runtime.run(copy.resize(end)).expect("memory can be given back");
    }
    copy
}

/// Returns the unsealed segments that no other segment of the same stream and epoch follows.
fn newest_unsealed(anatomy: &Anatomy, two_tiers: bool) -> Vec<&Segment> {
    let newest = |segment: &&Segment| {
        let follows = |s: &Segment| {
            (s.part, s.stream, s.epoch) == (segment.part, segment.stream, segment.epoch)
                && s.segment > segment.segment
        };
        !segment.sealed && (!anatomy.is_users(segment, two_tiers) || !anatomy.segments.iter().any(follows))
    };
    anatomy.segments.iter().filter(newest).collect()
}
