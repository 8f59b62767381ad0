//! Bugs that can be switched on, one at a time, to check that a test detects them. See
//! `docs/decisions/0019-planted-bugs.md`.
//!
//! At the place of each bug the code calls [`planted`]. Without the feature `planted` it is `false` at compile time,
//! and the branch is removed. Tests are built with the feature: then the variable `ESKER_PLANTED` names the bug of this
//! process. `tests/planted` runs the tests once for each bug.

#[macro_use]
mod switch;

pub use switch::planted;

bugs! {
    // Replicated stores.
    /// The term of a proposal is read when it is proposed, not when its keys were granted.
    TermReadAtPropose,
    /// The reservation of a proposal ends when it is proposed, not when it is applied.
    ReservationEndsAtPropose,
    /// A command of a committed entry is applied as several groups.
    CommandAppliedInHalves,
    /// A record of a replicated store expires by the clock of one node.
    ReplicatedClockBelieved,
    // The device.
    /// A failed flush is forgotten: the next one is believed.
    FailedFlushForgotten,
    /// A failed flush is retried, and the result of the retry is believed.
    FailedFlushRepeated,
    /// A write to a file without RWF_DSYNC counts as durable.
    PlainWriteBelieved,
    /// A long write is cut in the middle of a write unit.
    WriteCutWithinUnit,
    /// A unit that is longer than one command, such as the stripe of an array, is submitted in parts.
    StripeSubmittedInParts,
    /// A short transfer counts as complete.
    ShortTransferIsWhole,
    /// An I/O buffer is freed with its future while the device still writes from it.
    BufferFreedWithFuture,
    /// A device can be opened twice.
    SecondOpener,
    /// One of several devices that has no space for a slot which was taken stops the store that would go on without it.
    ShortDeviceStops,
    /// A device of another store is taken for one of several devices of a tier.
    ForeignDeviceTaken,
    /// A segment that a lane was filling on a device that failed is not written to another device.
    OpenSegmentNotMoved,
    /// A device that was drained and erased is still in the list of the tier's devices.
    RemovedDeviceListed,
    /// The other devices name a device that is being added before it has its superblock.
    AddedDeviceListedFirst,
    /// A device that an interrupted opening did not reach does not get the superblock of the others before the next epoch.
    LaggardLeftBehind,
    /// Writes of superblocks to some devices of a tier are still in flight when the update fails at another one.
    MemberWriteLeftInFlight,
    /// An opening goes on without a device that failed while the epoch was raised.
    EpochMissedByDevice,
    /// A slot that was never used is noted as free once more after an opening examined it, and is taken twice.
    UnusedSlotGivenBack,
    /// An opening takes the slots of several devices for those of one, which are used in order.
    DevicesTakenForOne,
    /// The index is swung to copies on a device that failed and was left out.
    CopiesOnLostDeviceBelieved,

    // The bytes.
    /// Checksums do not cover the store, segment and offset of a block.
    UnsaltedChecksum,
    /// The checksum of a value is not compared.
    ValueNotVerified,
    /// A compressed value that decompresses to less than its stated length is returned padded with zeros.
    ShortDecompressionIsWhole,
    /// The stated length of a compressed value is believed even if it contradicts the size class of its location.
    StatedLengthBelieved,
    /// A segment is filled completely, with no room for its summary.
    NoRoomForSummary,
    /// Intact records of a torn frame are accepted.
    TornFrameTaken,
    /// Rot in the middle of the log is mistaken for a torn tail.
    RotTakenForTornTail,
    /// A record with a damaged value is left out, so that an older version becomes visible.
    OlderVersionOnDamage,
    /// A damaged head of a record with a small value is believed if more records follow it in the frame.
    DamagedHeadTaken,
    /// A block that was written to the wrong slot is accepted as that slot's.
    StrayTaken,

    // Writing.
    /// A durable write is acknowledged before it is flushed.
    AcknowledgedBeforeFlush,
    /// A durable write is visible to others before it is durable.
    SeenBeforeDurable,
    /// A segment is sealed before its frames are durable.
    SealedBeforeDurable,
    /// A record with an earlier deadline does not wake the committer.
    NearDeadlineIgnored,
    /// A stopped lane ends before its last frame is written.
    EndedBeforeLastFrame,
    /// An evicted record is removed from the index before its slot is marked free.
    EvictedBeforeMarked,
    /// Eviction leaves no tombstone that hides an older version.
    EvictedWithoutTombstone,
    /// Eviction leaves no tombstone that hides a copy left by a failed relocation.
    LeftCopiesForgotten,
    /// Half of a batch is visible.
    HalfABatchSeen,
    /// A watcher of an absent key is not notified when the key is put.
    WatchNotTold,
    /// Watches are marked after their batch is visible.
    WatchesMarkedAfterBatch,
    /// Observers are not notified of a change.
    ObserverNotTold,
    /// A plain put overtakes writers that have its key reserved.
    ReservationIgnored,
    /// An update that writes nothing is acknowledged before the records that it read are visible.
    UnpublishedAnswered,
    /// An update reads an unpublished record after which a plain put was appended.
    UnpublishedNotForgotten,
    /// A put is written to the keyspace that its database had before a swap.
    SwapOvertaken,
    /// A large value gets its sequence number before its key is reserved.
    LargeNumberedTooEarly,
    /// Puts may use the space reserved for deletes and relocation.
    ReserveGivenAway,
    /// Puts are refused although segments that can be emptied are about to be sealed.
    FullWhileSealing,
    /// The failure of a committer does not stop the other writers.
    FailureNotLatched,
    /// All four copies of a superblock are written at once.
    SuperblocksAtOnce,

    // Relocation.
    /// A victim is freed before its copies are durable.
    FreedBeforeCopiesDurable,
    /// A victim is freed before the records that displaced its records are durable.
    FreedBeforeNewerDurable,
    /// A victim is freed without a proof on the device that its copies are durable.
    CopiesNotProven,
    /// The low-water mark of free slots does not count the slots that only relocation may take, so that collecting
    /// starts when writers are out of slots.
    MarkWithoutRelocation,
    /// A compaction leaves garbage while automatic collection is given up for lack of gain.
    CompactionGivesUp,
    /// If there is no room for the copies of the best segment, segments without a current record are not tried.
    DeadSegmentsNotTried,
    /// A segment is not collected if tombstones for its expired records take as much room as it gives back.
    TombstonesMustPay,
    /// A copy is published over a newer version.
    CopyOverNewer,
    /// Copies count as live even if a newer version was published first.
    LiveBytesMovedBeforeSwing,
    /// A tombstone is dropped as soon as a newer segment exists.
    TombstoneDroppedEarly,
    /// An output of relocation counts as opened at the newest sequence number that was assigned, not the newest
    /// published one.
    OutputOpenedAtNewest,
    /// A slot's start is marked free before its end.
    FreeMarkersSwapped,
    /// A discard is rounded up so that it covers a marker of the slot.
    DiscardIntoMarker,

    // Opening.
    /// A staging file of any opening is believed.
    StagingOfAnyOpening,
    /// A staging file of an earlier boot of the machine is believed.
    StagingOfAnyBoot,
    /// Half of a batch is accepted from the staging file.
    TornBatchTaken,
    /// Only the newest staged record of each key is written.
    StagedNewestAlone,
    /// The segment of staged records counts as opened after all of them, although it contains older versions.
    StagedOpenedAtNewest,
    /// The staging file is invalidated before its records are written.
    StagingVoidedEarly,
    /// The staging file is not invalidated when its segment is sealed.
    StagingNotVoided,
    /// Coalesced records are dropped before the records that superseded them are durable.
    CoalescedFreedBeforeFlush,
    /// Coalesced records still count as staged after they were written out.
    CoalescedNotVoided,
    /// A segment with copies of coalesced records may be collected before the index points to them.
    CoalescedSealedBeforeSwing,
    /// A coalescing record hides a record of the memtable being written out, before it is durable.
    CoalescedSupersededDropped,
    /// Records written by a killed process are shown before they are flushed.
    RecoveredNotFlushed,
    /// Records of the staging file are booked as user writes.
    RecoveredBookedAsUsers,
    /// An opening uses the epoch of the previous one.
    EpochNotRaised,
    /// Sequence numbers continue after the newest surviving record.
    NumbersGivenOutAgain,
    /// `clear` is not recorded durably.
    ClearNotWritten,
    /// A `clear` of one database durably records that all were cleared.
    ClearTakesAnother,
    /// A swap of two databases is not durable.
    SwapNotWritten,
    /// An opening assigns every record to the first keyspace.
    KeyspaceForgotten,
    /// Expiry watermarks are forgotten at an opening.
    ClockForgotten,
    /// A closed store is not checked against its census.
    CensusNotChecked,

    // Reading.
    /// A record is still shown at the moment at which it expires.
    ExpiryOffByOne,
    /// A range that excludes its start reads one byte too many.
    RangeOffByOne,
    /// The segment number is read before the pointer, so that a later segment is mistaken for the record's.
    PlaceOutOfOrder,

    // The index.
    /// A location that does not fit a slot is cut to the slot's bits.
    LocationTruncated,
    /// One of many unverified overwrites is forgotten.
    UnverifiedForgotten,
    /// A scan misses keys that the insertion of another key moves.
    ScanSkipsAtGrowth,
    /// A scan in log order does not note records that move from places it has still to visit to places it has passed.
    ScanMissesMoved,
    /// A scan in log order forgets the copies that became current behind its reader in the segment that it reads.
    ScanMissesBehindReader,
    /// A scan in log order returns a record of a freed segment if the index leads to the same place of the next segment in
    /// that slot.
    ScanTrustsFreedSlot,
    /// A scan in log order looks up the key of a displaced record although it may have returned a newer record of the key.
    ScanTrustsOverwrites,
    /// A scan in log order reports damage in a segment that was freed while it was being read.
    FreedSegmentTakenForDamage,
    /// The side table's filter is cleared when one of its keys is removed.
    SideFilterCleared,

    // Coalescing.
    /// Copies of a memtable are numbered by the opening of their segment, not by the oldest segment of the memtable.
    CopiesNumberedAtOpening,
    /// Copies of a memtable are numbered by its last segment, not by its first.
    MemtableNumberedByLast,
    /// A segment that takes copies claims that nothing in it hides an older version.
    CopiesHideNothing,
    /// The first version of a key in a memtable counts as the newest.
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
    /// Eviction drops recently read keys.
    AskedKeysEvicted,
    /// `EvictExpiring` drops keys without an expiry.
    LastingKeysEvicted,
    /// Observers are not notified of evicted keys whose names were not read.
    EvictionNotReported,
    /// Recovery prefers the copy of a record to the tombstone of the same number that dropped it.
    TombstoneOfSameNumberLoses,

    // Lost superblocks.
    /// The identity of a segment counts wherever it is found.
    IdentityBelievedAnywhere,

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
    /// A backup gives a segment the name of a file that an earlier backup needs.
    SharedNameReused,

    // Inspection.
    /// The next range of keys of a check begins where the halved range was to end.
    HalvedRangeSkipped,
    /// A range of keys after the first one does not know which records are damaged.
    DamageForgottenByRange,

    // Keyspaces.
    /// An update across a swap keeps the reservation of the keyspace that its database had before.
    UpdateReservedElsewhere,
    /// A conditional write across a swap keeps the reservation of the previous keyspace.
    ReservedElsewhere,
    /// A plain put across a swap keeps the turn that it took in the previous keyspace.
    TurnElsewhere,
    /// The clear mark that a `clear` writes to the superblock does not cover the newest record.
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
    /// The opening does not complete the marking of a slot that was marked free only at its end.
    HalfFreedLeft,
    /// Numbers of freed segments are given out again.
    FreedNumberForgotten,
    /// Recovery ignores that the segment after an unsealed one proves it durable.
    FollowerIgnored,
    /// Recovery writes only those records of a staged batch whose keys have their newest version staged.
    StagedBatchCut,
    /// Recovery distributes a staged batch over two frames.
    StagedBatchSplit,
    /// Summaries are loaded oldest first, so that many of them are read twice.
    OldestLoadedFirst,

    // Group commit and rows of puts.
    /// A frame states that the writes before it are durable, although they are not flushed.
    WrittenCountsAsDurable,
    /// Every frame without waiting writers postpones the flush that is due.
    FlushPutOff,
    /// A reservation waits for the last frame that was published, not for the newest that was appended.
    EarlierNotWaitedFor,
    /// Segments count as opened after a number that is drawn and not yet published.
    DrawnNumberIgnored,
    /// A frame waits for late writers without a time limit.
    LateWritersWaitedFor,
    /// A row of puts is acknowledged when its first frame is durable.
    RowAnsweredByFirst,
    /// A row of puts continues past a put that has to wait for its turn.
    RowGoesOnPastBlocked,
    /// A large value is visible before it is written.
    LargeSeenFromMemory,

    // Compression.
    /// A block that compresses to its own length is stored compressed, but read as uncompressed.
    EqualBlockCompressed,
    /// A part of an uncompressed block extends to the end of the block.
    StoredBlockWhole,
    /// An append does not record the expansion of a compressed record.
    ExpansionNotNoted,
    /// An opening does not load the expansion of compressed records.
    ExpansionNotLoaded,

    // Zeros ahead and discards.
    /// A frame is written while zeros are being written to its range.
    ZerosNotWaitedFor,
    /// Zeros are written over the marker at the end of the slot.
    ZerosOverMarker,
    /// A summary is written while zeros are being written to its range.
    SummaryBesideZeros,
    /// A slot can be taken while it is being discarded.
    DiscardedSlotTaken,
    /// Space returned to the file system by a discard is not counted.
    DiscardedRoomForgotten,

    // The scrub.
    /// The scrub does not read the superblocks.
    ScrubSkipsSuperblocks,
    /// A record that was relocated while it was verified counts as damaged.
    MovedTakenForDamage,
    /// Segments with known damage are not verified again.
    KnownDamageNotVerified,

    // Observers and watermarks.
    /// Observers are notified of an expiry as a delete.
    ExpiryReportedAsDelete,
    /// A watermark raised while the superblocks are being written counts as saved.
    WatermarkSavedTooSoon,

    // Unverified overwrites.
    /// A removed key does not count as one that displaced an unverified record.
    RemovalNotNoted,
    /// A key whose record cannot be read is deleted without a note that the record may be another key's.
    UnreadRemovalNotNoted,
    /// A committed delete of a key whose record cannot be read leaves the record in the index.
    UnreadDeleteKeepsRecord,
    /// A put counts as the first of its stored hash although removed keys left unverified overwrites.
    FirstBesideRemoved,
    /// A verification restores a key that displaced its own record and was removed.
    OwnVersionVerified,
    /// The estimated lengths of displaced records are not corrected when their segment is verified.
    EstimateNotCorrected,

    // Reservations.
    /// An exclusive reservation is granted while plain puts hold a shared one.
    ExclusivePastShared,
    /// A plain put proceeds while its key is reserved.
    SharedPastExclusive,
    /// A plain put proceeds while all keys are reserved.
    SharedPastAll,

    // Parts of values and the read cache.
    /// The checksum of a large value is not verified when a part of it is read.
    PartNotVerified,
    /// A part is read from the record of another key with the same stored hash.
    PartOfOtherKey,
    /// A part of an expired value is returned.
    ExpiredPartShown,
    /// The read cache identifies records by their offsets alone.
    CachedByOffset,
    /// The read cache keeps memory that belongs to the device's pool.
    LentMemoryKept,

    // Openings, clocks and numbers.
    /// `force_format` formats a tier that belongs to a store which was opened.
    OpenedTierFormatted,
    /// A clock that is far ahead at an opening is believed, although records of the store would expire by it.
    DoubtIgnored,
    /// A put that finds no index memory is refused before expired keys are removed.
    SweepNotAwaited,
    /// Time that no watermark can express counts as confirmed.
    WatermarksMerged,
    /// A record counts as expired permanently although no watermark covers it.
    RefusedWatermarkIgnored,
    /// A key that is reported expired while nothing can be written makes other keys expire.
    ReportedCoversOthers,
    /// The epoch is not raised before sequence numbers of the next one are assigned.
    NumbersNotReserved,

    // Damaged segments.
    /// A tombstone of a key of a damaged segment is dropped as if the segment were gone.
    DamagedSegmentForgotten,
    /// A damaged segment keeps every younger tombstone, of any key.
    DamagedSegmentKeepsAll,
    /// A segment with a damaged tombstone is returned to the collector while the tombstone is needed, so that it is found
    /// damaged again without end.
    DamagedTombstoneOverlooked,
    /// A copy that began while a segment was listed as damaged drops its tombstones after the segment is unlisted.
    UnlistedDamageMissed,
    /// A restore leaves free slots without markers.
    RestoredFreeSlotsUnmarked,
    /// A slot is cleared ahead without the turn, after it was taken and written.
    ClearedWithoutTurn,
    /// Writes that clear slots are still in flight when their repetition begins.
    FailedClearLeftInFlight,
    /// A device without space for slots that are cleared ahead stops the store.
    ClearingAheadStops,
    /// A slot that was taken is missing in the order of opening.
    SlotNotFiled,
    /// A segment stays in its bucket of live bytes when records of it die.
    LiveBucketNotMoved,
    /// A delete takes a damaged record for its key's without comparing the keys.
    DamagedKeyNotCompared,

    // Readers that stop.
    /// A checkpoint that reads nothing is waited for, however scarce slots are.
    StalledReaderWaitedFor,
    /// A cancelled checkpoint continues reading from slots that were reused.
    CancelledCheckpointRead,
    /// The reclaimer stays paused until the requester ends the pause, without a limit.
    RestWithoutEnd,

    // Evictions that end early.
    /// A record that left a tombstone stays current when its segment is not freed after all.
    BuriedStaysCurrent,

    // The staging file.
    /// A store opens as if nothing was acknowledged when the staging file of a killed process is missing.
    MissingStagingOpened,

    // The log of replicated groups.
    /// An append of the log of replicated groups is reported as durable when it is written, before it is flushed.
    LogNotDurable,
    /// A segment of the log of replicated groups is freed before the records that replace its own are durable.
    LogFreedEarly,
    /// A segment of the log that an opening found is freed before the records that replace its own are durable.
    FoundSegmentsFreedEarly,
    /// Appends of groups may take the last slot of the log, so that none is left for copies of the oldest segment's records.
    LogTakesLastSlot,
    /// An opening gives the log of replicated groups no slots beyond its own, so that a crash with all of them in use is final.
    LogStuckAfterCrash,
    /// A record that is missing between others of the log of replicated groups is not noticed.
    LogGapIgnored,
    /// A store with the log of a replica is opened without that log, as if it were no member of a cluster.
    LogMemberOpenedAlone,

    // A replica of a group.
    /// The floor of a group is noted before the applied entries are flushed.
    FloorBeforeFlush,
    /// The log of a group is purged above its floor.
    PurgeAboveFloor,
    /// A node that has just started votes, though it may have promised a leader not to.
    VoteWithoutGuard,
    /// A leader keeps its lease while it hands over the leadership.
    LeaseDuringTransfer,
    /// An entry that another leader's log discarded here is answered as certainly not done.
    DiscardedIsNotDone,
    /// A vote is answered before it is durable.
    VoteAfterReply,
    /// Void entries of a group's log are replaced before their removal is durable.
    TruncationNotDurable,
    /// A keyspace that holds a part of a snapshot is taken for the whole when the node starts.
    PartTakenForKeyspace,
    /// The number of starts of a node is not durable when another node hears of it.
    StartsNotDurable,
    /// The cluster forgets which nodes were removed.
    RemovedNodesForgotten,
    /// The program is an earlier one, which has the first level of the protocol between nodes alone.
    EarlierProgram,
    /// An upgrade is finalized without asking the nodes for their programs.
    FinalizedWithoutAsking,
    /// A node whose program lacks the level that the cluster uses is admitted.
    LowerLevelAdmitted,
    /// A copy of a group for a backup lacks the entries that were applied while its keys were read.
    CopyWithoutLog,
    /// A recovery empties groups of which the node has nothing, though it was not named.
    MissingGroupsEmptied,
    /// Values that were read are sent without a check that this node leads their groups.
    ReadsNotConfirmed,
    /// A value that was read before this node knew of another leader in between is confirmed when it leads again.
    LeaderBetweenIgnored,
    /// A value that was read from a replica is sent without a check how recent the replica is.
    StalenessNotChecked,
    /// A leader tells replicas its position without a check that it leads still.
    DeposedLeaderConfirms,
    /// A leader's position is taken for that of a replica which has not applied up to there.
    UnappliedConfirmed,
    /// A replica whose clock is behind that of the leader returns keys which the leader reported as expired.
    SlowReplicaBelieved,
    /// Damage that is found in a copy is not reported to the node.
    DamageNotReported,
    /// Damaged records are healed at a rate without a limit of bytes.
    HealedWithoutPace,
    /// A leader whose own record is damaged is asked to write it again.
    DamagedLeaderStays,
    /// A segment whose entries are unreadable is not reported to the groups that have records in it.
    LostSegmentNotReported,
    /// The keys of a copy that is damaged itself count as all keys of the group.
    DamagedListBelieved,
    /// The leadership of a group is handed to a node whose copy is damaged.
    DamagedNodeLeadsAgain,
    /// A leader with a damaged record begins to send a voter a snapshot.
    SnapshotOfDamageSent,
    /// A node whose store has stopped after a failed write keeps the leadership of its groups.
    FailedStoreLeads,
    /// A confirmation of a leader to a replica is believed after a snapshot or a restart of its member, too.
    OldMemberConfirmed,

    // The placement of groups.
    /// A node gives the space of a replica back as soon as the group belongs elsewhere, while it is a member still.
    SpaceGivenBackEarly,
    /// A replica that gave its space back votes as if it had never been a member.
    RetiredReplicaVotes,
    /// A node is drained although fewer nodes than copies are left.
    DrainBelowReplicas,
    /// The placement of a group is changed again while the change before is in progress.
    PlacementChangedMidway,

    // The wire between nodes.
    /// The checksum of a frame between nodes is not compared.
    WireChecksumIgnored,
    /// The length of a frame between nodes is believed.
    WireLengthIgnored,
    /// The listening node does not compare the proof of the connecting one.
    ConnectorProofIgnored,
    /// The connecting node does not compare the proof of the listening one.
    ListenerProofIgnored,
    /// Every challenge is the same, so that a recorded hello answers it.
    ChallengeRepeats,
    /// A node that was removed from the cluster is accepted.
    RemovedNodeAdmitted,
    /// A node is accepted with another store than the one with which it joined.
    OtherStoreAdmitted,
    /// A node is accepted with a lower number of starts than one that was seen.
    OldStartsAdmitted,
    /// A disk that was rolled back before its last start is accepted if it has started as often since.
    OtherStartAdmitted,
    /// A disk that lost records of its log, which it had reported as durable, is accepted.
    LostLogAdmitted,
    /// A replica that has all entries of a snapshot voids its log for it if it does not know that they are committed.
    HeldEntriesVoided,
    /// The first part of a transfer that another one has replaced begins the installation anew.
    LatePartTaken,
    /// A replica without room for a snapshot waits, and does not vote meanwhile.
    FullInstallWaits,
    /// A snapshot whose installation ends after the stop of its replica starts a member.
    MemberStartedAfterStop,
    /// Entries of all groups are appended at once, though the log has no room for all of them.
    EntriesNotAnnounced,
    /// A leader without a majority counts as the leader of its group in metrics and in its status.
    LostMajorityLeads,
    /// A write of a replicated store waits without a limit for keys of a write that is in doubt.
    DoubtWaitsForever,
    /// A second process of a node with a copy of its disk is accepted.
    CopiedDiskAdmitted,
    /// Parts of snapshots and heartbeats share a connection.
    PartsBeforeHeartbeats,
    /// An opening looks for superblocks in the first 64 KiB of a device, although its copies take more.
    SuperblocksBehindStartMissed,

    // Far copies of the superblock.
    /// A superblock of another store is believed if its generation is higher.
    ForeignSuperblockBelieved,
    /// The slot that the middle copy of the superblock overlaps is taken for a segment.
    SlotUnderCopyTaken,
    /// Formatting leaves far copies of the former store as they are.
    FarCopiesLeft,

    // Traces.
    /// Spans wait for the collector without a limit of their number.
    SpansWithoutLimit,
    /// The answer of a collector is read to its end, however long it is.
    CollectorAnswerWithoutLimit,
}
