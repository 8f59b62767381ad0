//! What the kernel has, by the number under which its completion comes.

/// A table with a fixed number of places.
pub(super) struct Table<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    pub(super) fn new(places: u32) -> Table<T> {
        Table { places: (0..places).map(|_| None).collect(), free: (0..places as usize).rev().collect() }
    }

    /// A place for one that is to be [put](Self::put) there.
    pub(super) fn reserve(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub(super) fn put(&mut self, number: usize, value: T) {
        self.places[number] = Some(value);
    }

    /// Takes out what completed. Its place remains reserved.
    pub(super) fn take(&mut self, number: usize) -> T {
        self.places[number].take().expect("a completion belongs to an operation in flight")
    }

    pub(super) fn release(&mut self, number: usize) {
        self.free.push(number);
    }

    /// Whether a place is free.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// Everything that is in it, when no completion will be seen any more.
    pub(super) fn give_up(self) -> Vec<T> {
        self.places.into_iter().flatten().collect()
    }
}
