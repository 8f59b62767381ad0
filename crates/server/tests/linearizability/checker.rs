//! Checks histories for linearizability: there must be an order of the operations, each at a moment between its invocation and
//! its return, in which a single thread would have received the same replies.
//!
//! Linearizability is local (Herlihy and Wing, 1990): a history is linearizable if that of each object is. An object here is a
//! set of keys that no transaction connects to others. Each object is searched with Lowe's refinement ("Testing for
//! linearizability", 2017) of the search of Wing and Gong: invocations and returns are processed in order, with the set of all
//! configurations possible so far: the state, and the set of open operations that have happened. An operation must have happened
//! only when it returns, possibly after other open ones. The work grows with the number of concurrently open operations, not with
//! the length of the history.
//!
//! An operation that the server did not answer before it was killed happened before the kill or never (strict linearizability,
//! Aguilera and Frølund, 2003).

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use crate::history::{Operation, Value};

/// Set of open operations; more concurrent clients than bits need a wider type.
type Open = u32;

/// Number of operations before the wrong one that a failure prints.
const SHOWN_MAX: usize = 20;

#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    state: Vec<Value>,
    /// Bit per slot whose open operation has happened.
    happened: Open,
}

/// Checks the history of keys `0..keys`, all of which are absent before it.
///
/// # Errors
/// The first operation whose reply is impossible, and the operations before it.
pub(crate) fn check(history: &[Operation], keys: usize) -> Result<(), String> {
    let group_of = groups(history, keys);
    let mut groups = BTreeMap::<usize, Vec<&Operation>>::new();
    for operation in history {
        groups.entry(group_of[operation.steps[0].key]).or_default().push(operation);
    }
    groups.values().try_for_each(|operations| check_group(operations, keys))
}

/// Returns for each key the representative of the group of keys that transactions connect.
fn groups(history: &[Operation], keys: usize) -> Vec<usize> {
    let mut group_of: Vec<usize> = (0..keys).collect();
    for operation in history {
        let one = group_of[operation.steps[0].key];
        for step in &operation.steps {
            let other = group_of[step.key];
            group_of.iter_mut().filter(|group| **group == other).for_each(|group| *group = one);
        }
    }
    group_of
}

fn check_group(operations: &[&Operation], keys: usize) -> Result<(), String> {
    let mut events: Vec<(u64, usize)> = (0..operations.len())
        .flat_map(|n| [(operations[n].invoked, n), (operations[n].returned, n)])
        .collect();
    events.sort_unstable();
    let mut open: [Option<usize>; Open::BITS as usize] = [None; _];
    let mut possible = HashSet::from([Configuration { state: vec![None; keys], happened: 0 }]);
    for (moment, n) in events {
        if moment == operations[n].invoked {
            let free = open.iter_mut().find(|slot| slot.is_none()).ok_or("too many operations at a time")?;
            *free = Some(n);
            continue;
        }
        let slot = open
            .iter()
            .position(|slot| *slot == Some(n))
            .ok_or("an operation returns before it is invoked")?;
        let before: Vec<Vec<Value>> = possible.iter().take(4).map(|one| one.state.clone()).collect();
        possible = returned(possible, slot, &open, operations);
        open[slot] = None;
        if possible.is_empty() {
            return Err(describe(operations, n, &before));
        }
    }
    Ok(())
}

/// Returns the configurations after the operation in `slot` returned, or its server was killed.
fn returned(
    possible: HashSet<Configuration>,
    slot: usize,
    open: &[Option<usize>],
    operations: &[&Operation],
) -> HashSet<Configuration> {
    let bit = 1 << slot;
    let answered = open[slot].is_some_and(|n| operations[n].replies.is_some());
    let mut after = HashSet::new();
    let mut seen = possible.clone();
    let mut to_do: Vec<Configuration> = possible.into_iter().collect();
    while let Some(configuration) = to_do.pop() {
        if configuration.happened & bit != 0 {
            after.insert(Configuration { happened: configuration.happened & !bit, ..configuration });
            continue;
        }
        if !answered {
            after.insert(configuration.clone());
        }
        for (other, operation) in open.iter().enumerate() {
            let Some(operation) = operation else { continue };
            if configuration.happened & (1 << other) != 0 {
                continue;
            }
            let mut next = configuration.clone();
            next.happened |= 1 << other;
            if operations[*operation].apply(&mut next.state) && seen.insert(next.clone()) {
                to_do.push(next);
            }
        }
    }
    after
}

fn describe(operations: &[&Operation], wrong: usize, before: &[Vec<Value>]) -> String {
    let mut text = format!("no order explains\n  {}\n", operations[wrong]);
    let _ = writeln!(text, "possible states before it returned were {before:?}; operations until then");
    let mut until: Vec<_> =
        operations.iter().filter(|other| other.invoked < operations[wrong].returned).collect();
    until.sort_unstable_by_key(|operation| operation.returned);
    for operation in &until[until.len().saturating_sub(SHOWN_MAX)..] {
        let _ = writeln!(text, "  {operation}");
    }
    text
}

#[cfg(test)]
#[path = "checker_tests.rs"]
mod tests;
