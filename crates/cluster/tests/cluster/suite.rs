//! openraft's storage suite on the log of the store, with a power cut before every flush.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytes::Bytes;
use esker_cluster::{GroupMachine, GroupStore, MachineShell, TypeConfig, enter};
use esker_device::{Fault, OperationKind, Runtime, WriteMode};
use esker_engine::Store;
use esker_simulated::SimRuntime;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::type_config::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::{OptionalSend, RaftLogReader, StorageError};
use parking_lot::Mutex;

use crate::history::{History, Model, Record};
use crate::support::{Devices, Tiers};

type Entry = EntryOf<TypeConfig>;
type LogId = LogIdOf<TypeConfig>;
type Vote = VoteOf<TypeConfig>;

/// A machine that counts.
#[derive(Default)]
struct Counter(u64);

impl GroupMachine for Counter {
    fn apply(&mut self, _: u64, _: &[u8]) -> io::Result<Bytes> {
        self.0 += 1;
        Ok(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }

    fn snapshot(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0.to_le_bytes())
    }

    fn restore(&mut self, snapshot: &[u8]) -> io::Result<()> {
        let bytes =
            snapshot.try_into().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no counter"))?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }
}

/// The number of the group under test.
const GROUP: u8 = 3;

/// The log under test, which keeps the history of the records written to it.
#[derive(Clone)]
struct Watched {
    store: GroupStore,
    log: esker_engine::GroupLog,
    history: Arc<Mutex<History>>,
}

impl Watched {
    /// Adds the changes of the last call to the history. `before`: the content of the group before that call.
    async fn note(&self, before: &Model, is_durable: bool) {
        let now = Model::of(&self.log).await;
        let (old, new) = (before.0.get(&GROUP).cloned().unwrap_or_default(), now.0.get(&GROUP).cloned());
        let Some(new) = new else { return };
        let mut history = self.history.lock();
        if new.purged != old.purged
            && let Some((through, note)) = new.purged.clone()
        {
            history.add(Record::Purge(GROUP, through, note));
        } else if let Some((&last, _)) = old.entries.last_key_value()
            && new.entries.last_key_value().is_none_or(|(&end, _)| end < last)
        {
            let from = new.entries.last_key_value().map_or(0, |(&end, _)| end + 1);
            history.add(Record::Truncate(GROUP, from));
        }
        for (number, value) in
            new.states.iter().filter(|(number, value)| old.states.get(number) != Some(value))
        {
            history.add(Record::State(GROUP, *number, value.clone()));
        }
        for (index, entry) in new.entries.iter().filter(|(index, _)| !old.entries.contains_key(index)) {
            history.add(Record::Entry(GROUP, *index, entry.clone()));
        }
        let length = history.len();
        assert_eq!(history.now().0.get(&GROUP), Some(&new), "the history is complete");
        if is_durable {
            history.is_durable(length);
        }
    }
}

impl RaftLogReader<TypeConfig> for Watched {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.store.try_get_log_entries(range).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.store.read_vote().await
    }
}

impl RaftLogStorage<TypeConfig> for Watched {
    type LogReader = Watched;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        self.store.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> Watched {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let before = Model::of(&self.log).await;
        self.store.save_vote(vote).await?;
        self.note(&before, true).await;
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        let before = Model::of(&self.log).await;
        self.store.save_committed(committed).await?;
        self.note(&before, false).await;
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        self.store.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (entries, before): (Vec<_>, _) = (entries.into_iter().collect(), Model::of(&self.log).await);
        let (flushed, is_flushed) = TypeConfig::oneshot();
        self.store.append(entries, IOFlushed::signal(flushed)).await?;
        self.note(&before, false).await;
        let (history, length) = (self.history.clone(), self.history.lock().len());
        let _detached = TypeConfig::spawn(async move {
            let result = is_flushed.await.expect("the log answers");
            if result.is_ok() {
                history.lock().is_durable(length);
            }
            callback.io_completed(result);
        });
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let before = Model::of(&self.log).await;
        self.store.truncate_after(last).await?;
        self.note(&before, true).await;
        Ok(())
    }

    async fn purge(&mut self, through: LogId) -> io::Result<()> {
        let before = Model::of(&self.log).await;
        self.store.purge(through).await?;
        self.note(&before, false).await;
        Ok(())
    }
}

/// Devices after a power cut, the history of their log, and how many of its records were durable at the cut.
type Cut = (Devices, Arc<Mutex<History>>, usize);

/// Builds stores on new devices, and compares the cuts of the last one with its history.
struct Builder {
    world: SimRuntime,
    tiers: Tiers,
    cuts: Arc<Mutex<Vec<Cut>>>,
    compared: Arc<Mutex<usize>>,
}

impl Builder {
    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.world.clone())
    }

    /// Opens the devices of each cut.
    async fn compare(&self) {
        let cuts = std::mem::take(&mut *self.cuts.lock());
        for (devices, history, durable) in cuts {
            let (store, log) = devices.open(self.runtime()).await;
            let found = Model::of(&log).await;
            let history = history.lock().clone();
            let length = history.prefix_from(durable, &found);
            assert!(length.is_some(), "no prefix with the first {durable} records: {found:?} of {history:?}");
            *self.compared.lock() += 1;
            store.close().await.expect("it closes");
        }
    }
}

impl StoreBuilder<TypeConfig, Watched, MachineShell<Counter>, Store> for Builder {
    async fn build(&self) -> Result<(Store, Watched, MachineShell<Counter>), StorageError<TypeConfig>> {
        self.compare().await;
        let devices = Devices::new(&self.world, self.tiers, 4);
        let (store, log) = devices.open(self.runtime()).await;
        let watched = Watched { store: GroupStore::new(log.clone(), GROUP), log, history: Arc::default() };
        for device in devices.all() {
            let (world, devices) = (self.world.clone(), devices.clone());
            let (history, cuts) = (watched.history.clone(), self.cuts.clone());
            device.set_faults(Box::new(move |operation| {
                let is_durable =
                    operation.kind == OperationKind::Write && operation.mode == WriteMode::Durable;
                if is_durable || operation.kind == OperationKind::Flush {
                    let durable = history.lock().durable();
                    cuts.lock().push((devices.power_cut(&world), history.clone(), durable));
                }
                Fault::None
            }));
        }
        Ok((store, watched, MachineShell::new(Counter::default())))
    }
}

/// Runs the suite. Returns the number of power cuts that were compared.
fn run_suite(tiers: Tiers) -> usize {
    let world = SimRuntime::new(1);
    let runtime: Arc<dyn Runtime> = Arc::new(world.clone());
    let compared = Arc::new(Mutex::new(0));
    let builder = Builder { world: world.clone(), tiers, cuts: Arc::default(), compared: compared.clone() };
    let cuts = builder.cuts.clone();
    world.run(enter(runtime.clone(), async {
        Suite::test_all(builder).await.expect("the suite passes");
        let rest = Builder { world: world.clone(), tiers, cuts, compared: compared.clone() };
        rest.compare().await;
    }));
    world.crash();
    *compared.lock()
}

#[test]
fn storage_suite_passes_on_one_device_with_power_cuts() {
    let compared = run_suite(Tiers::Fast);
    assert!(compared > 300, "{compared} power cuts");
}

#[test]
fn storage_suite_passes_on_two_devices_with_power_cuts() {
    let compared = run_suite(Tiers::Both);
    assert!(compared > 300, "{compared} power cuts");
}
