//! Execution of a history.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;
use esker_engine::{Entry, ErrorKind, Result, Store};
use esker_simulated::Random;
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;
use tokio::sync::{RwLock, oneshot};

use crate::client::{Client, count_of, read_all};
use crate::config::{Config, when_full};
use crate::coverage::Reached;
use crate::model::{Ended, Model};
use crate::plan::{End, FaultKind, Life, Media, Op, Opening, Plan, SlotKeys, counter_key};
use crate::store::World;

/// Maximum number of task polls before a history counts as a livelock: a constant, plus a number per operation. While
/// an I/O is half a minute late, a scrub takes some 300,000.
const STEPS_MAX: u64 = 2_000_000;
const STEPS_PER_OPERATION: u64 = 500;

/// Failure of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Message of the panic.
    pub message: String,
}

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Suppresses the panic output of histories, because their panics are returned as failures.
fn hush_panics_of_histories() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !RUNS.get() {
                usual(panic);
            }
        }));
    });
}

/// Runs a plan.
///
/// # Errors
/// Any violation of the model.
pub fn run(plan: &Plan) -> std::result::Result<Reached, Failure> {
    hush_panics_of_histories();
    let mut history = History::new(plan);
    RUNS.set(true);
    let lived = catch_unwind(AssertUnwindSafe(|| history.live()));
    // Tasks hold the world, and the world its tasks.
    let ended = catch_unwind(AssertUnwindSafe(|| history.world.runtime.crash()));
    RUNS.set(false);
    match lived.and(ended) {
        Ok(()) => Ok(std::mem::take(&mut *history.reached.lock())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
            Err(Failure { message: text.to_owned() })
        }
    }
}

struct History<'a> {
    plan: &'a Plan,
    world: World,
    model: Arc<Mutex<Model>>,
    reached: Arc<Mutex<Reached>>,
}

impl<'a> History<'a> {
    fn new(plan: &'a Plan) -> History<'a> {
        let mut config = Config::random(&mut Random::new(plan.config_seed), plan.tiers);
        if plan.small {
            config.make_small();
        }
        config.staging = plan.staging;
        if plan.three_devices {
            config.grows = false;
            config.more_devices = vec![3 + plan.seed % 5, 9];
        }
        config.when_full = when_full(plan.seed);
        config.room_segments = plan.lives.iter().map(|life| life.more_segments).sum();
        let keys = plan.slots.iter().enumerate();
        let keys = keys.map(|(slot, keys): (_, &SlotKeys)| (keys.keys(slot), keys.elsewhere));
        let counters = (0..plan.counters).map(counter_key).collect();
        let model = Model::new(plan.media, &config, keys.collect(), counters);
        let reached = Reached { operations: plan.operations() as u64, ..Reached::default() };
        let world = World::new(plan.seed, config);
        world.runtime.set_steps_max(STEPS_MAX + STEPS_PER_OPERATION * plan.operations() as u64);
        History { plan, world, model: Arc::new(Mutex::new(model)), reached: Arc::new(Mutex::new(reached)) }
    }

    fn live(&mut self) {
        let Some(mut store) = self.open() else { return };
        for life in &self.plan.lives {
            if self.changes(life) {
                self.end_quietly(store, End::Close);
                self.change_surroundings(life);
                let Some(opened) = self.open() else { return };
                store = opened;
            }
            let ended = self.life(store, life);
            life.rot.iter().for_each(|(device, at)| self.world.rot(*device, *at));
            let ended = life
                .openings
                .iter()
                .enumerate()
                .fold(ended, |ended, (depth, opening)| self.open_badly(ended, opening, depth));
            let Some(opened) = self.open() else { return };
            self.check_recovered(&opened, ended);
            store = opened;
            if let Some(end) = life.again {
                let Some(opened) = self.open_again(store, end) else { return };
                store = opened;
            }
        }
        self.end_quietly(store, End::Close);
    }

    /// True if the configuration or the clock differs from the previous life.
    fn changes(&self, life: &Life) -> bool {
        life.clock_jump_ms != 0 || self.raises_limit(life)
    }

    fn raises_limit(&self, life: &Life) -> bool {
        life.more_segments > 0 && self.world.config.grows
    }

    fn change_surroundings(&mut self, life: &Life) {
        if life.clock_jump_ms != 0 {
            self.world.runtime.jump_wall_clock(life.clock_jump_ms);
            self.note("the clock was moved");
        }
        if self.raises_limit(life) {
            self.world.config.fast_segments += life.more_segments;
            self.world.config.capacity_segments += life.more_segments;
            self.note("a limit was raised");
        }
    }

    fn note(&self, state: &'static str) {
        self.reached.lock().note(state);
    }

    /// Opens the store. Lying devices may have damaged it beyond opening.
    fn open(&mut self) -> Option<Store> {
        self.world.arm(&[]);
        match self.world.runtime.run(Store::open(self.world.options())) {
            Ok(store) => {
                self.model.lock().settle_databases(&store);
                Some(store)
            }
            Err(error) => {
                let may = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid);
                assert!(may && self.plan.media == Media::Lying, "the store does not open: {error}");
                self.note("an opening was refused for damage");
                None
            }
        }
    }

