//! The identity that the server reports to clients.

/// The version of Redis whose strings and errors this server speaks. Clients choose features by it.
pub(super) const REDIS_VERSION: &str = "7.4.2";

/// The same version as a number, one byte for each part.
pub(super) const REDIS_VERSION_NUMBER: u32 = 0x0007_0402;
