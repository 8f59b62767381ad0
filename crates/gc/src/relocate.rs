//! Copying what is needed out of a victim.
//!
//! The order is the safety of it, and each step must happen before the next, or else a crash or a reader finds nothing:
//!
//! 1. the copies are written;
//! 2. they are durable;
//! 3. the index is swung from the old place to the new one, where the old one is still current;
//! 4. the victim is freed, durably;
//! 5. its slot is used again.
//!
//! [`copy_needed`] does 1; the caller does the rest.

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use esker_device::{Appender, Buffer, SegmentBuffer};
use esker_log::{
    ClosedFrame, Damage, Entry, EntryList, Kind, OpenSegment, Record, RecordView, Secret, SegmentName,
    SegmentShape, Stream,
};
use futures_util::poll;
use futures_util::stream::{self, StreamExt};

use crate::plan::{Span, plan_reads};

/// A segment to be emptied.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// Its number.
    pub segment: u64,
    /// Its slot.
    pub slot: u32,
    /// Its tier's shape.
    pub shape: SegmentShape,
    /// The flow of records that it belongs to.
    pub stream: Stream,
    /// Records that were written to it, needed or not.
    pub records: usize,
}

/// What is still needed of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// All of it.
    Record,
    /// That the key is gone: of an expired record, while an older version may be somewhere.
    Tombstone,
}

/// A record and the place that it was copied to.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// Which of the victims it was in.
    pub victim: usize,
    /// The record in the victim.
    pub entry: Entry,
    /// What the copy says.
    pub kind: Kind,
    /// Slot of the copy.
    pub slot: u32,
    /// Offset of the copy.
    pub offset: u32,
    /// Length of the copy, with its padding.
    pub bytes: u32,
}

/// Records that were copied and their new places, in about 31 bytes each.
#[derive(Debug, Default)]
pub struct Moves {
    /// Which victim, and the records of it that were copied.
    copied: Vec<(usize, EntryList)>,
    /// Where the copies are, in the order of the records.
    copies: Vec<Copied>,
}

/// Where a copy is, and what it says.
#[derive(Clone, Copy, Debug)]
struct Copied {
    slot: u32,
    offset: u32,
    bytes: u32,
    kind: Kind,
}

impl Moves {
    /// Number of copies.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Returns true if nothing was copied.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The copies, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = Move> {
        let records = self.copied.iter().flat_map(|(victim, list)| list.iter().map(|entry| (*victim, entry)));
        records.zip(&self.copies).map(|((victim, entry), copied)| {
            let Copied { slot, offset, bytes, kind } = *copied;
            Move { victim, entry, kind, slot, offset, bytes }
        })
    }

    fn push(&mut self, copy: Move) {
        let Move { victim, entry, kind, slot, offset, bytes } = copy;
        if self.copied.last().is_none_or(|(last, _)| *last != victim) {
            self.copied.push((victim, EntryList::new()));
        }
        let (_, list) = self.copied.last_mut().expect("it was added");
        list.push(entry);
        self.copies.push(Copied { slot, offset, bytes, kind });
    }
}

/// What was copied.
#[derive(Debug, Default)]
pub struct Relocated {
    /// Records and their new places.
    pub moves: Moves,
    /// Records that are needed but damaged, and which of the victims they are in: it must stay, so that reading them is an
    /// error.
    pub damaged: Vec<(usize, Entry, Damage)>,
    /// There was no room for more copies: some of what is needed of this victim, and all of those after it, is in the
    /// victims only.
    pub out_of_room_at: Option<usize>,
}

/// The open segments that copies go to, by flow.
pub type Outputs = BTreeMap<Stream, OpenSegment>;

/// What relocation asks of the store.
pub trait Host: Sync {
    /// Why the host could not do something.
    type Error: Send;

    /// The shape of the segments that copies go to.
    fn shape(&self) -> SegmentShape;

    /// What is still needed of a record.
    fn need(&self, victim: &Victim, entry: &Entry) -> Need;