    /// Runs the clients until the end of a life.
    fn life(&mut self, store: Store, life: &Life) -> Ended {
        self.world.arm(&life.faults);
        let faults = self.world.faults();
        let clients = self.live_and_idle(&store, life);
        let mut how = life.end;
        if how == End::Close {
            self.world.runtime.run(clients);
            if !faults.struck() {
                self.check_quiet(&store);
            }
            if let Err(error) = self.world.runtime.run(store.close()) {
                assert!(faults.struck() || self.plan.media == Media::Lying, "it does not close: {error}");
                how = End::Kill;
            }
        } else {
            let cut = self.world.interruption(life.cut);
            self.world.runtime.run(select(std::pin::pin!(clients), std::pin::pin!(cut)));
        }
        if faults.struck() && life.faults.iter().any(|fault| matches!(fault.what, FaultKind::Late(_))) {
            self.note("a late I/O was waited for");
        }
        self.look_at(&store);
        let ended = Ended { how, at: self.world.runtime.now(), failed: faults.struck() };
        Ended { how: self.stop(how, store), ..ended }
    }

    /// Ends the process. Returns how it really ended.
    fn stop(&mut self, how: End, store: Store) -> End {
        self.reached.lock().ends += 1;
        let how = self.world.stop(how);
        drop(store);
        self.model.lock().ended(how == End::Close);
        // Time has passed since the last look at the clock, and keys may have expired meanwhile.
        self.model.lock().clock(self.world.runtime.wall_clock_ms());
        self.note(match how {
            End::Close => "a store was closed",
            End::Kill => "a process was killed",
            End::PowerCut => "the power was cut",
        });
        how
    }

    /// Runs the clients, and then leaves the store idle for a while.
    fn live_and_idle(&self, store: &Store, life: &Life) -> impl Future<Output = ()> + use<> {
        let clients = self.spawn(store, &life.clients);
        let (runtime, reached, idle_ms) = (self.world.runtime.clone(), self.reached.clone(), life.idle_ms);
        async move {
            clients.await;
            if idle_ms > 0 {
                reached.lock().note("a store was left alone");
                runtime.sleep(Duration::from_millis(idle_ms)).await;
            }
        }
    }

    fn spawn(&self, store: &Store, clients: &[Vec<Op>]) -> impl Future<Output = ()> + use<> {
        let client = Client {
            store: store.clone(),
            runtime: self.world.runtime.clone(),
            model: self.model.clone(),
            config: Arc::new(self.world.config.clone()),
            media: self.plan.media,
            faults: self.world.faults(),
            reached: self.reached.clone(),
            turns: Arc::new(RwLock::new(())),
        };
        let ends = clients.iter().map(|operations| {
            let (client, operations) = (client.clone(), operations.clone());
            let (completion, pending) = oneshot::channel();
            let live = async move {
                client.live(operations).await;
                let _ = completion.send(());
            };
            self.world.runtime.spawn("client", Box::pin(live));
            pending
        });
        let ends: Vec<_> = ends.collect();
        async move { drop(join_all(ends).await) }
    }

