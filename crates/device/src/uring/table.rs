//! Operations in the kernel, by the number of their completion.

/// A table with a fixed number of entries.
pub(super) struct Table<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    pub(super) fn new(places: u32) -> Table<T> {
        Table { places: (0..places).map(|_| None).collect(), free: (0..places as usize).rev().collect() }
    }

    /// Reserves an entry, to be filled by [`put`](Self::put).
    pub(super) fn reserve(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub(super) fn put(&mut self, number: usize, value: T) {
        self.places[number] = Some(value);
    }

    /// Takes a completed operation out. Its entry remains reserved.
    pub(super) fn take(&mut self, number: usize) -> T {
        self.places[number].take().expect("a completion belongs to an operation in flight")
    }

    pub(super) fn release(&mut self, number: usize) {
        self.free.push(number);
    }

    /// True if an entry is free.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Returns all operations, once no further completion will be seen.
    pub(super) fn give_up(self) -> Vec<T> {
        self.places.into_iter().flatten().collect()
    }
}
