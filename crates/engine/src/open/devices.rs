//! The devices of a store: chooses and opens a device per tier. Nothing is created if the opening is refused.
//!
//! 1. Options that are invalid by themselves are refused.
//! 2. Missing paths are checked as for a new store.
//! 3. Existing files and devices are opened and locked. A new tier is refused beside a tier of another store or of
//!    other software.
//! 4. Missing files are created.

use std::path::Path;
use std::sync::Arc;

use esker_device::{Backend, Device, DeviceKind, Direct, FailStop, OpenOptions, Runtime, UNIT_BYTES_MAX};
use esker_log::{Superblock, Tier as TierName};

use crate::base::error::{Error, Result};
use crate::base::max_garbage::MaxGarbage;
use crate::base::option_name::OptionName;
use crate::open::format::{
    StorePlan, TierPlan, check_sizes, refuse_foreign, refuse_signature, refused_beside_store, was_opened,
};
use crate::open::memory_plan::coalesces;
use crate::open::options::{DATA_FILE, Layout, Options, Target};
use crate::open::several::{self, Found, Joined, Terms, is_missing};
use crate::open::sizing::{NewStore, NewTier, SEGMENT_BYTES_MAX, UNITS_OF_SEGMENT};

pub(crate) const DEFAULT_FILE_LIMIT_BYTES: u64 = 256 << 30;
const DEFAULT_FAST_FILE_LIMIT_BYTES: u64 = 1 << 30;
/// Write unit of a capacity tier whose device reports none, in bytes: the coarsest unit of drives on the market.
pub const DEFAULT_UNIT_BYTES: u64 = 64 << 10;
/// Write unit if no coarser one is requested, in bytes: the page, which every device writes as a whole.
const PAGE_BYTES: u64 = 4096;
/// The requested configuration of one tier.
struct Choice {
    tier: TierName,
    place: Target,
    /// Further devices of the tier.
    more: Vec<Target>,
    limit_bytes: Option<u64>,
    unit_bytes: Option<u64>,
}

impl Choice {
    fn of(options: &Options) -> Vec<Choice> {
        let (fast_limit, limit) = (options.fast_limit_bytes, options.capacity_limit_bytes);
        let unit = options.indirection_unit_bytes;
        let choice = |tier, place: &Target, limit_bytes, unit_bytes| Choice {
            tier,
            place: place.clone(),
            more: match tier {
                TierName::Fast => options.more_fast.clone(),
                TierName::Capacity => options.more_capacity.clone(),
            },
            limit_bytes,
            unit_bytes,
        };
        match &options.layout {
            Layout::Directory(dir) => {
                let place = Target::Path(dir.join(DATA_FILE));
                vec![choice(TierName::Capacity, &place, limit, Some(unit.unwrap_or(PAGE_BYTES)))]
            }
            Layout::CapacityOnly(place) => vec![choice(TierName::Capacity, place, limit, unit)],
            Layout::FastOnly(place) => vec![choice(TierName::Fast, place, fast_limit, unit)],
            Layout::FastAndCapacity(fast, capacity) => vec![
                choice(TierName::Fast, fast, fast_limit, None),
                choice(TierName::Capacity, capacity, limit, unit),
            ],
        }
    }

    /// Returns the first path if nothing exists there, nor at any other path of the tier.
    fn missing(&self) -> Option<&Path> {
        match &self.place {
            Target::Path(path) if is_missing(path) && self.more.iter().all(Target::is_missing) => Some(path),
            _ => None,
        }
    }

    /// Returns the maximum length of a file, in bytes.
    fn file_limit_bytes(&self) -> u64 {
        let default = || match self.tier {
            TierName::Fast => DEFAULT_FAST_FILE_LIMIT_BYTES,
            TierName::Capacity => DEFAULT_FILE_LIMIT_BYTES,
        };
        // Without a requested limit, the size of the file system bounds the default.
        let on_file_system = match &self.place {
            Target::Path(path) => esker_device::file_system(path).map(|it| it.total_bytes),
            Target::Device(_) => None,
        };
        self.limit_bytes.unwrap_or_else(|| default().min(on_file_system.unwrap_or(u64::MAX)))
    }