    /// Opens the store, and interrupts that before or soon after its end.
    fn open_badly(&mut self, ended: Ended, opening: &Opening, depth: usize) -> Ended {
        self.world.arm(opening.fault.as_slice());
        let faults = self.world.faults();
        let cut = self.world.interruption(opening.cut);
        let open = Box::pin(Store::open(self.world.options()));
        let opened = match self.world.runtime.run(select(open, std::pin::pin!(cut))) {
            Either::Left((Ok(store), _)) => Some(store),
            Either::Left((Err(error), _)) => {
                let may = match self.plan.media {
                    Media::Sound => false,
                    Media::Failing => {
                        faults.struck()
                            && matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed | ErrorKind::Full)
                    }
                    Media::Lying => true,
                };
                assert!(may, "the store does not open: {error}");
                self.note("a device failed while the store was opened");
                None
            }
            Either::Right(((), open)) => {
                drop(open);
                self.note(
                    [
                        "an opening was cut off",
                        "two openings in a row were cut off",
                        "three openings in a row were cut off",
                    ][depth.min(2)],
                );
                None
            }
        };
        opened.iter().for_each(|store| self.look_at(store));
        let stopped = self.world.stop(if opening.kill { End::Kill } else { End::PowerCut });
        drop(opened);
        self.model.lock().ended(false);
        self.model.lock().clock(self.world.runtime.wall_clock_ms());
        let loses_memory = stopped == End::PowerCut && ended.how == End::Kill;
        let how = if loses_memory { End::PowerCut } else { ended.how };
        Ended { how, failed: ended.failed || faults.struck(), ..ended }
    }

    /// Checks a store that was just opened against the model, and takes the found state as the truth.
    fn check_recovered(&self, store: &Store, ended: Ended) {
        let began_ms = store.now_ms();
        let found = self.read_all(store);
        let read_ms = store.now_ms();
        self.model.lock().told_of_evictions(store.stats().activity.records_evicted);
        let counters: Vec<(Bytes, u64)> =
            self.model.lock().counters.iter().map(|counter| (counter.key.clone(), counter.known)).collect();
        for (number, (key, known)) in
            counters.into_iter().enumerate().filter(|_| self.plan.media != Media::Lying)
        {
            let database = self.model.lock().database(false);
            let store = store.database(database).expect("there is one");
            let entry = self.world.runtime.run(store.get_entry(&key)).expect("a read succeeds");
            let mut model = self.model.lock();
            model.told_of_evictions(store.stats().activity.records_evicted);
            model.read_counter(number, known, entry.as_ref().map(count_of));
            model.settle_counter(number);
        }
        self.model.lock().recovered(ended, &found, (began_ms, read_ms));
    }

    fn read_all(&self, store: &Store) -> Vec<Vec<Result<Option<Entry>>>> {
        let found = self.world.runtime.run(read_all(store, &self.model));
        for error in found.iter().flatten().filter_map(|found| found.as_ref().err()) {
            match error.kind() {
                ErrorKind::Corrupt if self.plan.media == Media::Lying => {
                    self.note("a call failed with Corrupt")
                }
                ErrorKind::Io if self.world.faults().struck() => self.note("a call failed with Io"),
                _ => panic!("a store at rest cannot be read: {error}"),
            }
        }
        found
    }

    /// Checks properties that hold while no write is in flight.
    fn check_quiet(&self, store: &Store) {
        let found = self.read_all(store);
        let mut model = self.model.lock();
        model.told_of_evictions(store.stats().activity.records_evicted);
        if model.expires() || model.is_lied_to() || self.world.faults().struck() {
            return;
        }
        for slot in 0..model.slots.len() {
            let state = model.slots[slot].last();
            let keys = model.slots[slot].keys.clone();
            let newest = model.slots[slot].history.len() - 1;
            for (number, (key, entry)) in keys.iter().zip(&found[slot]).enumerate() {
                let entry = entry.as_ref().expect("read_all looks at errors");
                let found = model.check_entry(slot, key, entry.as_ref());
                let stamp = found.map(|(stamp, _)| stamp);
                let was_gone = model.slots[slot].was_dropped(number, newest);
                assert!(
                    stamp == state.stamp || stamp.is_none() && (was_gone || model.may_have_dropped(&[state])),
                    "{key:?} at rest: {stamp:?}, but {:?}",
                    model.slots[slot].history
                );
            }
        }
        if self.world.config.hash_bits.is_none() && model.is_counted() && !model.may_have_evicted() {
            for database in [false, true].map(|elsewhere| model.database(elsewhere)) {
                let store = store.database(database).expect("there is one");
                assert_eq!(store.len(), model.keys(database, store.now_ms()), "keys of database {database}");
            }
        }
    }

    /// Checks that opening twice gives the same result as opening once.
    fn open_again(&mut self, store: Store, end: End) -> Option<Store> {
        let (before, keys) = (self.alive(&store), store.stats().keys);
        self.end_quietly(store, end);
        let store = self.open()?;
        let after = self.alive(&store);
        let mut model = self.model.lock();
        model.told_of_evictions(store.stats().activity.records_evicted);
        if !model.expires() && !model.is_lied_to() {
            // None of them expires.
            let may_be_dropped = model.may_have_dropped_lasting();
            let is_same = |(before, after): (&Option<Entry>, &Option<Entry>)| {
                before == after || after.is_none() && may_be_dropped
            };
            for (at, pair) in before.iter().zip(&after).enumerate() {
                let told = |entry: &Option<Entry>| {
                    entry.as_ref().map(|entry| (entry.version, entry.value.len(), entry.expires_at_ms))
                };
                let (first, second) = (told(pair.0), told(pair.1));
                assert!(
                    is_same(pair),
                    "the second opening found something else: key {at}, {first:?}, then {second:?}"
                );
            }
            if model.is_counted() && !model.may_have_evicted() {
                assert_eq!(keys, store.stats().keys, "keys of the second opening");
            }
        }
        drop(model);
        self.note("a store was opened twice");
        Some(store)
    }

    /// Returns the entries that exist and will not expire for another second.
    fn alive(&self, store: &Store) -> Vec<Option<Entry>> {
        let found = self.read_all(store);
        let now_ms = store.now_ms();
        let lasts = |entry: &Entry| entry.expires_at_ms.is_none_or(|at| now_ms + 1000 < at);
        found.into_iter().flatten().map(|entry| entry.ok().flatten().filter(lasts)).collect()
    }

    /// Ends a process without operations in flight.
    fn end_quietly(&mut self, store: Store, end: End) {
        self.look_at(&store);
        if end == End::Close
            && let Err(error) = self.world.runtime.run(store.close())
        {
            assert!(self.plan.media == Media::Lying, "it does not close: {error}");
        }
        self.stop(end, store);
    }

    /// Records the store's background activity.
    fn look_at(&self, store: &Store) {
        let stats = store.stats();
        self.model.lock().clock(store.now_ms());
        self.model.lock().look_at(&stats);
        let done = stats.activity;
        let of_tiers =
            |count: fn(&esker_engine::TierStats) -> u64| stats.tiers.iter().map(count).sum::<u64>();
        let counts = [
            ("segments were destaged", of_tiers(|tier| tier.written.destaged_bytes)),
            ("records of the staging file were taken", of_tiers(|tier| tier.written.recovered_bytes)),
            ("space was discarded", of_tiers(|tier| tier.discarded_bytes)),
            ("records were moved by relocation", done.records_moved),
            ("segments were freed", done.segments_freed),
            ("records expired", done.records_expired),
            ("a full store dropped records", done.records_evicted),
            ("a write waited for room", done.stalls),
            ("a displaced key was found again", done.hidden_found),
            ("overwrites were verified", done.overwrites_verified),
            ("records were overwritten in memory", done.records_coalesced),
            ("the scrub came to its end", done.scrub_passes),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).for_each(|(state, _)| self.note(state));
    }
}
