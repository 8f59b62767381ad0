//! Opens a damaged store and checks that nothing is silently lost, wrong or back.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use esker::{Cursor, Error, ErrorKind, Store};
use esker_device::Runtime;

use crate::damage::image::Image;
use crate::damage::life::batches;
use crate::damage::plant::Damage;
use crate::support::World;
use crate::support::history::{Key, Stamp, stamp_in};

/// The outcome of a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The store does not open.
    Refused,
    /// Reading some keys returns an error.
    Told,
    /// Some keys are in their state before the last frame.
    LastFrameLost,
    /// Nothing is missing.
    Harmless,
}

/// A fault, and its details.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// A short description, equal for equal faults.
    pub(crate) what: String,
    pub(crate) detail: String,
}

fn fault(what: impl Into<String>, detail: impl Into<String>) -> Fault {
    Fault { what: what.into(), detail: detail.into() }
}

/// A trial in progress.
struct Trial<'a> {
    image: &'a Image,
    may_be: BTreeMap<&'a Key, BTreeSet<Stamp>>,
    outcome: Outcome,
}

/// Plants a damage and returns its outcome.
pub(crate) fn judge(image: &Image, damage: &Damage) -> Result<Outcome, Fault> {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let change = damage.change(image.bytes(damage.part));
        let world = image.world(&[(damage.part, &change)]);
        let mut trial = Trial { image, may_be: image.may_be(damage), outcome: Outcome::Harmless };
        let tried = trial.run(&world);
        world.end();
        tried.map(|()| trial.outcome)
    }));
    tried.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(fault("panic", said))
    })
}

/// Opens, reads, compacts, reads and opens again a store without damage.
pub(crate) fn control(image: &Image) -> Result<(), Fault> {
    let world = image.world(&[]);
    let mut trial = Trial { image, may_be: BTreeMap::new(), outcome: Outcome::Harmless };
    let tried = trial.run(&world);
    world.end();
    match trial.outcome {
        Outcome::Harmless => tried,
        other => Err(fault("undamaged", format!("{other:?}"))),
    }
}

