//! Decides if the operations of clients on a key and their answers are a linearizable history.
//!
//! Two kinds of keys. A *list* grows by unique elements, and a read returns all of them: every fault shows in a comparison
//! with the last read. A *register* is overwritten, deleted and may expire: a search tries all orders.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// The time at which an operation with an unknown end may still happen.
pub(crate) const NEVER: Duration = Duration::MAX;

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A write was acknowledged.
    Done,
    /// A write may have happened, or may happen later.
    Unknown,
    /// A read returned elements of a list.
    List(Vec<u64>),
    /// A read returned the value of a register.
    Value(Option<u64>),
}

/// A request to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Appends a unique element to a list.
    Append(u64),
    /// Sets a register to a unique value; true if the value expires at some time.
    Put(u64, bool),
    /// Deletes a register.
    Delete,
    /// Deletes a register with all others of its group.
    Clear,
    /// Reads a list or a register.
    Read,
}

/// An operation of a client. Operations that were certainly not done are none, except that a write keeps its number:
/// see [`check_list`].
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) request: Request,
    pub(crate) end: End,
    pub(crate) called: Duration,
    pub(crate) returned: Duration,
    /// The connection of a read from a replica: such reads of one connection follow each other, in the order of the list.
    pub(crate) connection: Option<u64>,
}

/// Checks the operations of a list, of which the last read came after all others had ended.
///
/// The last read is the order of all appends. Append *k* is at position 2k and a read of *k* elements at 2k + 1; the history
/// is linearizable if no operation that was called after another had returned has a lower position.
pub(crate) fn check_list(operations: &[Operation]) -> Result<(), String> {
    let lists = operations.iter().filter_map(|operation| match &operation.end {
        End::List(list) => Some((operation.returned, list)),
        _ => None,
    });
    let Some((_, last)) = lists.clone().max_by_key(|(returned, _)| *returned) else { return Ok(()) };
    for (at, list) in lists {
        if !last.starts_with(list) {
            return Err(format!("the read at {at:?} returned {list:?}, no beginning of {last:?}"));
        }
    }
    let positions: BTreeMap<u64, usize> = last.iter().copied().zip(1..).collect();
    if positions.len() != last.len() {
        return Err(format!("an element is there twice: {last:?}"));
    }
    let (mut placed, mut asked) = (Vec::new(), BTreeSet::new());
    for operation in operations {
        let position = match (&operation.request, &operation.end) {
            (Request::Append(element), end) => {
                asked.insert(*element);
                match (positions.get(element), end) {
                    (Some(position), _) => position * 2,
                    (None, End::Done) => {
                        return Err(format!(
                            "{element} was acknowledged at {:?}, and is lost",
                            operation.returned
                        ));
                    }
                    (None, _) => continue,
                }
            }
            (_, End::List(list)) => list.len() * 2 + 1,
            _ => continue,
        };
        placed.push((operation, position));
    }
    let mut shown = BTreeMap::new();
    for operation in operations {
        if let (Some(connection), End::List(list)) = (operation.connection, &operation.end) {
            let before = shown.insert(connection, list.len()).unwrap_or(0);
            if before > list.len() {
                return Err(format!("{operation:?} shows less than a read before it on its connection"));
            }
        }
    }
    if let Some(stranger) = last.iter().find(|element| !asked.contains(element)) {
        return Err(format!("{stranger} is there, and its append was certainly not done"));
    }
    in_real_time(&mut placed)
}

/// Checks that operations which follow each other have positions that do not fall.
fn in_real_time(placed: &mut [(&Operation, usize)]) -> Result<(), String> {
    let mut by_return = placed.to_vec();
    by_return.sort_by_key(|(operation, _)| operation.returned);
    placed.sort_by_key(|(operation, _)| operation.called);
    let (mut returned, mut highest) = (by_return.into_iter().peekable(), None::<(&Operation, usize)>);
    for (operation, position) in placed {
        while let Some(before) = returned.next_if(|(before, _)| before.returned < operation.called) {
            highest = highest.filter(|(_, high)| *high >= before.1).or(Some(before));
        }
        if let Some((before, high)) = highest
            && high > *position
        {
            return Err(format!("{operation:?} came after {before:?}, and does not show it"));
        }
    }
    Ok(())
}

/// The state of a register: its value, and if it may expire.
type State = Option<(u64, bool)>;

