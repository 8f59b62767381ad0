//! Damage is never silent: the bytes of a store's tiers and staging file are changed in every way in
//! which one fault of the medium can change them, and the store is opened, read, compacted and opened
//! again.
//!
//! **The rule.** A single damage is: a flipped bit; 512 bytes or 4 KiB that are zeros, garbage, a copy of
//! other 4 KiB, or swapped with them; or a device or file that ends early. After it, either the opening
//! is refused, or every key ever written has the value that it had when the store ended, or reading it
//! returns `Corrupt`. There is no older value, no missing key, no key that is back, no partial batch, no
//! panic and no endless wait. The same holds after a compaction, and after the next opening.
//!
//! **Losses that are allowed in a killed store.** An unproven last frame cannot be told from one that the
//! kill cut short. So if the damage hits
//! * *the last frame of a user's append point* (the newest unsealed segment of each stream of a lane),
//!   the keys with records in it may be found in their state before it, which is also the result of an
//!   opening that reads zeros in its place. A preceding frame counts as part of it as long as no later
//!   frame says that it was durable: the frame of a write whose durability was not awaited, or the frame
//!   before the last if both were in flight together;
//! * *staged memory before a record that exists nowhere else*, the key of that record may be found in its
//!   state before it.
//!
//! No other loss is allowed. A last frame that is also in staged memory is not lost with the one on the
//! device. The last frame of *copies* is no exception: as long as the segment of the originals is not
//! free, the records are in it, and once it is free, the copies were durable, which its marker proves. A
//! closed store may lose nothing. Damage to padding, to the identities of segments, to the old content of
//! freed slots, or to slots that were never used may go unnoticed. A lone tier without even its first
//! sector is an empty device, and is formatted.
//!
//! **The expected state of every key** is read from the same store without damage, and must agree with
//! the acknowledged writes. Times to live have either run out by then or are longer than the test.
//!
//! `ESKER_DAMAGES=200000` sets the number of damages; `ESKER_DAMAGE=12:345` replays one, and
//! `ESKER_DAMAGE=12` all of one image.

mod anatomy;
mod files;
mod image;
mod judge;
mod life;
mod plant;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use esker_simulated::Random;
use parking_lot::Mutex;

use crate::damage::anatomy::{Part, What};
use crate::damage::files::cut_files;
use crate::damage::image::Image;
use crate::damage::judge::{Fault, Outcome, control, judge};
use crate::damage::life::{Ending, LIVES};
use crate::damage::plant::{Damage, Kind};

/// Number of damages, and of stores.
const DAMAGES: u64 = 2400;
const IMAGES: u64 = 2 * LIVES.len() as u64;
/// Number of damages per image if many are planted.
const DAMAGES_OF_IMAGE: u64 = 250;
/// Number of offsets at which the files of a store are cut off.
const CUTS: u64 = 12;
/// Limit of lines in the table.
const SHOWN: usize = 60;

thread_local! {
    /// True if panics of this thread are results of the test.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A silent damage, or a worse fault.
struct Failure {
    image: u64,
    number: u64,
    store: String,
    damage: Option<(Damage, String)>,
    fault: Fault,
}

impl Failure {
    /// Returns the properties by which failures are grouped.
    fn kind(&self) -> (String, String) {
        let hit = self.damage.as_ref().map_or("no damage".into(), |(damage, home)| {
            let cut = if damage.kind == Kind::Cut { "cut in" } else { "in" };
            format!("{cut} {:?}, {home}", damage.part)
        });
        (self.fault.what.clone(), hit)
    }
}

/// The results of all damages.
#[derive(Default)]
struct Tally {
    outcomes: BTreeMap<Outcome, u64>,
    kinds: BTreeMap<Kind, u64>,
    hit: BTreeSet<(Part, What)>,
    failures: Vec<Failure>,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Returns the damage with this number in an image.
fn drawn(image: &Image, number: u64) -> Damage {
    let mut random = Random::new(image.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number << 20 ^ 0xDA_3A6E);
    Damage::draw(&mut random, &image.anatomy.pieces, |part| image.bytes(part))
}

/// Makes an image and plants the damages with these numbers in it, one at a time.
fn plant(image: u64, numbers: std::ops::Range<u64>, tally: &Mutex<Tally>) {
    let image = Image::make(image);
    let fail = |number, damage, fault| {
        let failure = Failure { image: image.number, number, store: image.name(), damage, fault };
        tally.lock().failures.push(failure);
    };
    if let Err(fault) = control(&image) {
        return fail(0, None, fault);
    }
    for number in numbers {
        let damage = drawn(&image, number);
        if std::env::var("ESKER_DAMAGE").is_ok_and(|one| one.contains(':')) {
            println!("{}", image.describe(&damage));
        }
        QUIET.set(true);
        let judged = judge(&image, &damage);
        QUIET.set(false);
        {
            let tally = &mut *tally.lock();
            *tally.kinds.entry(damage.kind).or_default() += 1;
            tally.hit.insert((damage.part, damage.what));
            if let Ok(outcome) = judged {
                *tally.outcomes.entry(outcome).or_default() += 1;
            }
        }
        if let Err(fault) = judged {
            let home = image.home(&damage);
            fail(number, Some((damage, home)), fault);
        }
    }
}

/// Reports panics of the store under test in the table instead of on the screen.
fn hush() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !QUIET.get() {
            hook(info);
        }
    }));
}

