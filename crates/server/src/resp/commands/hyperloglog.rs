//! PFADD, PFCOUNT, PFMERGE: approximate counts of distinct elements.
//!
//! A HyperLogLog is a string with the same bytes as in Redis: `sketch` has its two forms, `sparse` changes the
//! shorter one, `hash` maps elements to registers, `estimate` computes the count.

use bytes::Bytes;

use self::estimate::{Histogram, estimate};
use self::sketch::{DENSE_BYTES, Maxima, REGISTERS, Sketch, Unusable, cached_count, is_dense};
use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Group, Keys, Pauses, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

mod estimate;
pub(crate) mod fuzzed;
mod hash;
mod sketch;
mod sparse;

const ON_SKETCHES: Verb =
    Verb { group: Group::Hyperloglog, keys: Keys::ALL, categories: &["hyperloglog"], ..Verb::DEFAULT };

/// Microseconds for merging one HyperLogLog of 16,384 registers with others.
const SKETCH_US: usize = 70;

const SKETCHED: Sizes = Sizes {
    after: |_, longest, _| longest.max(MADE_BYTES),
    made: |_, most| MADE_BYTES.min(most),
    ..Sizes::MADE
};

/// Values are scanned in one uninterruptible step, so the scanned bytes are bounded as well.
const MERGED: Sizes =
    Sizes { moved: |_, values| values.after.saturating_add((values.repeated)()), ..SKETCHED };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "pfadd", arity: -2, run: Run::Update(pfadd), keys: Keys::ONE, access: &[access::APPEND],
        needs: Needs::ReadWrite, flags: flags::WRITE, sizes: SKETCHED, since: "2.8.9",
        summary: "Adds elements to what is counted.", ..ON_SKETCHES },
    Verb { name: "pfcount", arity: -2, run: Run::Update(pfcount), access: &[&["RW", "access"]], needs: Needs::Read,
        flags: flags::LONG_READ, sizes: MERGED, work_us: |command| command.len() * SKETCH_US,
        pauses: Pauses::OfWrites,
        access_note: Some("RW because it may change the internal representation of the key, and propagate to replicas"),
        since: "2.8.9", summary: "Tells about how many different elements were added.", ..ON_SKETCHES },
    Verb { name: "pfmerge", arity: -2, run: Run::Update(pfmerge),
        access: &[&["RW", "access", "insert"], access::READ], needs: Needs::ReadWrite, flags: flags::LONG_WRITE,
        sizes: MERGED, work_us: |command| command.len() * SKETCH_US, since: "2.8.9",
        summary: "Joins what was counted by several keys.", ..ON_SKETCHES },
];

/// Upper bound of the bytes of a value that is made here, unless it was longer before, and of temporary data.
pub(in crate::resp) const MADE_BYTES: usize = DENSE_BYTES + REGISTERS;

/// `PFADD key [element ...]`: answers 1 if the count may have changed.
pub(super) fn pfadd(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match add(command, view) {
        Ok(changed) => replies.integer(changed.into()),
        Err(error) => replies.error(error),
    }
}

fn add(command: Command<'_>, view: &mut View) -> Result<bool, &'static str> {
    let key = command.argument(1);
    let (mut sketch, mut changed) = match view.get(key) {
        Some(held) => (Sketch::of(&held.value)?, false),
        None => (Sketch::new(), true),
    };
    for element in command.arguments(2) {
        let (register, count) = hash::place_of(element);
        changed |= sketch.raise(register, count)?;
    }
    if changed {
        sketch.forget_count();
        put(key, sketch, view)?;
        view.tell(KeyspaceEvents::STRING, "pfadd", key);
    }
    Ok(changed)
}

/// `PFCOUNT key [key ...]`: the count of the union. The count of a single key is cached in its value.
pub(super) fn pfcount(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let counted =
        if command.len() == 2 { count(command.argument(1), view) } else { count_all(command, view) };
    match counted {
        // A count beyond the range becomes negative, as in Redis.
        Ok(count) => replies.integer(count as i64),
        Err(error) => replies.error(error),
    }
}

fn count(key: &[u8], view: &mut View) -> Result<u64, &'static str> {
    let Some(held) = view.look_up(key) else { return Ok(0) };
    if let Some(count) = cached_count(&held.value)? {
        return Ok(count);
    }
    let mut histogram = Histogram::new();
    sketch::each_run(&held.value, |value, registers| histogram.add(value, registers.len()))?;
    let count = estimate(&histogram);
    let mut sketch = Sketch::of(&held.value)?;
    sketch.keep_count(count);
    put(key, sketch, view)?;
    Ok(count)
}

fn count_all(command: Command<'_>, view: &mut View) -> Result<u64, &'static str> {
    let mut maxima = Maxima::new();
    for key in command.arguments(1) {
        if let Some(held) = view.look_up(key) {
            maxima.join(&held.value)?;
        }
    }
    let mut histogram = Histogram::new();
    maxima.iter().for_each(|(_, value)| histogram.add(value, 1));
    Ok(estimate(&histogram))
}

/// `PFMERGE destination [source ...]`.
pub(super) fn pfmerge(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match merge(command, view) {
        Ok(()) => replies.simple("OK"),
        Err(error) => replies.error(error),
    }
}

fn merge(command: Command<'_>, view: &mut View) -> Result<(), &'static str> {
    let (mut maxima, mut dense) = (Maxima::new(), false);
    for key in command.arguments(1) {
        if let Some(held) = view.look_up(key) {
            maxima.join(&held.value)?;
            dense |= is_dense(&held.value);
        }
    }
    let destination = command.argument(1);
    let mut sketch = match view.get(destination) {
        Some(held) => Sketch::of(&held.value)?,
        None => Sketch::new(),
    };
    if dense {
        sketch.make_dense()?;
    }
    for (register, value) in maxima.iter().filter(|(_, value)| *value > 0) {
        sketch.raise(register, value)?;
    }
    sketch.forget_count();
    put(destination, sketch, view)?;
    view.tell(KeyspaceEvents::STRING, "pfadd", destination);
    Ok(())
}

fn put(key: &[u8], sketch: Sketch, view: &mut View) -> Result<(), &'static str> {
    let value = Bytes::from(sketch.into_bytes());
    if value.len() > view.value_bytes_max {
        return Err(error_text::TOO_LONG);
    }
    let expires_at_ms = view.get(key).and_then(|held| held.expires_at_ms);
    view.put(key, value, expires_at_ms);
    Ok(())
}

impl From<Unusable> for &'static str {
    fn from(why: Unusable) -> &'static str {
        match why {
            Unusable::Other => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Unusable::Corrupted => "INVALIDOBJ Corrupted HLL object detected",
        }
    }
}