    /// Returns the maximum size and the size possible now, in bytes; `None` if the device must be opened to find out.
    fn sizes(&self) -> Option<(u64, u64)> {
        let limited = |bytes: u64| self.limit_bytes.map_or(bytes, |limit| limit.min(bytes));
        if !self.more.is_empty() {
            let bytes: Option<u64> = std::iter::once(&self.place).chain(&self.more).map(Target::bytes).sum();
            return bytes.map(limited).or(self.limit_bytes).map(|bytes| (bytes, bytes));
        }
        let path = match &self.place {
            Target::Device(device) if device.geometry().kind == DeviceKind::File => {
                return Some((self.file_limit_bytes(), self.file_limit_bytes()));
            }
            Target::Device(device) => {
                let bytes = limited(device.geometry().bytes);
                return Some((bytes, bytes));
            }
            Target::Path(path) => path,
        };
        let is_file = std::fs::metadata(path).map_or(true, |m| m.is_file());
        if is_file {
            let limit = self.file_limit_bytes();
            let room = esker_device::file_system(path).map_or(limit, |it| it.available_bytes);
            return Some((limit, limit.min(room)));
        }
        let bytes = self.place.bytes()?;
        Some((limited(bytes), limited(bytes)))
    }

    /// Refuses a file with foreign content that is shorter than a block.
    fn refuse_short_file(&self, options: &Options) -> Result<()> {
        let Target::Path(path) = &self.place else { return Ok(()) };
        let is_short = |m: std::fs::Metadata| m.is_file() && m.len() < SHORT_FILE_BYTES;
        if options.force_format || !std::fs::metadata(path).is_ok_and(is_short) {
            return Ok(());
        }
        let bytes = std::fs::read(path)
            .map_err(|e| Error::invalid(format!("{} cannot be opened: {e}", path.display())))?;
        refuse_signature(&path.display(), &bytes)
    }

    fn unit_bytes(&self, reported: Option<u32>) -> u64 {
        let reported = reported.filter(|_| self.tier == TierName::Capacity).map(u64::from);
        let default = if self.tier == TierName::Capacity { DEFAULT_UNIT_BYTES } else { PAGE_BYTES };
        self.unit_bytes.or(reported).unwrap_or(default)
    }

    /// Opens the devices of the tier. `create`: files that do not exist are created.
    async fn open(&self, options: &Options, create: bool, runtime: &Arc<dyn Runtime>) -> Result<TierPlan> {
        self.refuse_short_file(options)?;
        let terms =
            Terms { tier: self.tier, accept_loss: options.accept_loss, force: options.force_format, runtime };
        let devices = self.open_all(options, create).await?;
        let only = devices[0].clone();
        match several::join(devices, &terms).await? {
            Found::Several(joined) => Ok(self.plan_of(joined)),
            Found::One(superblock) => Ok(self.plan(Arc::new(FailStop::over(only)), superblock)),
        }
    }

    /// Opens every device of the tier. Files that do not exist are created last, so that nothing is created if another device
    /// cannot be opened.
    async fn open_all(&self, options: &Options, create: bool) -> Result<Vec<Arc<dyn Device>>> {
        if self.more.is_empty() {
            return Ok(vec![open_place(options, &self.place, create)?]);
        }
        let places: Vec<&Target> = std::iter::once(&self.place).chain(&self.more).collect();
        let mut devices: Vec<Option<Arc<dyn Device>>> = Vec::new();
        for place in &places {
            let opened = (!place.is_missing()).then(|| open_place(options, place, false)).transpose()?;
            devices.push(opened);
        }
        let of_others = devices.iter().flatten().map(|device| device.geometry().bytes).max();
        let share = self.limit_bytes.map(|limit| limit / places.len() as u64);
        let length = share.or(of_others.filter(|&bytes| bytes > 0));
        let mut opened = Vec::new();
        for (place, device) in places.into_iter().zip(devices) {
            let device = match device {
                Some(device) => device,
                None => open_place(options, place, options.create)?,
            };
            several::give_length(&device, length).await?;
            opened.push(device);
        }
        Ok(opened)
    }

