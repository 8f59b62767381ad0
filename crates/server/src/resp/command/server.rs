//! What this server says it is, to clients that ask before they trust.

/// The version of Redis whose strings and errors this server speaks. Clients choose features by it.
pub(super) const REDIS_VERSION: &str = "7.2.5";

/// Not a cluster, not a sentinel.
pub(super) const RUN_MODE: &str = "standalone";

/// Nobody's replica.
pub(super) const ROLE: &str = "master";
