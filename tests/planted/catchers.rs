//! Which test notices which bug.

use esker_planted::Bug;
use esker_planted::Bug::*;

/// A bug, and the test that has to fail with it.
pub(crate) struct Catcher {
    pub(crate) bug: Bug,
    /// The test program, as [`Programs`](crate::programs::Programs) names it.
    pub(crate) program: &'static str,
    /// The test's whole name.
    pub(crate) test: &'static str,
}

const fn row(bug: Bug, program: &'static str, test: &'static str) -> Catcher {
    Catcher { bug, program, test }
}

#[rustfmt::skip]
pub(crate) const CATCHERS: &[Catcher] = &[
    row(FailedFlushForgotten, "esker_device", "fail_stop::tests::no_success_is_believed_beside_a_failure"),
    row(FailedFlushRepeated, "esker_device", "uring::operation::tests::a_failed_flush_is_not_asked_again"),
    row(PlainWriteBelieved, "esker_device", "file::tests::only_a_block_device_without_a_cache_keeps_plain_writes"),
    row(WriteCutWithinUnit, "esker_device", "pieces::tests::cuts_lie_on_multiples_of_what_a_command_holds"),
    row(ShortTransferIsWhole, "esker_device", "file::tests::short_transfers_go_on_from_the_last_whole_block"),
    row(BufferFreedWithFuture, "conformance", "a_small_ring_without_registered_memory"),
    row(SecondOpener, "esker_device", "private::tests::a_private_file_has_one_opener_and_no_other_readers"),

    row(UnsaltedChecksum, "format", "record::a_record_verifies_only_where_it_was_written"),
    row(ValueNotVerified, "format", "record::every_flipped_bit_of_a_record_is_noticed"),
    row(ShortDecompressionIsWhole, "format", "compression::a_length_that_is_not_the_values_is_damage"),
    row(StatedLengthBelieved, "esker_engine", "catalog::expansions::tests::a_length_that_its_place_does_not_allow_is_not_believed"),
    row(NoRoomForSummary, "format", "segment::has_room_is_exact"),
    row(TornFrameTaken, "format", "scan::a_torn_last_frame_is_dropped_whole_wherever_it_was_cut"),
    row(RotTakenForTornTail, "format", "rot::rot_of_a_value_that_was_durable_keeps_its_entry"),
    row(OlderVersionOnDamage, "format", "rot::rot_of_a_value_that_was_durable_keeps_its_entry"),
    row(DamagedHeadTaken, "format", "rot::rot_of_a_record_header_loses_no_more_than_the_rest_of_its_frame"),
    row(StrayTaken, "format", "frame::the_start_of_a_slot_is_free_taken_or_unknown"),

    row(AcknowledgedBeforeFlush, "esker_engine", "write::committer::tests::a_sync_put_is_seen_and_acknowledged_only_when_it_is_durable"),
    row(SeenBeforeDurable, "esker_engine", "write::committer::tests::a_sync_put_is_seen_and_acknowledged_only_when_it_is_durable"),
    row(SealedBeforeDurable, "esker_engine", "write::committer::tests::a_summary_is_written_when_its_frames_are_durable"),
    row(NearDeadlineIgnored, "esker_engine", "write::committer::tests::what_is_acknowledged_from_memory_is_durable_in_time"),
    row(HalfABatchSeen, "store", "update::half_of_a_batch_is_never_seen"),
    row(WatchNotTold, "esker_engine", "catalog::watches::tests::a_watch_is_told_of_puts_of_its_key_while_it_lasts"),
    row(ObserverNotTold, "esker_engine", "catalog::observers::tests::in_every_interleaving_a_put_is_read_or_told"),
    row(ReservationIgnored, "store", "update::plain_puts_do_not_come_in_between"),
    row(UnpublishedAnswered, "store", "hot_keys::who_writes_nothing_is_told_when_what_it_saw_is_visible"),
    row(UnpublishedNotForgotten, "store", "hot_keys::a_plain_put_in_between_is_seen"),
    row(SwapOvertaken, "esker_engine", "write::databases::tests::what_is_written_around_a_swap_lands_in_its_database"),
    row(LargeNumberedTooEarly, "store", "large::a_large_value_is_numbered_when_nobody_else_writes_its_key"),
    row(ReserveGivenAway, "store", "full::a_full_store_reads_and_deletes_and_takes_puts_again"),
    row(FullWhileSealing, "store", "full::segments_that_are_being_sealed_are_waited_for_before_a_put_is_refused"),
    row(FailureNotLatched, "esker_engine", "write::committer::tests::a_failed_operation_fails_the_waiters_and_everything_after"),
    row(SuperblocksAtOnce, "esker_engine", "segments::superblocks::tests::a_crash_in_an_update_leaves_one_generation_twice"),

    row(FreedBeforeCopiesDurable, "esker_engine", "background::relocate::tests::a_copy_that_cannot_be_written_leaves_the_victim_as_it_was"),
    row(FreedBeforeNewerDurable, "esker_engine", "background::relocate::tests::what_displaced_a_victims_records_is_durable_before_it_is_freed"),
    row(CopiesNotProven, "esker_engine", "background::relocate::tests::copies_are_proven_durable_before_their_victim_is_freed"),
    row(CopyOverNewer, "esker_engine", "background::relocate::tests::a_put_during_the_copy_wins"),
    row(LiveBytesMovedBeforeSwing, "esker_engine", "background::relocate::tests::a_delete_during_the_copy_wins"),
    row(TombstoneDroppedEarly, "store", "full::deleting_for_ever_leaves_nothing_behind"),
    row(OutputOpenedAtNewest, "esker_engine", "background::relocate::tests::an_output_is_older_than_a_delete_that_is_not_seen_yet"),
    row(EvictedBeforeMarked, "esker_engine", "background::relocate::tests::evict::what_is_evicted_is_found_until_its_slot_is_marked"),
    row(EndedBeforeLastFrame, "esker_engine", "write::committer::tests::a_lane_that_stops_ends_behind_its_last_frame"),
    row(LeftCopiesForgotten, "esker_engine", "background::relocate::tests::evict::what_is_evicted_leaves_a_tombstone_if_a_copy_of_it_was_left"),
    row(EvictedWithoutTombstone, "esker_engine", "background::relocate::tests::evict::what_is_evicted_leaves_a_tombstone_if_it_hides_an_older_version"),
    row(FreeMarkersSwapped, "esker_engine", "background::relocate::tests::the_end_of_a_slot_is_marked_free_before_its_start"),
    row(DiscardIntoMarker, "esker_engine", "segments::tier::tests::what_may_be_discarded_of_a_slot_leaves_its_markers"),

    row(StagingOfAnyOpening, "esker_engine", "segments::staging::tests::only_what_the_last_opening_wrote_since_the_machine_was_started_counts"),
    row(StagingOfAnyBoot, "esker_engine", "segments::staging::tests::only_what_the_last_opening_wrote_since_the_machine_was_started_counts"),
    row(TornBatchTaken, "esker_engine", "segments::staging::tests::only_the_very_end_of_staged_memory_may_be_cut_off"),
    row(StagedNewestAlone, "store", "openings::an_opening_that_loses_power_keeps_a_beginning_of_what_was_staged"),
    row(StagedOpenedAtNewest, "store", "openings::an_older_version_that_was_staged_does_not_come_back_when_a_tombstone_goes"),
    row(StagingVoidedEarly, "store", "openings::an_opening_that_is_killed_keeps_what_was_staged"),
    row(CoalescedFreedBeforeFlush, "store", "coalescing::what_supersedes_what_is_due_is_due"),
    row(CoalescedNotVoided, "store", "coalescing::a_kill_brings_nothing_back_that_was_written_out"),
    row(CoalescedSealedBeforeSwing, "esker_engine", "background::coalesce::tests::a_segment_of_copies_is_sealed_when_the_index_leads_to_it"),
    row(CoalescedSupersededDropped, "store", "coalescing::a_power_cut_loses_nothing_that_was_flushed"),
    row(StagingNotVoided, "store", "endings::a_kill_brings_nothing_back_that_was_deleted"),
    row(RecoveredNotFlushed, "store", "openings::what_is_seen_after_a_kill_survives_a_power_cut"),
    row(RecoveredBookedAsUsers, "store", "openings::records_of_the_staging_file_are_no_writes_of_users"),
    row(EpochNotRaised, "store", "openings::each_opening_has_an_epoch_of_its_own"),
    row(NumbersGivenOutAgain, "store", "openings::a_version_that_a_power_cut_took_is_not_given_out_again"),
    row(ClearNotWritten, "store", "endings::a_clear_that_is_dropped_happens_or_not"),
    row(ClearTakesAnother, "store", "databases::a_clear_of_one_database_lasts_and_takes_no_other"),
    row(SwapNotWritten, "store", "databases::a_swap_lasts_when_it_was_answered"),
    row(KeyspaceForgotten, "esker_engine", "open::recover::tests::keyspaces_are_recovered_one_beside_the_other"),
    row(ClockForgotten, "store", "expiry::a_clock_that_wanders_loses_nothing_and_brings_nothing_back"),
    row(CensusNotChecked, "store", "openings::a_segment_that_is_missing_from_a_store_that_was_closed_is_noticed"),

    row(ExpiryOffByOne, "store", "expiry::a_key_is_gone_at_the_very_moment_at_which_it_expires"),
    row(RangeOffByOne, "store", "large::parts_of_values_are_those_of_the_whole"),
    row(PlaceOutOfOrder, "esker_engine", "catalog::place::tests::every_interleaving_with_a_return_to_the_same_place_finds_the_key"),

    row(UnverifiedForgotten, "model", "random::six_bits"),
    row(ScanSkipsAtGrowth, "model", "concurrent::readers_never_miss"),
    row(SideFilterCleared, "model", "random::one_stored_hash"),

    row(CopiesNumberedAtOpening, "esker_engine", "background::coalesce::tests::copies_of_a_memtable_are_as_old_as_its_first_segment"),
    row(MemtableNumberedByLast, "esker_engine", "background::coalesce::tests::copies_of_a_memtable_are_as_old_as_its_first_segment"),
    row(CopiesHideNothing, "esker_engine", "background::coalesce::tests::copies_of_a_memtable_are_as_old_as_its_first_segment"),
    row(OldestOfMemtableCopied, "esker_engine", "background::coalesce::tests::of_a_key_written_again_meanwhile_only_the_newest_version_is_copied"),
    row(CoalescingPeriodIgnored, "esker_engine", "background::coalesce::tests::a_periodic_put_waits_no_longer_than_its_period"),
    row(CoalescedPastUnpublished, "esker_engine", "background::coalesce::tests::a_put_behind_an_unpublished_one_of_its_key_does_not_coalesce"),
    row(WholeSegmentsNotFlushed, "esker_engine", "background::coalesce::tests::whole_segment_is_flushed_before_its_summary"),

    row(OverwriteHidesNothing, "esker_engine", "background::relocate::tests::evict::what_is_evicted_leaves_a_tombstone_if_it_hides_an_older_version"),
    row(EvictedThoughReserved, "esker_engine", "background::relocate::tests::evict::a_key_that_a_writer_has_reserved_is_not_evicted"),
    row(AskedKeysEvicted, "store", "cache_mode::a_full_cache_takes_every_put_and_keeps_what_is_asked_for"),
    row(LastingKeysEvicted, "store", "cache_mode::keys_that_do_not_expire_are_kept_where_that_was_asked_for"),
    row(EvictionNotReported, "store", "cache_mode::an_eviction_is_told_to_who_comes_while_it_goes_on"),
    row(TombstoneOfSameNumberLoses, "esker_engine", "open::recover::tests::tombstone_of_same_number_hides_its_record"),

    row(SealingSegmentCopied, "store", "checkpoints::a_checkpoint_is_the_store_of_its_moment"),
    row(OutputsNotInCheckpoint, "store", "checkpoints::a_checkpoint_is_the_store_of_its_moment"),
    row(CheckpointNotFlushed, "store", "checkpoints::a_checkpoint_is_the_store_of_its_moment"),
    row(CheckpointSegmentsFreed, "store", "checkpoints::a_checkpoint_is_the_store_of_its_moment"),
    row(LostEndTooShort, "store", "checkpoints::a_checkpoint_is_the_store_of_its_moment"),
    row(RestoredStagingBelieved, "backup", "a_staging_file_of_later_is_not_believed"),
    row(OldSuperblockKept, "esker_backup", "restore::tests::half_a_restore_of_two_tiers_is_none_of_either"),
    row(RestoredOverOldSegments, "esker_backup", "restore::tests::nothing_of_what_was_on_a_device_comes_back"),
    row(UnreadSegmentShared, "unread", "what_is_not_whole_does_not_take_the_place_of_what_was"),

    row(UpdateReservedElsewhere, "esker_engine", "write::databases::tests::what_waits_for_a_swap_reserves_the_keys_of_its_new_keyspace"),
    row(ReservedElsewhere, "esker_engine", "write::databases::tests::what_waits_for_a_swap_reserves_the_keys_of_its_new_keyspace"),
    row(TurnElsewhere, "esker_engine", "write::databases::tests::what_waits_for_a_swap_reserves_the_keys_of_its_new_keyspace"),
    row(NewestNotCleared, "store", "databases::a_clear_lasts_for_the_newest_record"),
    row(SwapNotReported, "store", "observe::changes_are_told_with_their_keyspaces"),
    row(ClearNotReported, "store", "observe::every_change_is_told_with_its_cause"),
    row(SwapLeavesWatches, "esker_engine", "catalog::watches::tests::a_swap_counts_as_a_put_of_what_is_there_and_takes_the_other_watches_along"),
    row(WatchEndsWithFirst, "esker_engine", "catalog::watches::tests::a_key_is_watched_until_the_last_watch_ends"),

    row(NewerCopyCounts, "esker_engine", "open::recover::tests::copies_of_a_relocation_that_a_crash_ended_are_redundant"),
    row(AnyCopyIsRedundant, "esker_engine", "open::recover::tests::copies_of_a_relocation_that_a_crash_ended_are_redundant"),
    row(CopiesNotHeld, "esker_engine", "open::recover::tests::copies_of_a_relocation_that_a_crash_ended_are_redundant"),
    row(StagedCopyCounts, "esker_engine", "open::recover::tests::a_durable_copy_is_preferred_to_a_staged_one"),
    row(LoserLeftInIndex, "esker_engine", "open::recover::tests::the_newest_version_of_each_key_wins_wherever_it_lies"),
    row(HalfFreedLeft, "store", "unreadable::a_slot_that_was_half_freed_is_freed_by_the_next_opening"),
    row(FreedNumberForgotten, "store", "leftovers::the_number_of_a_freed_segment_is_not_given_out_again"),
    row(FollowerIgnored, "esker_engine", "open::recover::tests::a_hole_in_any_other_segment_is_a_loss"),
    row(StagedBatchCut, "esker_engine", "open::recover::tests::staged_batch_is_written_whole"),
    row(StagedBatchSplit, "store", "openings::an_opening_that_loses_power_keeps_a_beginning_of_what_was_staged"),
    row(OldestLoadedFirst, "esker_engine", "open::recover::tests::segments_are_loaded_newest_first"),

    row(WrittenCountsAsDurable, "esker_engine", "write::committer::tests::a_frame_states_no_more_than_what_is_durable"),
    row(FlushPutOff, "esker_engine", "write::committer::tests::a_flush_that_is_due_is_not_put_off_by_later_frames"),
    row(EarlierNotWaitedFor, "esker_engine", "write::committer::tests::reservation_sees_every_earlier_append"),
    row(DrawnNumberIgnored, "esker_engine", "write::committer::tests::drawn_number_is_published_with_its_reservation"),
    row(LateWritersWaitedFor, "esker_engine", "write::gathering::tests::writers_that_leave_are_forgotten"),
    row(RowAnsweredByFirst, "esker_engine", "write::committer::tests::rows::a_row_of_puts_is_acknowledged_when_all_of_it_is_durable"),
    row(RowGoesOnPastBlocked, "esker_engine", "write::committer::tests::rows::a_row_of_puts_waits_at_a_key_that_is_reserved"),
    row(LargeSeenFromMemory, "store", "large::a_large_value_is_acknowledged_when_it_is_written"),

    row(EqualBlockCompressed, "format", "compression::a_block_that_compresses_to_its_own_length_comes_back"),
    row(StoredBlockWhole, "format", "compression::part_of_stored_block_ends_where_asked"),
    row(ExpansionNotNoted, "store", "compression::what_reads_take_is_known_before_and_grows_by_four_at_most"),
    row(ExpansionNotLoaded, "store", "compression::what_reads_take_is_known_before_and_grows_by_four_at_most"),

    row(ZerosNotWaitedFor, "esker_engine", "write::committer::tests::zeros::no_frame_is_lost_to_zeros_written_ahead_of_it"),
    row(ZerosOverMarker, "esker_engine", "write::committer::tests::zeros::zeros_written_ahead_leave_the_marker_at_the_end_of_the_slot"),
    row(SummaryBesideZeros, "esker_engine", "write::committer::tests::zeros::no_summary_is_lost_to_zeros_written_ahead_of_it"),
    row(DiscardedSlotTaken, "esker_engine", "segments::allocation::tests::an_unknown_slot_that_is_being_discarded_cannot_be_taken"),
    row(DiscardedRoomForgotten, "esker_engine", "segments::allocation::tests::what_the_file_system_has_no_room_for_cannot_be_taken"),

    row(ScrubSkipsSuperblocks, "store", "scrub::a_pass_reads_superblocks_and_segments_with_known_damage"),
    row(MovedTakenForDamage, "esker_engine", "background::relocate::tests::a_segment_that_is_freed_while_it_is_verified_is_not_damaged"),
    row(KnownDamageNotVerified, "store", "scrub::a_pass_reads_superblocks_and_segments_with_known_damage"),

    row(ExpiryReportedAsDelete, "store", "observe::what_expires_is_told_once"),
    row(MergedWatermarkTooOld, "esker_engine", "catalog::clock::watermarks::tests::however_many_there_were_what_expired_stays_so"),
    row(WatermarkSavedTooSoon, "esker_engine", "catalog::clock::watermarks::tests::a_watermark_raised_during_a_write_is_still_to_be_written"),

    row(RemovalNotNoted, "store", "neighbours::a_key_is_deleted_beside_what_cannot_be_read"),
    row(FirstBesideRemoved, "model", "random::put_after_unverified_removal_is_not_first"),
    row(OwnVersionVerified, "esker_engine", "background::relocate::tests::deleted_key_stays_deleted_when_its_old_record_is_verified"),
    row(EstimateNotCorrected, "store", "live_bytes::live_bytes_are_those_of_the_records"),

    row(ExclusivePastShared, "esker_engine", "write::reserve::tests::plain_puts_share_their_turn"),
    row(SharedPastExclusive, "esker_engine", "write::reserve::tests::plain_puts_share_their_turn"),
    row(SharedPastAll, "esker_engine", "write::reserve::tests::who_wants_all_keys_waits_for_those_before_and_for_nobody_later"),

    row(PartNotVerified, "store", "large::parts_of_values_are_those_of_the_whole"),
    row(PartOfOtherKey, "store", "large::a_part_is_that_of_its_own_key"),
    row(ExpiredPartShown, "store", "large::a_part_of_an_expired_value_is_not_returned"),
    row(CachedByOffset, "esker_engine", "catalog::cache::tests::a_record_is_found_in_its_own_segment_alone"),
    row(LentMemoryKept, "esker_engine", "catalog::cache::tests::it_keeps_no_memory_that_is_lent"),
];