/// Plants damages in images, on as many threads as there are cores. `jobs`: images with the numbers of
/// damages.
fn plant_all(jobs: &[(u64, std::ops::Range<u64>)]) -> Tally {
    let (tally, next) = (Mutex::new(Tally::default()), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 16));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((image, numbers)) = jobs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    plant(*image, numbers.clone(), &tally);
                }
            });
        }
    });
    tally.into_inner()
}

/// Prints silent damages: equal ones in one line, with the command to replay the first of them.
fn report(tally: &Tally) {
    println!("outcomes: {:?}; planted: {:?}", tally.outcomes, tally.kinds);
    let mut groups: BTreeMap<(String, String), Vec<&Failure>> = BTreeMap::new();
    for failure in &tally.failures {
        groups.entry(failure.kind()).or_default().push(failure);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, failures)| std::cmp::Reverse(failures.len()));
    for ((fault, hit), failures) in groups.iter().take(SHOWN) {
        let first = failures.iter().min_by_key(|f| (f.image, f.number)).expect("a group has one");
        let stores: BTreeSet<&str> = failures.iter().map(|f| f.store.as_str()).collect();
        println!("{:5} x {fault} | {hit} | {stores:?}", failures.len());
        let planted = first.damage.as_ref().map_or(String::new(), |(damage, _)| damage.to_string());
        println!("        {planted}: {}", first.fault.detail);
        println!(
            "        ESKER_DAMAGE={}:{} cargo test --test store damage::no_damage_is_silent -- --exact --nocapture",
            first.image, first.number
        );
    }
    if groups.len() > SHOWN {
        println!("and {} kinds more", groups.len() - SHOWN);
    }
}

#[test]
fn no_damage_is_silent() {
    hush();
    let replayed = std::env::var("ESKER_DAMAGE").ok();
    let damages = number("ESKER_DAMAGES").unwrap_or(DAMAGES);
    let images = IMAGES.max(damages / DAMAGES_OF_IMAGE);
    let each = damages.div_ceil(images);
    let jobs = match &replayed {
        None => (0..images).map(|image| (image, 0..each)).collect(),
        Some(one) => {
            let (image, number) = one.split_once(':').unwrap_or((one, ""));
            let image = image.parse().expect("the number of an image");
            let number: Option<u64> = number.parse().ok();
            vec![(image, number.map_or(0..each, |number| number..number + 1))]
        }
    };
    let tally = plant_all(&jobs);
    report(&tally);
    let (planted, failed) = (tally.kinds.values().sum::<u64>(), tally.failures.len());
    assert_eq!(failed, 0, "{failed} of {planted} damages were not told");
    if replayed.is_none() {
        assert!(planted >= damages, "{planted} were planted");
        // The test proves little if most damages hit nothing.
        let noticed: u64 = [Outcome::Refused, Outcome::Told].iter().map(|o| tally.outcomes[o]).sum();
        assert!(noticed * 4 > planted, "{:?}", tally.outcomes);
        check_reach(&tally.hit);
    }
}

/// Uses real files, which can end at any byte.
#[test]
fn a_file_that_ends_too_early_is_told() {
    let closed = |number: &u64| {
        let (_, staging, ending) = LIVES[(number % LIVES.len() as u64) as usize];
        ending == Ending::Closed && !staging
    };
    let images = (0..LIVES.len() as u64).filter(closed).map(Image::make);
    let silent: Vec<String> = images.flat_map(|image| cut_files(&image, CUTS)).collect();
    silent.iter().for_each(|line| println!("{line}"));
    assert!(silent.is_empty(), "{} of {} were silent", silent.len(), 3 * CUTS);
}

/// Checks that every structure was hit at every possible place.
fn check_reach(hit: &BTreeSet<(Part, What)>) {
    use What::{
        Footer, FrameHeader, FreeMarker, Identity, Key, LastCopies, LastFrame, Padding, RecordHeader,
        StagedRecord, StagingHeader, Stale, Summary, Superblock, Tombstone, Value,
    };
    let everywhere = [
        Superblock,
        FrameHeader,
        Identity,
        RecordHeader,
        Key,
        Value,
        Tombstone,
        Padding,
        Summary,
        Footer,
        FreeMarker,
        Stale,
        LastFrame,
        LastCopies,
    ];
    let on_tiers =
        [Part::Fast, Part::Capacity].into_iter().flat_map(|part| everywhere.map(|what| (part, what)));
    let staged = [StagingHeader, StagedRecord].map(|what| (Part::Staging, what));
    let missed: Vec<_> = on_tiers.chain(staged).filter(|what| !hit.contains(what)).collect();
    assert!(missed.is_empty(), "never hit: {missed:?}");
}
