//! Fields of INFO about parts of Redis that Esker does not have: they are 0, which exporters read as a number.

use super::line;

/// Writes fields with the value 0.
pub(super) fn zeros(text: &mut String, names: &[&str]) {
    names.iter().for_each(|name| line(text, name, 0));
}

pub(super) const OF_MEMORY: [&str; 11] = [
    "number_of_functions",
    "number_of_libraries",
    "used_memory_functions",
    "mem_not_counted_for_evict",
    "mem_replication_backlog",
    "mem_total_replication_buffers",
    "mem_clients_slaves",
    "mem_cluster_links",
    "mem_aof_buffer",
    "active_defrag_running",
    "lazyfree_pending_objects",
];

/// There is no fork: the serving process takes backups.
pub(super) const OF_PERSISTENCE: [&str; 10] = [
    "current_cow_peak",
    "current_cow_size",
    "current_cow_size_age",
    "rdb_last_cow_size",
    "aof_rewrite_in_progress",
    "aof_rewrite_scheduled",
    "aof_rewrites",
    "aof_last_cow_size",
    "module_fork_in_progress",
    "module_fork_last_cow_size",
];

pub(super) const OF_STATS: [&str; 19] = [
    "total_net_repl_input_bytes",
    "total_net_repl_output_bytes",
    "sync_full",
    "sync_partial_ok",
    "sync_partial_err",
    "evicted_clients",
    "latest_fork_usec",
    "total_forks",
    "migrate_cached_sockets",
    "slave_expires_tracked_keys",
    "active_defrag_hits",
    "active_defrag_misses",
    "active_defrag_key_hits",
    "active_defrag_key_misses",
    "total_active_defrag_time",
    "current_active_defrag_time",
    "unexpected_error_replies",
    "io_threaded_reads_processed",
    "io_threaded_writes_processed",
];
