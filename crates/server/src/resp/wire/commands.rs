//! Commands as positions in the bytes that a client sent; nothing is copied until a command has to outlive them.

use bytes::Bytes;

/// Where an argument lies, from its command's first byte in the parser and from the batch's first byte in `Commands`.
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
    /// The most arguments that one command has, and the most bytes.
    longest: (usize, usize),
}

impl Commands {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Arguments of all commands together.
    pub(crate) fn arguments_len(&self) -> usize {
        self.arguments.len()
    }

    /// The most arguments that one of the commands has, and the most bytes that one has on the wire.
    pub(crate) fn longest(&self) -> (usize, usize) {
        self.longest
    }

    /// Memory that the positions take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.arguments.capacity() * size_of::<Span>() + self.ends.capacity() * size_of::<u32>()
    }

    pub(crate) fn clear(&mut self) {
        self.arguments.clear();
        self.ends.clear();
        self.longest = (0, 0);
    }

    /// The command at `index`, over the bytes that the batch was parsed from.
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
    /// Number of arguments with the verb.
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

    /// The command that begins at an argument of this one.
    pub(crate) fn from(self, index: usize) -> Command<'a> {
        Command { data: self.data, arguments: &self.arguments[index..] }
    }

    /// The arguments from `index` on.
    pub(crate) fn arguments(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let data = self.data;
        self.arguments[index.min(self.arguments.len())..]
            .iter()
            .map(move |span| &data[span.start as usize..span.end as usize])
    }

    /// An argument as a part of the batch's memory, which stays as long as it does. For what ends with the command.
    pub(crate) fn shared(&self, index: usize) -> Bytes {
        self.data.slice_ref(self.argument(index))
    }

    /// Bytes of all arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.arguments.iter().map(|span| (span.end - span.start) as usize).sum()
    }
}

/// A command that outlives its batch.
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

    /// A command of what is put for each of some values, at least one; the error where one cannot be put. Who puts sees to it
    /// that all of them are less than 4 GiB, as commands are.
    pub(crate) fn of_each<V, E>(
        values: impl IntoIterator<Item = V>,
        mut put: impl FnMut(V, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Copied, E> {
        let values = values.into_iter();
        // As most are, so that it does not grow.
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
