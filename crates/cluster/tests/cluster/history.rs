//! Histories of a group log, record by record, and the contents that a power cut may leave of one.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker_engine::GroupLog;

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(u8, u64, Bytes),
    State(u8, u8, Bytes),
    Truncate(u8, u64),
    Purge(u8, u64, Bytes),
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) entries: BTreeMap<u64, Bytes>,
    pub(crate) states: BTreeMap<u8, Bytes>,
    pub(crate) purged: Option<(u64, Bytes)>,
}

/// The groups of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model(pub(crate) BTreeMap<u8, Group>);

impl Model {
    pub(crate) fn apply(&mut self, record: &Record) {
        match record.clone() {
            Record::Entry(group, index, bytes) => {
                self.0.entry(group).or_default().entries.insert(index, bytes);
            }
            Record::State(group, number, bytes) => {
                self.0.entry(group).or_default().states.insert(number, bytes);
            }
            Record::Truncate(group, from) => {
                self.0.entry(group).or_default().entries.split_off(&from);
            }
            Record::Purge(group, through, note) => {
                let group = self.0.entry(group).or_default();
                group.entries = group.entries.split_off(&(through + 1));
                group.purged = Some((through, note));
            }
        }
    }

    /// Reads the groups of a log.
    pub(crate) async fn of(log: &GroupLog) -> Model {
        let mut groups = BTreeMap::new();
        for number in log.groups() {
            let range = log.range(number);
            let entries = log.read(number, range.clone()).await.expect("entries can be read");
            assert_eq!(
                entries.len() as u64,
                range.end - range.start,
                "group {number} has a hole in {range:?}"
            );
            let states = (0..=u8::MAX).filter_map(|state| Some((state, log.state(number, state)?)));
            let group = Group {
                entries: range.zip(entries).collect(),
                states: states.collect(),
                purged: log.purged(number),
            };
            groups.insert(number, group);
        }
        Model(groups)
    }

    /// Removes groups that hold nothing, which a log may or may not remember.
    pub(crate) fn without_empty(mut self) -> Model {
        self.0.retain(|_, group| *group != Group::default());
        self
    }
}

/// Records in the order in which they were appended, and how many of them are known to be durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    before: Model,
    records: Vec<Record>,
    durable: usize,
}

impl History {
    /// Begins with the durable content of a log.
    pub(crate) fn after(before: Model) -> History {
        History { before, records: Vec::new(), durable: 0 }
    }

    pub(crate) fn add(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Returns the number of records so far, to be passed to [`is_durable`](Self::is_durable).
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Notes that the first `records` records are durable.
    pub(crate) fn is_durable(&mut self, records: usize) {
        self.durable = self.durable.max(records);
    }

    /// Returns the state after all records.
    pub(crate) fn now(&self) -> Model {
        let mut model = self.before.clone();
        self.records.iter().for_each(|record| model.apply(record));
        model
    }

    /// Returns the number of records that are known to be durable.
    pub(crate) fn durable(&self) -> usize {
        self.durable
    }

    /// Returns the number of records that `found` is the result of, if it is a prefix of all that has every durable one.
    pub(crate) fn prefix(&self, found: &Model) -> Option<usize> {
        self.prefix_from(self.durable, found)
    }

    /// As [`prefix`](Self::prefix), for a prefix that has at least the first `durable` records.
    pub(crate) fn prefix_from(&self, durable: usize, found: &Model) -> Option<usize> {
        let found = found.clone().without_empty();
        let mut model = self.before.clone();
        self.records[..durable].iter().for_each(|record| model.apply(record));
        for length in durable..=self.records.len() {
            if model.clone().without_empty() == found {
                return Some(length);
            }
            if let Some(record) = self.records.get(length) {
                model.apply(record);
            }
        }
        None
    }
}