/// Returns the state after an operation; `None` if the operation cannot have had its end in this state.
fn after(state: State, operation: &Operation) -> Option<State> {
    match (operation.request, &operation.end) {
        (Request::Put(value, expires), _) => Some(Some((value, expires))),
        // One that was acknowledged has found the key: one that found none is a read.
        (Request::Delete, End::Done) => state.is_some().then_some(None),
        (Request::Delete | Request::Clear, _) => Some(None),
        (_, End::Value(None)) => state.is_none_or(|(_, expires)| expires).then_some(None),
        (_, End::Value(Some(read))) => state.filter(|(value, _)| value == read).map(Some),
        _ => Some(state),
    }
}

/// A set of operations, as bits.
type Bits = Vec<u64>;

fn has(bits: &Bits, at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 == 1
}

/// Returns the read before each operation on its connection.
fn before_on_connections(operations: &[&Operation]) -> Vec<Option<usize>> {
    let mut last = BTreeMap::new();
    let before = |(at, operation): (usize, &&Operation)| last.insert(operation.connection?, at);
    operations.iter().enumerate().map(before).collect()
}

/// Checks the operations of a register: searches for an order in which every read returns the value written last, and
/// which keeps the order of operations that followed each other.
pub(crate) fn check_register(operations: &[Operation]) -> Result<(), String> {
    let mut operations: Vec<_> = operations.iter().collect();
    operations.sort_by_key(|operation| operation.called);
    let before = before_on_connections(&operations);
    let must: usize = operations.iter().filter(|operation| operation.end != End::Unknown).count();
    let (mut seen, mut furthest) = (HashSet::new(), 0);
    let mut open: Vec<(Bits, State, usize)> = vec![(vec![0; operations.len().div_ceil(64)], None, 0)];
    while let Some((done, state, count)) = open.pop() {
        if count == must {
            return Ok(());
        }
        furthest = furthest.max(count);
        let left = || operations.iter().enumerate().filter(|(at, _)| !has(&done, *at));
        let first_return = left().map(|(_, operation)| operation.returned).min().unwrap_or(NEVER);
        let mut known = Vec::new();
        for (at, operation) in left().take_while(|(_, operation)| operation.called <= first_return) {
            if before[at].is_some_and(|before| !has(&done, before)) {
                continue;
            }
            let Some(next) = after(state, operation) else { continue };
            let is_unknown = operation.end == End::Unknown;
            // One that may not have happened, and would change nothing, is left out.
            if is_unknown && next == state {
                continue;
            }
            let is_free = !is_unknown && operation.request == Request::Read && next == state;
            let mut done = done.clone();
            done[at / 64] |= 1 << (at % 64);
            if is_free {
                // It changes nothing and excludes nothing, so no order is lost if it comes first.
                known.clear();
            }
            if seen.insert((done.clone(), next)) {
                let to = if is_unknown { &mut open } else { &mut known };
                to.push((done, next, count + usize::from(!is_unknown)));
            }
            if is_free {
                break;
            }
        }
        // These are tried first.
        open.append(&mut known);
        if seen.len() > SEARCH_MAX {
            return Err(format!(
                "the search was given up after {SEARCH_MAX} states: choose less concurrency"
            ));
        }
    }
    let told = operations.iter().map(|operation| format!("  {operation:?}\n")).collect::<String>();
    Err(format!("no order explains more than {furthest} of {must} operations:\n{told}"))
}

