//! Commands as positions in the bytes that a client sent; arguments are copied only if a command must outlive the
//! bytes.

use bytes::Bytes;

/// The position of an argument: relative to its command's first byte in the parser, and to the batch's first byte in
/// `Commands`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The commands of one batch, as positions in the batch's bytes.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    arguments: Vec<Span>,
    /// For each command, the index after its last argument.
    ends: Vec<u32>,
    /// The largest number of arguments of one command, and the largest number of bytes of one.
    longest: (usize, usize),
}

impl Commands {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of arguments of all commands together.
    pub(crate) fn arguments_len(&self) -> usize {
        self.arguments.len()
    }

    /// Returns the largest number of arguments of one command, and the largest number of bytes of one on the wire.
    pub(crate) fn longest(&self) -> (usize, usize) {
        self.longest
    }

    /// Returns the bytes of memory that the positions take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<Span>() + self.ends.capacity() * size_of::<u32>()
    }

    pub(crate) fn clear(&mut self) {
        self.arguments.clear();
        self.ends.clear();
        self.longest = (0, 0);
    }

    /// Returns the command at `index`. `data`: the bytes that the batch was parsed from.
    pub(crate) fn get<'a>(&'a self, index: usize, data: &'a Bytes) -> Command<'a> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Command { data, arguments: &self.arguments[start as usize..self.ends[index] as usize] }
    }

    pub(super) fn push(&mut self, base: usize, arguments: &[Span]) {
        let bytes = arguments.last().map_or(0, |last| last.end as usize);
        self.longest = (self.longest.0.max(arguments.len()), self.longest.1.max(bytes));
        let base = base as u32;
        let moved = arguments.iter().map(|s| Span { start: s.start + base, end: s.end + base });
        self.arguments.extend(moved);
        self.ends.push(self.arguments.len() as u32);
    }
}

/// One command: at least one argument, the first of which is the verb.
#[derive(Clone, Copy)]
pub(crate) struct Command<'a> {
    data: &'a Bytes,
    arguments: &'a [Span],
}

impl<'a> Command<'a> {
    /// Returns the number of arguments, including the verb.
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    pub(crate) fn argument(&self, index: usize) -> &'a [u8] {
        let span = self.arguments[index];
        &self.data[span.start as usize..span.end as usize]
    }

    pub(crate) fn verb(&self) -> &'a [u8] {
        self.argument(0)
    }

    /// Returns the command that begins at argument `index` of this one.
    pub(crate) fn from(self, index: usize) -> Command<'a> {
        Command { data: self.data, arguments: &self.arguments[index..] }
    }

    /// Returns the arguments from `index` on.
    pub(crate) fn arguments(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let data = self.data;
        self.arguments[index.min(self.arguments.len())..]
            .iter()
            .map(move |span| &data[span.start as usize..span.end as usize])
    }

    /// Returns an argument as a slice of the batch's memory, which it keeps alive. For uses that end with the
    /// command.
    pub(crate) fn shared(&self, index: usize) -> Bytes {
        self.data.slice_ref(self.argument(index))
    }

    /// Returns the bytes of all arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.arguments.iter().map(|span| (span.end - span.start) as usize).sum()
    }
}

/// A copy of a command, which outlives its batch.
#[derive(Debug)]
pub(crate) struct Copied {
    data: Bytes,
    arguments: Vec<Span>,
}

impl Copied {
    pub(crate) fn of(command: Command<'_>) -> Copied {
        let words = command.arguments(0);
        let mut data = Vec::with_capacity(command.bytes());
        let mut arguments = Vec::with_capacity(words.len());
        for argument in words {
            let start = data.len() as u32;
            data.extend_from_slice(argument);
            arguments.push(Span { start, end: data.len() as u32 });
        }
        Copied { data: Bytes::from(data), arguments }
    }

    /// Builds a command of at least one argument: `put` appends the argument for each value. Returns the first error
    /// of `put`. The caller ensures that all arguments together are less than 4 GiB, as in every command.
    pub(crate) fn of_each<V, E>(
        values: impl IntoIterator<Item = V>,
        mut put: impl FnMut(V, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Copied, E> {
        let values = values.into_iter();
        // The usual size of the arguments, so that the buffer rarely grows.
        let mut data = Vec::with_capacity(64);
        let mut arguments = Vec::with_capacity(values.size_hint().0);
        for value in values {
            let start = data.len() as u32;
            put(value, &mut data)?;
            arguments.push(Span { start, end: data.len() as u32 });
        }
        Ok(Copied { data: Bytes::from(data), arguments })
    }

    pub(crate) fn command(&self) -> Command<'_> {
        Command { data: &self.data, arguments: &self.arguments }
    }
}