    /// To which flow a record goes.
    fn place(&self, victim: &Victim, record: &RecordView<'_>) -> Stream;

    /// How many reads may be under way at a time. If it is more than one, a frame may be written meanwhile.
    fn reads_at_once(&self) -> usize;

    /// Bytes of the victim, from memory where they still are there; the second part says where in the buffer `offset` is.
    fn read(
        &self,
        victim: &Victim,
        offset: u32,
        bytes: u32,
    ) -> impl Future<Output = Result<(Buffer, usize), Self::Error>> + Send;

    /// Offset below which an output is durable.
    fn durable_through(&self, output: &OpenSegment) -> u32;

    /// An empty segment for copies, with memory for at least `bytes`; `None` if there is no room for one.
    fn open_output(
        &self,
        stream: Stream,
        bytes: usize,
    ) -> impl Future<Output = Result<Option<OpenSegment>, Self::Error>> + Send;

    /// Whether a segment could be opened if no output were open.
    fn could_open(&self) -> bool;

    /// Memory of at least so many bytes for frames of an output.
    fn memory(&self, bytes: usize) -> Result<Appender, Self::Error>;

    /// Writes a closed frame of an output, from the memory that it lies in.
    fn write_frame(
        &self,
        output: SegmentName,
        memory: Arc<SegmentBuffer>,
        frame: ClosedFrame,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Seals a full output.
    fn seal_output(&self, output: OpenSegment) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Why copying failed.
#[derive(Debug)]
pub struct Failed<E> {
    /// Which of the victims it was at.
    pub victim: usize,
    /// What went wrong.
    pub error: E,
    /// What was copied before. The index must not be swung to it: the frames of it may be open still.
    pub moves: Moves,
}

impl<E> Failed<E> {
    /// A failure before anything was copied, or of which the copies do not matter.
    pub fn at(victim: usize, error: E) -> Failed<E> {
        Failed { victim, error, moves: Moves::default() }
    }
}

/// Copies the needed records of victims to the outputs, which are opened and sealed as need be. Everything that is told to
/// have been copied is written when this returns `Ok`. Nothing is flushed.
///
/// Several victims at a time, because each time some frames are closed that are not full.
pub async fn copy_needed<H: Host>(
    host: &H,
    secret: &Secret,
    victims: &[(Victim, EntryList)],
    outputs: &mut Outputs,
    frame_bytes: u32,
) -> Result<Relocated, Failed<H::Error>> {
    let relocated = Relocated::default();
    let mut copier = Copier { host, outputs, frame_bytes, relocated, writing: None, spare: None };
    let copied = copier.copy_all(secret, victims).await;
    // Waited for whatever happened, or else the output could be sealed while one of its frames is not written; and if that
    // failed, nothing may be written behind it.
    copier.written().await.map_err(|error| Failed::at(0, error))?;
    match copied {
        Ok(()) => Ok(copier.relocated),
        Err(failed) => Err(Failed { moves: copier.relocated.moves, ..failed }),
    }
}

/// A frame on its way to the device.
type Writing<'a, E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send + 'a>>;

struct Copier<'a, H: Host> {
    host: &'a H,
    outputs: &'a mut Outputs,
    frame_bytes: u32,
    relocated: Relocated,
    /// The frame that is being written while the next is filled. One at a time, so that those of an output are written in
    /// their order.
    writing: Option<Writing<'a, H::Error>>,
    /// The memory that an output had before its present one.
    spare: Option<Appender>,
}

impl<H: Host> Copier<'_, H> {
    /// Copies what is needed of all of them, and closes the frames.
    async fn copy_all(
        &mut self,
        secret: &Secret,
        victims: &[(Victim, EntryList)],
    ) -> Result<(), Failed<H::Error>> {
        for (number, (victim, entries)) in victims.iter().enumerate() {
            let all = self.copy_victim(secret, number, victim, entries).await;
            if !all.map_err(|error| Failed::at(number, error))? {
                self.relocated.out_of_room_at = Some(number);
                break;
            }
        }
        let open: Vec<Stream> = self.outputs.keys().copied().collect();
        for stream in open {
            self.close(stream).await.map_err(|error| Failed::at(0, error))?;
        }
        Ok(())
    }

    /// Copies what is needed of one victim; false if there is no room for all of it.
    async fn copy_victim(
        &mut self,
        secret: &Secret,
        number: usize,
        victim: &Victim,
        entries: &EntryList,
    ) -> Result<bool, H::Error> {
        let host = self.host;
        let needed = entries.iter().filter(|e| host.need(victim, e) != Need::Nothing);
        let read = |span: Span| async move {
            let read = host.read(victim, span.offset, span.bytes).await;
            read.map(|(buffer, at)| (span, buffer, at))
        };
        // The next pieces are on their way while one is copied.
        let mut reads =
            std::pin::pin!(stream::iter(plan_reads(needed)).map(read).buffered(host.reads_at_once()));
        while let Some(read) = reads.next().await {
            let (span, buffer, at) = read?;
            for entry in span.entries {
                let identity = secret.identity(victim.segment, entry.offset);
                let from = at + (entry.offset - span.offset) as usize;
                let parsed = RecordView::parse(&buffer[from..from + entry.bytes as usize], &identity)
                    .and_then(|record| record.verify_value(secret).map(|()| record));
                let view = match parsed {
                    Ok(view) => view,
                    Err(damage) => {
                        self.relocated.damaged.push((number, entry, damage));
                        continue;
                    }
                };
                // Asked again: it may have been written over, or have expired, since the read was planned.
                let record = match host.need(victim, &entry) {
                    Need::Nothing => continue,
                    Need::Record => view.to_record(),
                    Need::Tombstone => Record::tombstone(view.keyspace, view.key, view.sequence),
                };
                if !self.copy(number, entry, &record, host.place(victim, &view)).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Copies one record; false if there is no room for it anywhere.
    async fn copy(
        &mut self,
        victim: usize,
        entry: Entry,
        record: &Record<'_>,
        wanted: Stream,
    ) -> Result<bool, H::Error> {
        let Some(stream) = self.make_room(record, wanted).await? else { return Ok(false) };
        let output = self.outputs.get_mut(&stream).expect("there is room in it");
        let padded = output.shape().padded(record.bytes());
        let offset = output.append(record, entry.key_hash);
        self.relocated.moves.push(Move {
            victim,
            entry,
            kind: record.kind,
            slot: output.name().slot,
            offset,
            bytes: padded as u32,
        });
        Ok(true)
    }

    /// Sees to it that an output has room for a record: that of the flow wanted, or, if no segment can be opened, any.
    async fn make_room(&mut self, record: &Record<'_>, wanted: Stream) -> Result<Option<Stream>, H::Error> {
        let padded = self.host.shape().padded(record.bytes());
        if self.outputs.contains_key(&wanted) && !self.fits(wanted, padded).await? {
            self.written().await?;
            let full = self.outputs.remove(&wanted).expect("it is open");
            self.host.seal_output(full).await?;
        }
        loop {
            if !self.outputs.contains_key(&wanted)
                && let Some(output) = self.host.open_output(wanted, self.memory_bytes(padded)).await?
            {
                self.outputs.insert(wanted, output);
            }
            let others: Vec<Stream> =
                self.outputs.keys().copied().filter(|&stream| stream != wanted).collect();
            for stream in std::iter::once(wanted).chain(others) {
                if self.outputs.contains_key(&stream) && self.fits(stream, padded).await? {
                    return Ok(Some(stream));
                }
            }
            // Those that are open are in the way of another one. The fullest makes way.
            let fullest = self.outputs.iter().min_by_key(|(_, output)| output.room_bytes());
            let Some(fullest) = fullest.map(|(&stream, _)| stream).filter(|_| self.host.could_open()) else {
                return Ok(None);
            };
            self.written().await?;
            let full = self.outputs.remove(&fullest).expect("it is open");
            self.host.seal_output(full).await?;
        }
    }

    /// Whether a record fits in an output, after its frame was closed and its memory renewed where need be.
    async fn fits(&mut self, stream: Stream, padded: u64) -> Result<bool, H::Error> {
        let output = self.output(stream);
        // Closed before it would run over into another write unit, which would be mostly padding.
        let is_full = output.open_frame_bytes_with(1, padded) > u64::from(self.frame_bytes);
        if is_full || !self.output(stream).memory_has_room(1, padded) {
            self.close(stream).await?;
        }
        if !self.output(stream).has_room(1, padded) {
            self.close(stream).await?;
            return Ok(false);
        }
        if !self.output(stream).memory_has_room(1, padded) {
            self.renew_memory(stream, self.memory_bytes(padded))?;
        }
        Ok(true)
    }

    /// Memory of at least so many bytes for the next frame of an output.
    fn renew_memory(&mut self, stream: Stream, bytes: usize) -> Result<(), H::Error> {
        // Memory that was made for one large record is not kept.
        let suits = |memory: &Appender| (bytes..=2 * bytes).contains(&memory.capacity());
        let output = self.outputs.get_mut(&stream).expect("it is open");
        if suits(output.memory()) && output.reuse_memory() {
            return Ok(());
        }
        // It is being written from.
        let spare = self.spare.take().filter(suits).and_then(|memory| memory.recycle().ok());
        let memory = match spare {
            Some(memory) => memory,
            None => self.host.memory(bytes)?,
        };
        self.spare = Some(output.replace_memory(memory));
        Ok(())
    }

    fn output(&self, stream: Stream) -> &OpenSegment {
        &self.outputs[&stream]
    }

    /// Closes the open frame of an output, if there is one, and begins to write it.
    async fn close(&mut self, stream: Stream) -> Result<(), H::Error> {
        let host = self.host;
        let output = self.outputs.get_mut(&stream).expect("it is open");
        let durable_through = host.durable_through(output);
        let Some(frame) = output.close_frame(durable_through) else { return Ok(()) };
        let (name, memory) = (output.name(), output.memory().buffer());
        self.written().await?;
        let mut write: Writing<'_, H::Error> = Box::pin(host.write_frame(name, memory, frame));
        match poll!(&mut write) {
            Poll::Ready(done) => done,
            Poll::Pending if host.reads_at_once() > 1 => {
                self.writing = Some(write);
                Ok(())
            }
            Poll::Pending => write.await,
        }
    }

    /// Waits until every frame that was closed is written.
    async fn written(&mut self) -> Result<(), H::Error> {
        match self.writing.take() {
            Some(write) => write.await,
            None => Ok(()),
        }
    }

    /// Memory that a frame takes which has a record of this length in it.
    fn memory_bytes(&self, padded: u64) -> usize {
        let unit = u64::from(self.host.shape().unit_bytes);
        (u64::from(self.frame_bytes).max(padded) + unit).next_multiple_of(unit) as usize
    }
}
