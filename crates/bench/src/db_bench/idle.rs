//! Flags of db_bench that are accepted without effect, and why.

use super::known::INT;
use super::known::Kind::{self, Bool, Float, Text};

const TREE: &str = "there is no LSM tree, so nothing to shape or compact level by level";
const BLOCKS: &str =
    "there are no blocks, filters or block indexes; the index is in memory, and a get is one read";
const COMPRESSION: &str = "values are stored as they are";
const MEMTABLE: &str = "there is no memtable; writes gather in the open segment, in --memory";
const BLOBS: &str = "every value lies in the log already";
const FILES: &str = "the store has one file or device per tier";
const ORDER: &str = "keys have no order";
const OTHER: &str = "it is about a feature of RocksDB that has no counterpart";
const THREADS: &str = "background work has two threads of its own";
const ALWAYS: &str = "checksums are always verified";
const TIMES: &str = "THE WORKLOAD IS NOT CHANGED BY IT: it is about filluniquerandom or timeseries with keys that are deleted";
const MERGES: &str = "there are no merges";

/// A reason, a kind of value, and the names of the flags.
pub(super) const IDLE: &[(&str, Kind, &str)] = &[
    (ORDER, Float, "iter_theta iter_k iter_sigma"),
    (
        ORDER,
        INT,
        "mix_max_scan_len seek_nexts max_scan_distance prefix_size keys_per_prefix \
         iter_refresh_interval_us range_tombstone_width writes_per_range_tombstone \
         max_num_range_tombstones writes_before_delete_range",
    ),
    (COMPRESSION, Text, "wal_compression compression_type"),
    (
        OTHER,
        INT,
        "rate_limiter_bytes_per_sec rate_limiter_refill_period_us numdistinct merge_keys \
         num_column_families num_hot_column_families user_timestamp_size key_id_range \
         num_deletion_threads stats_level perf_level thread_status_per_interval \
         rate_limit_delay_max_milliseconds write_thread_max_yield_usec write_thread_slow_yield_usec \
         access_hint_on_compaction_start transaction_sets transaction_sleep transaction_lock_timeout \
         secondary_update_interval stats_dump_period_sec stats_persist_period_sec \
         stats_history_buffer_size trace_replay_threads block_cache_trace_sampling_frequency \
         block_cache_trace_max_trace_file_size_in_bytes simulate_hybrid_hdd_multipliers \
         preserve_internal_time_seconds preclude_last_level_data_seconds backup_rate_limit \
         restore_rate_limit slow_usecs tab_completion_columns",
    ),
    (
        OTHER,
        Bool,
        "rate_limiter_auto_tuned rate_limit_bg_reads rate_limit_user_ops rate_limit_auto_wal_flush \
         read_with_latest_user_timestamp show_table_properties enable_io_prio enable_cpu_prio \
         identity_as_first_hash dump_malloc_stats enable_pipelined_write unordered_write \
         enable_write_thread_adaptive_yield allow_data_in_errors use_adaptive_mutex transaction_db \
         transaction_set_snapshot optimistic_transaction_db use_secondary_db use_single_deletes \
         use_stderr_info_logger report_bg_io_stats report_open_timing report_thread_idle enable_numa \
         persist_stats_to_disk simulate_hdd avoid_flush_during_shutdown build_info print_malloc_stats",
    ),
    (
        OTHER,
        Text,
        "column_family_distribution statistics_string env_uri fs_uri hdfs options_file merge_operator \
         secondary_path trace_file block_cache_trace_file simulate_hybrid_fs_file backup_dir restore_dir \
         tab_completion_word",
    ),
    (
        ORDER,
        Bool,
        "reverse_iterator auto_prefix_mode use_uint64_comparator total_order_seek prefix_same_as_start \
         seek_missing_prefix use_tailing_iterator expand_range_tombstones",
    ),
    (
        ALWAYS,
        Bool,
        "verify_checksum paranoid_checks force_consistency_checks check_flush_compaction_key_order \
         track_and_verify_wals_in_manifest file_checksum",
    ),
    (
        MEMTABLE,
        Bool,
        "allow_concurrent_memtable_write inplace_update_support cost_write_buffer_to_cache \
         memtable_use_huge_page memtable_whole_key_filtering avoid_flush_during_recovery",
    ),
    (
        MEMTABLE,
        INT,
        "inplace_update_num_locks db_write_buffer_size write_buffer_size max_write_buffer_number \
         min_write_buffer_number_to_merge max_write_buffer_number_to_maintain \
         max_write_buffer_size_to_maintain arena_block_size memtable_insert_with_hint_prefix_size \
         hash_bucket_count skip_list_lookahead bloom_locality",
    ),
    (MEMTABLE, Text, "memtablerep"),
    (MEMTABLE, Float, "memtable_bloom_size_ratio experimental_mempurge_threshold"),
    (
        ALWAYS,
        INT,
        "memtable_protection_bytes_per_key block_protection_bytes_per_key \
         write_batch_protection_bytes_per_key checksum_type",
    ),
    (
        THREADS,
        INT,
        "max_background_jobs max_background_compactions max_background_flushes \
         base_background_compactions num_bottom_pri_threads num_high_pri_threads num_low_pri_threads",
    ),
    (
        TREE,
        INT,
        "subcompactions compaction_style compaction_pri compaction_readahead_size log_readahead_size \
         num_levels level0_file_num_compaction_trigger level0_slowdown_writes_trigger \
         level0_stop_writes_trigger soft_pending_compaction_bytes_limit \
         hard_pending_compaction_bytes_limit delayed_write_rate target_file_size_base \
         target_file_size_multiplier max_bytes_for_level_base max_compaction_bytes \
         periodic_compaction_seconds ttl_seconds universal_size_ratio universal_min_merge_width \
         universal_max_merge_width universal_max_size_amplification_percent \
         universal_compression_size_percent universal_stop_style fifo_compaction_max_table_files_size_mb \
         fifo_compaction_ttl fifo_age_for_warm disable_seek_compaction",
    ),
    (
        TREE,
        Bool,
        "level_compaction_dynamic_level_bytes disable_auto_compactions universal_allow_trivial_move \
         universal_incremental fifo_compaction_allow_compaction new_table_reader_for_compaction_inputs \
         use_keep_filter",
    ),
    (TREE, Float, "max_bytes_for_level_multiplier"),
    (TREE, Text, "max_bytes_for_level_multiplier_additional compaction_fadvice"),
    (
        FILES,
        INT,
        "file_opening_threads open_files delete_obsolete_files_period_micros table_cache_numshardbits",
    ),
    (
        COMPRESSION,
        INT,
        "compression_level compression_max_dict_bytes compression_zstd_max_train_bytes \
         compression_parallel_threads compression_max_dict_buffer_bytes min_level_to_compress \
         sample_for_compression",
    ),
    (COMPRESSION, Float, "compression_ratio"),
    (COMPRESSION, Bool, "compression_use_zstd_dict_trainer charge_compression_dictionary_building_buffer"),
    (
        BLOCKS,
        Float,
        "bloom_bits data_block_hash_table_util_ratio cache_high_pri_pool_ratio cache_low_pri_pool_ratio \
         cuckoo_hash_ratio compressed_secondary_cache_high_pri_pool_ratio \
         compressed_secondary_cache_low_pri_pool_ratio",
    ),
    (
        BLOCKS,
        Bool,
        "use_ribbon_filter whole_key_filtering use_block_based_filter optimize_filters_for_hits \
         optimize_filters_for_memory partition_index partition_index_and_filters index_with_first_key \
         block_align use_data_block_hash_index enable_index_compression \
         pin_l0_filter_and_index_blocks_in_cache pin_top_level_index_and_filter \
         cache_index_and_filter_blocks use_clock_cache use_compressed_secondary_cache \
         use_cache_memkind_kmem_allocator charge_filter_construction charge_table_reader \
         charge_file_metadata use_plain_table use_cuckoo_table use_hash_search read_cache_direct_read \
         read_cache_direct_write use_cache_jemalloc_no_dump_allocator",
    ),
    (
        BLOCKS,
        INT,
        "index_shortening_mode metadata_block_size block_size block_restart_interval \
         index_block_restart_interval format_version read_amp_bytes_per_bit unpartitioned_pinning \
         partitioned_pinning cache_numshardbits simcache_size compressed_cache_size \
         prepopulate_block_cache compressed_secondary_cache_compress_format_version \
         compressed_secondary_cache_numshardbits compressed_secondary_cache_size read_cache_size",
    ),
    (
        BLOCKS,
        Text,
        "cache_type cache_uri secondary_cache_uri compressed_secondary_cache_compression_type \
         read_cache_path",
    ),
    (
        BLOBS,
        Bool,
        "charge_blob_cache enable_blob_files enable_blob_garbage_collection use_blob_db use_blob_cache \
         use_shared_block_and_blob_cache blob_db_enable_gc blob_db_is_fifo",
    ),
    (
        BLOBS,
        INT,
        "min_blob_size blob_file_size blob_compaction_readahead_size blob_file_starting_level \
         blob_cache_size blob_cache_numshardbits prepopulate_blob_cache blob_db_max_db_size \
         blob_db_max_ttl_range blob_db_ttl_range_secs blob_db_min_blob_size blob_db_bytes_per_sync \
         blob_db_file_size",
    ),
    (BLOBS, Text, "blob_compression_type blob_db_compression_type"),
    (
        BLOBS,
        Float,
        "blob_garbage_collection_age_cutoff blob_garbage_collection_force_threshold blob_db_gc_cutoff",
    ),
    (OTHER, Float, "trace_replay_fast_forward"),
    (FILES, Bool, "skip_stats_update_on_db_open"),
    (
        TIMES,
        INT,
        "disposable_entries_batch_size disposable_entries_delete_delay disposable_entries_value_size \
         persistent_entries_batch_size persistent_entries_value_size time_range",
    ),
    (TIMES, Text, "expire_style"),
    (MERGES, INT, "max_successive_merges mergereadpercent"),
    ("--reads says how many operations are made, as in newer versions", INT, "mix_accesses"),
    (
        "the rate follows the sine at every operation",
        INT,
        "sine_mix_rate_interval_milliseconds sine_write_rate_interval_milliseconds",
    ),
    ("the rate has no noise", Float, "sine_mix_rate_noise"),
    ("give --sine_mix_rate", Bool, "sine_write_rate"),
    ("there is no separate log of writes", Text, "wal_dir"),
    (
        "there is no separate log of writes",
        INT,
        "wal_size_limit_MB wal_ttl_seconds wal_bytes_per_sync max_total_wal_size",
    ),
    ("there is no separate log of writes", Bool, "manual_wal_flush"),
    ("writes bypass the page cache", INT, "bytes_per_sync"),
    ("there is one store", INT, "num_multi_db num_dbs"),
    ("keys are drawn below --num", Bool, "use_existing_keys"),
    ("`stats` in --benchmarks prints the store's numbers", INT, "stats_per_interval"),
    ("the reads of a batch are always made together", Bool, "multiread_batched optimize_multiget_for_io"),
    ("keys of a batch are drawn one by one", INT, "multiread_stride"),
    ("values are always checked", Bool, "multiread_check"),
    ("reads are asynchronous; --queue_depth says how many", Bool, "async_io"),
    (
        "a get is one read",
        INT,
        "readahead_size initial_auto_readahead_size max_auto_readahead_size \
         num_file_reads_for_auto_readahead",
    ),
    ("a get is one read", Bool, "adaptive_readahead"),
    ("the read cache holds records already; --memory says how much", INT, "row_cache_size"),
    ("reads are direct", Bool, "mmap_read advise_random_on_open"),
    ("writes are direct", Bool, "mmap_write"),
    ("reads are direct", INT, "random_access_max_buffer_size"),
    ("writes are direct", INT, "writable_file_max_buffer_size"),
    ("writes are made durable as the device needs it", Bool, "use_fsync"),
    ("give --disable_wal or --durability", Bool, "disable_data_sync"),
    ("give --batch_size", INT, "keys_per_multiget"),
    ("the line of a benchmark that is repeated has rate and spread", Bool, "confidence_interval_only"),
    ("--backend says how devices are asked", Bool, "io_uring_enabled"),
    (
        "THE WORKLOAD IS NOT CHANGED BY IT: filluniquerandom writes every key once, and no key again",
        Float,
        "overwrite_probability",
    ),
    (
        "THE WORKLOAD IS NOT CHANGED BY IT: filluniquerandom writes every key once, and no key again",
        INT,
        "overwrite_window_size",
    ),
    ("a bar is shown on a terminal, and --stats_interval_seconds prints lines", Bool, "progress_reports"),
    (
        "THE WORKLOAD IS NOT CHANGED BY IT: keys are drawn uniformly; ycsbc draws popular ones more often",
        Float,
        "read_random_exp_range",
    ),
    (
        "THE WORKLOAD IS NOT CHANGED BY IT: the store is opened for writing, and benchmarks that write do",
        Bool,
        "readonly",
    ),
    ("--json counts what the devices were asked", Bool, "report_file_operations"),
    (
        "THE WORKLOAD IS NOT CHANGED BY IT: a normal distribution ends three standard deviations from its middle",
        Float,
        "stddev",
    ),
    ("there is no other store to verify against; values are always checked", Text, "truth_db"),
    ("--stats_interval_seconds prints lines, by time and not by operations", INT, "stats_interval"),
    ("the clock is looked at before every operation", INT, "ops_between_duration_checks"),
];