    /// Returns the plan of a tier of several devices.
    fn plan_of(&self, joined: Joined) -> TierPlan {
        let devices = joined.striped.devices();
        let bytes: u64 = devices.iter().map(|(_, device)| device.geometry().bytes).sum();
        let limit_bytes = self.limit_bytes.map_or(bytes, |limit| limit.min(bytes));
        let units = devices.iter().filter_map(|(_, device)| device.geometry().indirection_unit_bytes);
        TierPlan {
            tier: self.tier,
            device: joined.striped.clone(),
            limit_bytes,
            asked_bytes: self.limit_bytes,
            unit_bytes: self.unit_bytes(units.max()),
            accounting: Arc::default(),
            superblock: joined.superblock.clone(),
            joined: Some(joined),
        }
    }

    /// Returns the plan of a tier of one device, wrapped in a [`FailStop`]: it ensures that no write that depends on a failed
    /// write or flush is taken for durable.
    fn plan(&self, device: Arc<dyn Device>, superblock: Option<Superblock>) -> TierPlan {
        let geometry = device.geometry();
        let limit_bytes = match geometry.kind {
            DeviceKind::File => self.file_limit_bytes(),
            _ => self.limit_bytes.map_or(geometry.bytes, |limit| limit.min(geometry.bytes)),
        };
        let unit_bytes = self.unit_bytes(geometry.indirection_unit_bytes);
        let asked_bytes = self.limit_bytes;
        TierPlan {
            tier: self.tier,
            device,
            limit_bytes,
            asked_bytes,
            unit_bytes,
            accounting: Arc::default(),
            superblock,
            joined: None,
        }
    }
}

/// A file shorter than this may be shorter than a block, and then looks like an empty device. In bytes.
const SHORT_FILE_BYTES: u64 = 4096;

/// Returns the sizes of a new store on these tiers.
fn new_store(options: &Options, choices: &[Choice]) -> NewStore {
    let tiers = choices.iter().map(|choice| NewTier {
        sizes: choice.sizes(),
        unit_bytes: choice.unit_bytes(None),
        in_front: choices.len() > 1 && choice.tier == TierName::Fast,
    });
    NewStore {
        memory_bytes: options.memory_bytes,
        coalesces: coalesces(options, choices.len() as u64),
        tiers: tiers.collect(),
    }
}

/// Opens the devices of a store. Also returns the parameters for creating a store on them.
pub(crate) async fn open_devices(
    options: &Options,
    runtime: &Arc<dyn Runtime>,
) -> Result<(Vec<TierPlan>, StorePlan)> {
    // 1.
    validate(options)?;
    crate::open::staging_file::check(options)?;
    let choices = Choice::of(options);
    let new_store = new_store(options, &choices);
    let segment_bytes = options.segment_bytes.unwrap_or_else(|| new_store.default_segment_bytes());
    let memory = new_store.needs(segment_bytes).check(options.memory_bytes);
    let mut plan = StorePlan { segment_bytes, memory, force: options.force_format, create: options.create };
    // 2.
    if let Layout::Directory(dir) = &options.layout {
        check_directory(dir, options.create)?;
    }
    let missing: Vec<&Choice> = choices.iter().filter(|c| c.missing().is_some()).collect();
    for choice in missing.iter().filter(|_| options.create) {
        let path = choice.missing().unwrap_or(Path::new(""));
        check_sizes(&path.display(), choice.file_limit_bytes(), choice.unit_bytes(None), segment_bytes)?;
        plan.memory.clone()?;
        if !matches!(options.layout, Layout::Directory(_)) {
            check_parent(path)?;
        }
    }
    // 3.
    let mut plans = Vec::new();
    for choice in choices.iter().filter(|c| c.missing().is_none()) {
        plans.push(choice.open(options, false, runtime).await?);
    }
    if let Some(path) = missing.first().and_then(|c| c.missing())
        && let Some(there) = plans.first()
    {
        // If a crash interrupted the creation of a store, its tier may be formatted again.
        let is_refused = |superblock: &Superblock| was_opened(superblock) || !options.force_format;
        if there.superblock.as_ref().is_some_and(is_refused)
            && let Some(new) = missing.first()
        {
            let what = refused_beside_store(&path.display(), new.tier, &there.device.path(), there.tier);
            return Err(Error::invalid(what));
        }
        refuse_foreign(there, options.force_format).await?;
    }
    // 4.
    if let Layout::Directory(dir) = &options.layout
        && !missing.is_empty()
    {
        make_directory(dir)?;
    }
    for choice in missing {
        plans.push(choice.open(options, options.create, runtime).await?);
    }
    plans.sort_by_key(|plan| plan.tier);
    if options.segment_bytes.is_none() {
        // A device may have reported a coarser unit.
        let units = plans.iter().map(|plan| UNITS_OF_SEGMENT * plan.unit_bytes).max().unwrap_or(0);
        plan.segment_bytes = plan.segment_bytes.max(units);
        plan.memory = new_store.needs(plan.segment_bytes).check(options.memory_bytes);
    }
    Ok((plans, plan))
}

