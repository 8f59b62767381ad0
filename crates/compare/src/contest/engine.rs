//! The engines: their names and their crash guarantees.

/// An engine that takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Capacity tier alone: one file in a directory, the default.
    Esker,
    /// A fast tier in front of a capacity tier.
    EskerTwoTier,
    /// A fast tier alone.
    EskerFast,
    RocksDb,
    BlobDb,
    /// An engine built from `rivals/`.
    Rival(&'static str),
    Redis,
    /// The device without a store.
    Raw,
}

/// All engines, with their names.
pub(crate) const ALL: &[(&str, Engine)] = &[
    ("esker", Engine::Esker),
    ("esker-two-tier", Engine::EskerTwoTier),
    ("esker-fast", Engine::EskerFast),
    ("rocksdb", Engine::RocksDb),
    ("blobdb", Engine::BlobDb),
    ("fjall", Engine::Rival("fjall")),
    ("redb", Engine::Rival("redb")),
    ("sled", Engine::Rival("sled")),
    ("redis", Engine::Redis),
    ("raw", Engine::Raw),
];

impl Engine {
    pub(crate) fn parse(name: &str) -> Result<Engine, String> {
        let found = ALL.iter().find(|(known, _)| *known == name).map(|(_, engine)| *engine);
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| format!("'{name}' does not take part; there are {}", names.join(", ")))
    }

    /// Returns the engine that the goals are for: the default configuration, or else the first of
    /// Esker's.
    pub(crate) fn headline(engines: &[Engine]) -> Option<Engine> {
        let default = engines.iter().find(|engine| **engine == Engine::Esker);
        default.or_else(|| engines.iter().find(|engine| engine.is_esker())).copied()
    }

    pub(crate) fn name(self) -> &'static str {
        ALL.iter().find(|(_, engine)| *engine == self).map_or("?", |(name, _)| name)
    }

    pub(crate) fn is_esker(self) -> bool {
        matches!(self, Engine::Esker | Engine::EskerTwoTier | Engine::EskerFast)
    }

    pub(crate) fn is_rocksdb(self) -> bool {
        matches!(self, Engine::RocksDb | Engine::BlobDb)
    }

    /// Returns the failures that an acknowledged write survives when nothing is synced.
    pub(crate) fn survives(self) -> &'static str {
        match self {
            Engine::Esker | Engine::EskerTwoTier | Engine::EskerFast => {
                "process crash (durability `process`: in memory that outlives the process)"
            }
            Engine::RocksDb | Engine::BlobDb => {
                "process crash (the log is written to the page cache and not synced)"
            }
            Engine::Rival("fjall") => {
                "process crash (the journal is written to the page cache and not synced)"
            }
            Engine::Rival("redb") => {
                "nothing since the last durable commit (`Durability::None`): less than the others, as it has no level between"
            }
            Engine::Rival(_) => {
                "process crash only of what was flushed in the last 500 ms: less than the others"
            }
            Engine::Redis => "process crash (append-only file, `appendfsync no`)",
            Engine::Raw => "power cuts where writes are synced, nothing otherwise",
        }
    }
}

/// Groups the engines into turns: they are measured one after the other, except that the raw device
/// alternates step by step with the store compared with it, because a device's performance varies from
/// one quarter of an hour to the next.
pub(crate) fn turns(engines: &[Engine]) -> Vec<Vec<Engine>> {
    let headline = Engine::headline(engines).filter(|_| engines.contains(&Engine::Raw));
    let others = engines.iter().filter(|&&engine| headline.is_none() || engine != Engine::Raw);
    others
        .map(|&engine| match headline {
            Some(headline) if engine == headline => vec![engine, Engine::Raw],
            _ => vec![engine],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_device_is_measured_beside_its_store() {
        use Engine::{Esker, EskerFast, Raw, RocksDb};
        assert_eq!(
            turns(&[EskerFast, Esker, RocksDb, Raw]),
            [vec![EskerFast], vec![Esker, Raw], vec![RocksDb]]
        );
        assert_eq!(turns(&[RocksDb, Raw]), [vec![RocksDb], vec![Raw]]);
        assert_eq!(turns(&[Esker, RocksDb]), [vec![Esker], vec![RocksDb]]);
    }
}