/// Maximum number of states of a search.
const SEARCH_MAX: usize = 3_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(request: Request, end: End, called: u64, returned: u64) -> Operation {
        let returned = if returned == 0 { NEVER } else { Duration::from_millis(returned) };
        Operation { request, end, called: Duration::from_millis(called), returned, connection: None }
    }

    fn append(element: u64, called: u64, returned: u64) -> Operation {
        operation(Request::Append(element), End::Done, called, returned)
    }

    fn list(elements: &[u64], called: u64, returned: u64) -> Operation {
        operation(Request::Read, End::List(elements.to_vec()), called, returned)
    }

    #[test]
    fn list_faults_are_found() {
        let fault = |operations: &[Operation]| check_list(operations).err().unwrap_or_default();
        let history = [append(1, 1, 2), append(2, 3, 4), list(&[1], 3, 5), list(&[1, 2], 8, 9)];
        assert_eq!(fault(&history), "");
        assert!(fault(&[append(1, 1, 2), list(&[], 8, 9)]).contains("lost"));
        assert!(fault(&[append(1, 1, 2), list(&[1, 1], 8, 9)]).contains("twice"));
        assert!(fault(&[append(1, 1, 2), list(&[1, 7], 8, 9)]).contains("certainly not done"));
        assert!(
            fault(&[append(1, 1, 2), append(2, 1, 2), list(&[2], 3, 4), list(&[1, 2], 8, 9)])
                .contains("beginning")
        );
        // Stale: the second append had returned when the read was called.
        let stale = [append(1, 1, 2), append(2, 3, 4), list(&[1], 5, 6), list(&[1, 2], 8, 9)];
        assert!(fault(&stale).contains("does not show it"));
        // Reordered: the first had returned when the second was called.
        assert!(fault(&[append(1, 1, 2), append(2, 3, 4), list(&[2, 1], 8, 9)]).contains("does not show it"));
        let unknown = |element| operation(Request::Append(element), End::Unknown, 1, 0);
        assert_eq!(fault(&[unknown(1), unknown(2), list(&[2], 8, 9)]), "");
    }

    fn on_connection(operation: Operation) -> Operation {
        Operation { connection: Some(1), ..operation }
    }

    #[test]
    fn reads_of_a_connection_that_go_back_are_found() {
        let put =
            |value, called, returned| operation(Request::Put(value, false), End::Done, called, returned);
        let get =
            |value, called, returned| operation(Request::Read, End::Value(Some(value)), called, returned);
        let history = [put(1, 1, 2), put(2, 11, 12), get(2, 3, 20), get(1, 4, 21)];
        assert!(check_register(&history).is_ok(), "two connections");
        assert!(check_register(&history.map(on_connection)).is_err(), "one connection");
        let lists = [
            append(1, 1, 2),
            append(2, 11, 12),
            list(&[1, 2], 3, 20),
            list(&[1], 4, 21),
            list(&[1, 2], 30, 31),
        ];
        assert!(check_list(&lists).is_ok(), "two connections");
        assert!(check_list(&lists.map(on_connection)).is_err(), "one connection");
    }

    #[test]
    fn register_faults_are_found() {
        let put =
            |value, called, returned| operation(Request::Put(value, false), End::Done, called, returned);
        let get = |value, called, returned| operation(Request::Read, End::Value(value), called, returned);
        let delete = |called, returned| operation(Request::Delete, End::Done, called, returned);
        let is_fine = |operations: &[Operation]| check_register(operations).is_ok();
        assert!(is_fine(&[put(1, 1, 2), get(Some(1), 3, 4), delete(5, 6), get(None, 7, 8)]));
        assert!(is_fine(&[put(1, 1, 9), get(None, 2, 3), get(Some(1), 4, 5)]));
        assert!(!is_fine(&[put(1, 1, 2), get(None, 3, 4)]), "lost");
        assert!(!is_fine(&[put(1, 1, 2), put(2, 3, 4), get(Some(1), 5, 6)]), "stale");
        assert!(!is_fine(&[put(1, 1, 2), delete(3, 4), get(Some(1), 5, 6)]), "resurrected");
        assert!(!is_fine(&[put(1, 1, 2), delete(3, 4), delete(5, 6)]), "deleted twice");
        assert!(!is_fine(&[put(1, 1, 9), get(Some(1), 2, 3), get(None, 4, 5)]), "back and forth");
        assert!(!is_fine(&[get(Some(3), 1, 2)]), "from nowhere");
        let unknown = operation(Request::Put(2, false), End::Unknown, 3, 0);
        assert!(is_fine(&[put(1, 1, 2), unknown.clone(), get(Some(1), 5, 6), get(Some(2), 7, 8)]));
        assert!(!is_fine(&[put(1, 1, 2), unknown, get(Some(2), 5, 6), get(Some(1), 7, 8)]), "undone");
        let unread = operation(Request::Put(2, false), End::Unknown, 1, 0);
        assert!(is_fine(&[unread.clone(), delete(5, 6), get(None, 7, 8)]), "the deletion saw it");
        assert!(is_fine(&[unread, get(None, 7, 8)]), "it never happened");
        let clear = |called, returned| operation(Request::Clear, End::Done, called, returned);
        assert!(is_fine(&[put(1, 1, 2), clear(3, 4), clear(5, 6), get(None, 7, 8)]));
        assert!(!is_fine(&[put(1, 1, 2), clear(3, 4), get(Some(1), 5, 6)]), "survived a clear");
        assert!(!is_fine(&[clear(1, 2), put(1, 3, 4), get(None, 5, 6)]), "a clear overtook it");
        let expiring = operation(Request::Put(5, true), End::Done, 1, 2);
        assert!(is_fine(&[expiring.clone(), get(Some(5), 3, 4), get(None, 5, 6)]));
        assert!(!is_fine(&[expiring, get(None, 3, 4), get(Some(5), 5, 6)]), "returned after its expiry");
    }
}