fn validate(options: &Options) -> Result<()> {
    let power = |option: OptionName, value: Option<u64>, least: u64, most: u64| match value {
        Some(v) if !v.is_power_of_two() || v < least || v > most => {
            let what = format!("is {v}; it has to be a power of two from {least} to {most}");
            Err(Error::option(option, what))
        }
        _ => Ok(()),
    };
    options.compression.check()?;
    power(OptionName::IndirectionUnit, options.indirection_unit_bytes, PAGE_BYTES, UNIT_BYTES_MAX)?;
    power(OptionName::Segment, options.segment_bytes, 64 << 10, SEGMENT_BYTES_MAX)?;
    if !(5..=50).contains(&options.reserve_percent) {
        let what = format!("is {}; it has to be 5 to 50", options.reserve_percent);
        return Err(Error::option(OptionName::Reserve, what));
    }
    if !options.max_garbage.is_valid() {
        let what = format!("is {}; it has to be {}", options.max_garbage, MaxGarbage::WORDS);
        return Err(Error::option(OptionName::MaxGarbage, what));
    }
    let one_tier = !matches!(options.layout, Layout::FastAndCapacity(..));
    if one_tier && options.shaping_threshold_bytes.is_some() {
        return Err(Error::option(
            OptionName::ShapingThreshold,
            "is set, but the store has one tier; give a fast and a capacity tier",
        ));
    }
    if options.fast_limit_bytes.is_some()
        && !matches!(options.layout, Layout::FastAndCapacity(..) | Layout::FastOnly(_))
    {
        return Err(Error::option(
            OptionName::FastLimit,
            "is set, but the store has no fast tier; limit its capacity tier",
        ));
    }
    if options.capacity_limit_bytes.is_some() && matches!(options.layout, Layout::FastOnly(_)) {
        return Err(Error::option(
            OptionName::CapacityLimit,
            "is set, but the store has no capacity tier; limit its fast tier",
        ));
    }
    match &options.staging {
        // The file is in the store's own directory, which may still have to be created.
        Some(path) if matches!(&options.layout, Layout::Directory(d) if path.parent() == Some(d)) => Ok(()),
        Some(path) => check_parent(path).map_err(|error| Error::invalid(format!("staging file {error}"))),
        None => Ok(()),
    }
}

/// Checks that a file can be created at a path.
fn check_parent(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let cannot = |why: String| Error::invalid(format!("{} cannot be opened: {why}", path.display()));
    match std::fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(cannot("Not a directory".into())),
        Err(error) => Err(cannot(error.to_string())),
    }
}

fn check_directory(dir: &Path, create: bool) -> Result<()> {
    match std::fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(Error::invalid(format!("{} is not a directory", dir.display()))),
        Err(_) if !create => Err(Error::invalid(format!("{} holds no store", dir.display()))),
        Err(_) => Ok(()),
    }
}

fn make_directory(dir: &Path) -> Result<()> {
    esker_device::make_directory(dir)
        .map_err(|e| Error::invalid(format!("directory {} cannot be made: {e}", dir.display())))
}

fn open_place(options: &Options, place: &Target, create: bool) -> Result<Arc<dyn Device>> {
    match place {
        Target::Device(device) => Ok(device.clone()),
        Target::Path(path) => open_path(Access::of(options), path, create),
    }
}

/// The way in which the devices of a store are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    backend: Backend,
    direct: Direct,
}

impl Access {
    pub(crate) fn of(options: &Options) -> Access {
        let direct = if options.direct { Direct::Auto } else { Direct::Never };
        Access { backend: options.backend, direct }
    }
}

/// Opens a device or file.
pub(crate) fn open_path(access: Access, path: &Path, create: bool) -> Result<Arc<dyn Device>> {
    let mut how = OpenOptions::new(path).create(create);
    (how.backend, how.direct) = (access.backend, access.direct);
    let (device, warnings) = esker_device::open(how)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(device)
}
