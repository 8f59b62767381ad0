//! A deterministic world for Esker: seeded executor, virtual clock, crashing devices
