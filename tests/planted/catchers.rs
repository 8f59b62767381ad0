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

    row(DamagedSegmentForgotten, "store", "damaged_tombstones::damaged_record_does_not_fill_the_store_with_tombstones"),
    row(DamagedSegmentKeepsAll, "store", "damaged_tombstones::damaged_record_does_not_fill_the_store_with_tombstones"),
    row(OldTombstonesKept, "store", "damaged_tombstones::damaged_segment_keeps_one_tombstone_a_key"),
    row(DamagedKeyNotCompared, "esker_engine", "catalog::lookup::tests::damaged_record_is_deleted_by_its_own_key_alone"),
    row(StalledReaderWaitedFor, "store", "stalled_readers::stopped_checkpoint_is_cancelled_when_its_room_is_wanted"),
    row(CancelledCheckpointRead, "store", "stalled_readers::stopped_checkpoint_is_cancelled_when_its_room_is_wanted"),
    row(RestWithoutEnd, "esker_engine", "background::pause::tests::rest_ends_although_nobody_ends_it"),
    row(BuriedStaysCurrent, "esker_engine", "background::relocate::tests::evict::evicted_record_with_a_tombstone_is_dropped_although_its_segment_stays"),
    row(MissingStagingOpened, "store", "staging_left::missing_staging_file_of_a_killed_process_is_refused"),
];
