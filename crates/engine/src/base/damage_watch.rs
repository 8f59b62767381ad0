//! The receiver of damage, for a cluster that heals records from other copies.

/// Receiver of damaged records that reads, verifications and the scrub find.
pub trait DamageWatch: Send + Sync + 'static {
    /// A current record of a database is damaged. `key` is `None` if the key is unreadable, too: other keys
    /// of the database may be damaged there as well, and [`Store::is_in_damage`](crate::Store::is_in_damage) returns true
    /// for such a key. The same damage may be reported
    /// often. Called where it is found; must not block.
    fn found(&self, database: u8, key: Option<&[u8]>);
}