impl Trial<'_> {
    fn run(&mut self, world: &World) -> Result<(), Fault> {
        world.runtime.run(async {
            let Some(store) = self.open(world, "opened").await? else { return Ok(()) };
            self.check(&store, "opened").await?;
            // Collection must not hide damage.
            match store.compact().await {
                Ok(()) => {}
                Err(error) if is_loud(&error) => self.outcome = self.outcome.min(Outcome::Told),
                Err(error) => {
                    return Err(fault(format!("compact: {:?}", error.kind()), error.to_string()));
                }
            }
            world.runtime.sleep(std::time::Duration::from_secs(5)).await;
            self.check(&store, "compacted").await?;
            if let Err(error) = store.close().await {
                return Err(fault(format!("close: {:?}", error.kind()), error.to_string()));
            }
            drop(store);
            let Some(store) = self.open(world, "opened again").await? else { return Ok(()) };
            self.check(&store, "opened again").await
        })
    }

    async fn open(&mut self, world: &World, when: &str) -> Result<Option<Store>, Fault> {
        match Store::open(world.options()).await {
            Ok(store) => Ok(Some(store)),
            Err(error) if is_loud(&error) || error.kind() == ErrorKind::Invalid => {
                self.outcome = Outcome::Refused;
                Ok(None)
            }
            Err(error) => Err(fault(format!("{when}: {:?}", error.kind()), error.to_string())),
        }
    }

    /// Checks that every key is as expected or returns an error, and that an iteration agrees.
    async fn check(&mut self, store: &Store, when: &str) -> Result<(), Fault> {
        let mut readable: BTreeMap<&Key, Stamp> = BTreeMap::new();
        let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (key, expected) in &self.image.expected {
            let named = String::from_utf8_lossy(key).into_owned();
            let found = match store.get(key).await {
                Ok(found) => found,
                Err(error) if is_loud(&error) => {
                    if let Error::Corrupt { key: Some(of), .. } = &error
                        && of != key
                    {
                        wrong.entry("error that names another key").or_default().push(named);
                    }
                    self.outcome = self.outcome.min(Outcome::Told);
                    continue;
                }
                Err(error) => {
                    return Err(fault(format!("{when}: get: {:?}", error.kind()), error.to_string()));
                }
            };
            let stamp = match found.map(|found| stamp_in(key, &found)) {
                Some(None) => {
                    wrong.entry("foreign value").or_default().push(named);
                    continue;
                }
                found => found.flatten(),
            };
            readable.insert(key, stamp);
            if stamp == *expected {
                continue;
            }
            if self.may_be.get(key).is_some_and(|stamps| stamps.contains(&stamp)) {
                self.outcome = self.outcome.min(Outcome::LastFrameLost);
                continue;
            }
            let what = match (expected, stamp) {
                (_, Some(stamp)) if !self.image.histories.had(key, stamp) => "value never written",
                (Some(_), None) => "missing",
                (None, Some(_)) => "resurrected",
                _ => "older value",
            };
            wrong.entry(what).or_default().push(format!("{named}: {stamp:?} for {expected:?}"));
        }
        for keys in batches() {
            // If all keys of a batch are readable, the batch is complete.
            let stamps: BTreeSet<Stamp> = keys.iter().filter_map(|key| readable.get(key)).copied().collect();
            if stamps.len() > 1 {
                let named = String::from_utf8_lossy(&keys[0]).into_owned();
                wrong.entry("torn batch").or_default().push(format!("{named}: {stamps:?}"));
            }
        }
        if let Some(what) = wrong.keys().copied().reduce(|_, next| next) {
            let all: Vec<String> =
                wrong.iter().map(|(what, keys)| format!("{} {what}", keys.len())).collect();
            let first = wrong[what].first().cloned().unwrap_or_default();
            let kinds: Vec<&str> = wrong.keys().copied().collect();
            let detail = format!("{} of {} keys; {first}", all.join(", "), self.image.expected.len());
            return Err(fault(format!("{when}: {}", kinds.join(", ")), detail));
        }
        self.check_scan(store, when, &readable).await
    }

    /// Checks that an iteration finds exactly the readable keys, and reports the rest.
    async fn check_scan(
        &mut self,
        store: &Store,
        when: &str,
        readable: &BTreeMap<&Key, Stamp>,
    ) -> Result<(), Fault> {
        let mut found: BTreeSet<Key> = BTreeSet::new();
        let (mut cursor, mut is_told) = (Some(Cursor::START), false);
        while let Some(from) = cursor {
            let page = match store.scan(from, 64).await {
                Ok(page) => page,
                Err(error) if is_loud(&error) => {
                    self.outcome = self.outcome.min(Outcome::Told);
                    return Ok(());
                }
                Err(error) => {
                    return Err(fault(format!("{when}: scan: {:?}", error.kind()), error.to_string()));
                }
            };
            is_told |= page.damaged.iter().any(is_loud);
            for entry in page.entries {
                let key = entry.key.to_vec();
                let stamp = stamp_in(&key, &entry.value);
                if stamp.is_none() || readable.get(&key) != Some(&stamp) {
                    let named = String::from_utf8_lossy(&key).into_owned();
                    return Err(fault(format!("{when}: scan: another value"), named));
                }
                found.insert(key);
            }
            cursor = page.next;
        }
        let there = readable.iter().filter(|(_, stamp)| stamp.is_some());
        let unseen: Vec<_> = there.filter(|(key, _)| !found.contains(**key)).collect();
        match unseen.first() {
            Some((key, _)) => {
                let detail = format!("{} keys; {}", unseen.len(), String::from_utf8_lossy(key));
                Err(fault(format!("{when}: scan: missing"), detail))
            }
            None if is_told => {
                self.outcome = self.outcome.min(Outcome::Told);
                Ok(())
            }
            None if readable.len() < self.image.expected.len() => {
                Err(fault(format!("{when}: scan: silent about damage"), "it ends without an error"))
            }
            None => Ok(()),
        }
    }
}

/// Returns true if the error reports damage.
fn is_loud(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt
}
