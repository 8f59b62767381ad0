//! Bugs that can be switched on, one at a time, to see whether a test notices. See `docs/decisions/0019-planted-bugs.md`.
//!
//! Where a bug would be, the code asks [`planted`]. Without the feature `planted` the answer is `false` at compile time, and
//! nothing of it is left. Tests are built with the feature: then the variable `ESKER_PLANTED` names the bug of this process.
//! `tests/planted` runs the tests once for each.

macro_rules! bugs {
    ($($(#[doc = $about:literal])+ $bug:ident,)*) => {
        /// A bug that can be planted, named after the hazard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[doc = $about])+ $bug,)* }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

            /// Its name, as the variable has it.
            pub const fn name(self) -> &'static str {
                match self { $(Bug::$bug => stringify!($bug),)* }
            }

            /// What goes wrong with it.
            pub const fn about(self) -> &'static str {
                match self { $(Bug::$bug => concat!($($about,)+).trim_ascii(),)* }
            }
        }
    };
}

bugs! {
    // The device.
    /// A failed flush is forgotten: the next one is believed.
    FailedFlushForgotten,
    /// A flush that failed is asked again, and the second answer is believed.
    FailedFlushRepeated,
    /// A write to a file without RWF_DSYNC counts as durable.
    PlainWriteBelieved,
    /// A long write is cut in the middle of a write unit.
    WriteCutWithinUnit,
    /// A short transfer counts as a whole one.
    ShortTransferIsWhole,
    /// An I/O buffer is given back with the future, while the device still writes from it.
    BufferFreedWithFuture,
    /// A device can be opened twice.
    SecondOpener,

    // The bytes.
    /// Checksums do not cover where a block lies and whose it is.
    UnsaltedChecksum,
    /// The checksum of a value is not compared.
    ValueNotVerified,
    /// A compressed value that decompresses to less than its record states is handed out with zeros behind it.
    ShortDecompressionIsWhole,
    /// The length that a compressed value states is believed whatever the place of its record says.
    StatedLengthBelieved,
    /// A segment is filled up to its end, with no room for its summary.
    NoRoomForSummary,
    /// The records of a torn frame that are whole are taken.
    TornFrameTaken,
    /// Rot in the middle of the log is taken for its torn end.
    RotTakenForTornTail,
    /// A record whose value is damaged is left out, so that an older version shows.
    OlderVersionOnDamage,
    /// A damaged head of a record with a small value is believed where the frame goes on behind it.
    DamagedHeadTaken,
    /// A block that was written to the wrong slot is taken for that slot's.
    StrayTaken,

    // Writing.
    /// A durable write is acknowledged before it is flushed.
    AcknowledgedBeforeFlush,
    /// A durable write is seen by others before it is durable.
    SeenBeforeDurable,
    /// A segment is sealed before its frames are durable.
    SealedBeforeDurable,
    /// A record with a nearer deadline does not wake the committer.
    NearDeadlineIgnored,
    /// A lane that has stopped ends before its last frame is written.
    EndedBeforeLastFrame,
    /// What is evicted is taken out of the index before its slot is marked free.
    EvictedBeforeMarked,
    /// What is evicted leaves nothing that hides an older version.
    EvictedWithoutTombstone,
    /// What is evicted leaves nothing that hides a copy of it that a relocation left when it failed.
    LeftCopiesForgotten,
    /// Half of a batch is seen.
    HalfABatchSeen,
    /// Who watches an absent key is not told that it was put.
    WatchNotTold,
    /// A change is not told to those who observe.
    ObserverNotTold,
    /// A plain put goes past those who have its key reserved.
    ReservationIgnored,
    /// An update that writes nothing is answered before what it was shown is visible.
    UnpublishedAnswered,
    /// An update is shown an unpublished record that a plain put was appended behind.
    UnpublishedNotForgotten,
    /// A put is written to the keyspace that its database had before a swap.
    SwapOvertaken,
    /// A large value gets its number before its key is reserved.
    LargeNumberedTooEarly,
    /// Puts may take the room that is kept for deletes and relocation.
    ReserveGivenAway,
    /// Puts are refused although segments are about to be sealed that room can be made of.
    FullWhileSealing,
    /// What fails a committer does not stop the other writers.
    FailureNotLatched,
    /// All four copies of a superblock are written at once.
    SuperblocksAtOnce,

    // Relocation.
    /// A victim is freed before its copies are durable.
    FreedBeforeCopiesDurable,
    /// A victim is freed before what displaced its records is durable.
    FreedBeforeNewerDurable,
    /// Nothing says on the device that copies are durable before their victim is freed.
    CopiesNotProven,
    /// A copy is published over a version that is newer.
    CopyOverNewer,
    /// Copies count as live even where a newer version was there first.
    LiveBytesMovedBeforeSwing,
    /// A tombstone is dropped as soon as there is a newer segment.
    TombstoneDroppedEarly,
    /// An output of relocation counts as opened at the newest number that was given out, not the newest that is published.
    OutputOpenedAtNewest,
    /// A slot's start is marked free before its end.
    FreeMarkersSwapped,
    /// A discard is rounded up into the markers of the slot.
    DiscardIntoMarker,

    // Opening.
    /// A staging file of any opening is believed.
    StagingOfAnyOpening,
    /// A staging file of an earlier start of the machine is believed.
    StagingOfAnyBoot,
    /// Half of a batch is taken from the staging file.
    TornBatchTaken,
    /// Of staged records only the newest of each key are written.
    StagedNewestAlone,
    /// The segment of staged records counts as opened after all of them, older versions though there are among them.
    StagedOpenedAtNewest,
    /// The staging file is void before its records are written.
    StagingVoidedEarly,
    /// The staging file keeps the records of a segment that was sealed.
    StagingNotVoided,
    /// Coalesced records are dropped before what superseded them is durable.
    CoalescedFreedBeforeFlush,
    /// What coalesced counts as staged after it was written out.
    CoalescedNotVoided,
    /// A segment of copies of coalesced records may be collected before the index leads to them.
    CoalescedSealedBeforeSwing,
    /// A record that waits in memory hides one of the memtable that is written out, before it is durable.
    CoalescedSupersededDropped,
    /// What a killed process wrote is shown before it is flushed.
    RecoveredNotFlushed,
    /// Records of the staging file are booked as written by users.
    RecoveredBookedAsUsers,
    /// An opening has the epoch of the one before.
    EpochNotRaised,
    /// Sequence numbers go on where the newest record that is left ends.
    NumbersGivenOutAgain,
    /// `clear` does not say durably that it happened.
    ClearNotWritten,
    /// A `clear` of one database says durably that all were cleared.
    ClearTakesAnother,
    /// A swap of two databases is not durable.
    SwapNotWritten,
    /// An opening takes every record for one of the first keyspace.
    KeyspaceForgotten,
    /// What expired is forgotten at an opening.
    ClockForgotten,
    /// A store that was closed is not compared with what it held.
    CensusNotChecked,

    // Reading.
    /// A record is still shown at the moment at which it expires.
    ExpiryOffByOne,
    /// A range that excludes its start reads one byte too many.
    RangeOffByOne,
    /// A segment is asked for before the pointer to it, so that a later one is taken for it.
    PlaceOutOfOrder,

    // The index.
    /// One of many unverified overwrites is forgotten.
    UnverifiedForgotten,
    /// A scan does not see keys that another key's growth moves.
    ScanSkipsAtGrowth,
    /// The side table's filter is cleared when one of its keys goes.
    SideFilterCleared,

    // Coalescing.
    /// Copies of a memtable are numbered by the opening of their segment, not by the oldest segment of the memtable.
    CopiesNumberedAtOpening,
    /// Copies of a memtable are numbered by its last segment, not by its first.
    MemtableNumberedByLast,
    /// A segment that takes copies claims that nothing in it hides an older version.
    CopiesHideNothing,
    /// Of the versions of a key in a memtable, the first counts as the newest.
    OldestOfMemtableCopied,
    /// A put with durability `Periodic` waits in memory as long as any other put.
    CoalescingPeriodIgnored,
    /// A put coalesces, and is visible at once, while an earlier put of its key is still unpublished.
    CoalescedPastUnpublished,
    /// A coalesced segment that is written whole is sealed before its frame is flushed.
    WholeSegmentsNotFlushed,

    // Eviction.
    /// A put that replaces a record does not mark its segment as one that hides older versions.
    OverwriteHidesNothing,
    /// Eviction drops a key that another writer has reserved.
    EvictedThoughReserved,
    /// Eviction drops keys that were read lately.
    AskedKeysEvicted,
    /// `EvictExpiring` drops keys without an expiry.
    LastingKeysEvicted,
    /// Observers are not notified of evicted keys whose names were not read.
    EvictionNotReported,
    /// Recovery prefers the copy of a record to the tombstone of the same number that dropped it.
    TombstoneOfSameNumberLoses,

    // Checkpoints, backups and restores.
    /// A checkpoint reads a sealed segment whose summary is still being written.
    SealingSegmentCopied,
    /// A checkpoint leaves out the open outputs of relocation.
    OutputsNotInCheckpoint,
    /// A checkpoint lists segments before their acknowledged records are flushed.
    CheckpointNotFlushed,
    /// The segments of a checkpoint are freed before they are read.
    CheckpointSegmentsFreed,
    /// The footer that replaces an unreadable one states the tail at the checkpoint, although the segment was sealed since.
    LostEndTooShort,
    /// A restored store believes the staging file that the original store left at the same place.
    RestoredStagingBelieved,
    /// A restore leaves the previous superblocks in place while it copies segments.
    OldSuperblockKept,
    /// A restore leaves the previous content of the device between the restored segments.
    RestoredOverOldSegments,
    /// A backup shares a segment of an earlier backup that could not be read completely.
    UnreadSegmentShared,

    // Keyspaces.
    /// An update across a swap keeps the reservation of the keyspace that its database had before.
    UpdateReservedElsewhere,
    /// A conditional write across a swap keeps the reservation of the previous keyspace.
    ReservedElsewhere,
    /// A plain put across a swap keeps the turn that it took in the previous keyspace.
    TurnElsewhere,
    /// A `clear` leaves out the newest record in what it writes to the superblock.
    NewestNotCleared,
    /// Observers are not notified of a swap.
    SwapNotReported,
    /// Observers are not notified of a `clear` of all databases.
    ClearNotReported,
    /// Watches of absent keys stay in their keyspace when their database gets another one.
    SwapLeavesWatches,
    /// The first watch of a key that ends takes the other watches of the key with it.
    WatchEndsWithFirst,

    // Recovery.
    /// Of two copies of a version, recovery uses the one in the newer segment.
    NewerCopyCounts,
    /// A segment counts as redundant if any of its entries is a copy.
    AnyCopyIsRedundant,
    /// A segment with copies that a crash left keeps the number at which it was opened.
    CopiesNotHeld,
    /// A staged copy of a version replaces the one that is durable.
    StagedCopyCounts,
    /// An older version stays in the index where the newest version is a tombstone.
    LoserLeftInIndex,
    /// A slot that was marked free at its end only is not marked again by the opening.
    HalfFreedLeft,
    /// Numbers of freed segments are given out again.
    FreedNumberForgotten,
    /// Recovery ignores that the segment after an unsealed one proves it durable.
    FollowerIgnored,
    /// Of a staged batch, recovery writes only the records of keys whose newest version is staged.
    StagedBatchCut,
    /// Recovery distributes a staged batch over two frames.
    StagedBatchSplit,
    /// Summaries are loaded oldest first, so that the ones read twice are many.
    OldestLoadedFirst,

    // Group commit and rows of puts.
    /// A frame states that what is written before it is durable, although it is not flushed.
    WrittenCountsAsDurable,
    /// Every frame without waiting writers postpones the flush that is due.
    FlushPutOff,
    /// A reservation waits for the last frame that was published, not for the newest that was appended.
    EarlierNotWaitedFor,
    /// Segments count as opened after a number that is drawn and not yet published.
    DrawnNumberIgnored,
    /// A frame waits for writers that are late without a limit.
    LateWritersWaitedFor,
    /// A row of puts is acknowledged when its first frame is durable.
    RowAnsweredByFirst,
    /// A row of puts continues behind a put that has to wait for its turn.
    RowGoesOnPastBlocked,
    /// A large value is visible before it is written.
    LargeSeenFromMemory,

    // Compression.
    /// A block that compresses to its own length is stored compressed, and read as if it were not.
    EqualBlockCompressed,
    /// A part of a block that is stored as it is reaches to the end of the block.
    StoredBlockWhole,
    /// An append does not note how much longer than stored a record is in memory.
    ExpansionNotNoted,
    /// An opening does not note how much longer than stored records are in memory.
    ExpansionNotLoaded,

    // Zeros ahead and discards.
    /// A frame is written while zeros are being written to its place.
    ZerosNotWaitedFor,
    /// Zeros are written over the marker at the end of the slot.
    ZerosOverMarker,
    /// A summary is written while zeros are being written to its place.
    SummaryBesideZeros,
    /// A slot can be taken while it is being discarded.
    DiscardedSlotTaken,
    /// The room that a discard gives back to the file system is not counted.
    DiscardedRoomForgotten,

    // The scrub.
    /// The scrub does not read the superblocks.
    ScrubSkipsSuperblocks,
    /// A record that was moved while it was verified counts as damaged.
    MovedTakenForDamage,
    /// Segments with known damage are not verified again.
    KnownDamageNotVerified,

    // Observers and watermarks.
    /// Observers are notified of an expiry as a delete.
    ExpiryReportedAsDelete,
    /// A watermark raised while the superblocks are being written counts as saved.
    WatermarkSavedTooSoon,

    // Unverified overwrites.
    /// A removed key does not count as one that displaced what is still unverified.
    RemovalNotNoted,
    /// A put counts as the first of its stored hash although removed keys left unverified overwrites.
    FirstBesideRemoved,
    /// A verification brings a key back that displaced its own record and was removed.
    OwnVersionVerified,
    /// The estimated lengths of displaced records are not corrected when their segment is verified.
    EstimateNotCorrected,

    // Reservations.
    /// An exclusive reservation is granted while plain puts have their turn.
    ExclusivePastShared,
    /// A plain put has its turn while its key is reserved.
    SharedPastExclusive,
    /// A plain put has its turn while all keys are reserved.
    SharedPastAll,

    // Parts of values and the read cache.
    /// The checksum of a large value is not compared where a part of it is read.
    PartNotVerified,
    /// A part is read from the record of another key with the same stored hash.
    PartOfOtherKey,
    /// A part of an expired value is returned.
    ExpiredPartShown,
    /// The read cache identifies records by their offsets alone.
    CachedByOffset,
    /// The read cache keeps memory that the device lent.
    LentMemoryKept,

    // Openings, clocks and numbers.
    /// `force_format` formats a tier that belongs to a store which was opened.
    OpenedTierFormatted,
    /// A limit that is asked for one tier takes the slots of the other.
    LimitTakesAll,
    /// A clock that is far ahead at an opening is believed, although records of the store expire by it.
    DoubtIgnored,
    /// A put for which the index has no memory is refused before expired keys are taken out.
    SweepNotAwaited,
    /// Time that no watermark can say counts as confirmed.
    WatermarksMerged,
    /// A key that is reported expired while nothing can be written makes other keys expire.
    ReportedCoversOthers,
    /// The epoch is not raised before the numbers of the next one are given out.
    NumbersNotReserved,

    // Damaged segments.
    /// A tombstone of a key of a damaged segment is dropped as if the segment were gone.
    DamagedSegmentForgotten,
    /// A damaged segment keeps every younger tombstone, of whichever key.
    DamagedSegmentKeepsAll,
    /// A delete takes a damaged record for its own without asking whose it is.
    DamagedKeyNotCompared,

    // Readers that stop.
    /// A checkpoint that reads nothing is waited for, however short slots run.
    StalledReaderWaitedFor,
    /// A cancelled checkpoint reads on, from slots that others have by now.
    CancelledCheckpointRead,
    /// The reclaimer rests for as long as the one who asked for it does not end it.
    RestWithoutEnd,

    // Evictions that end early.
    /// A record that left a tombstone stays current when its segment is not freed after all.
    BuriedStaysCurrent,

    // The staging file.
    /// A store opens as if nothing was acknowledged when the staging file of a killed process is missing.
    MissingStagingOpened,
}

/// Whether this process has the bug.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn planted(_bug: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use self::chosen::planted;

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::OnceLock;

    use super::Bug;

    static CHOSEN: OnceLock<Option<Bug>> = OnceLock::new();

    /// Whether this process has the bug.
    ///
    /// # Panics
    /// If `ESKER_PLANTED` names none.
    pub fn planted(bug: Bug) -> bool {
        *CHOSEN.get_or_init(choose) == Some(bug)
    }

    fn choose() -> Option<Bug> {
        let name = std::env::var("ESKER_PLANTED").ok().filter(|name| !name.is_empty())?;
        let bug = Bug::ALL.iter().find(|bug| bug.name() == name);
        let bug =
            *bug.unwrap_or_else(|| panic!("ESKER_PLANTED names no bug: {name}; see crates/seeded-bugs"));
        eprintln!("PLANTED: {}", bug.about());
        Some(bug)
    }
}
