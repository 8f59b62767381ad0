//! Fuzz targets: for each kind of external bytes, a function that accepts any bytes. It must return quickly, and
//! fuzzing looks for panics. Where properties of the result are known, they are asserted.
//!
//! `fuzz/` has a cargo-fuzz target for each, and small corpora. The test `corpora` runs all of these inputs, and
//! mutations of them, with the stable compiler.

mod bytes;
mod image;
mod log;

/// A function that accepts any bytes.
pub type Target = fn(&[u8]);

/// All targets: name of the target and its corpus, function, and number of mutations of each input in the test.
pub const TARGETS: &[(&str, Target, u32)] = &[
    ("record", log::record, 2_000),
    ("compressed", log::compressed, 2_000),
    ("frame", log::frame, 2_000),
    ("summary", log::summary, 2_000),
    ("superblock", log::superblock, 500),
    ("segment", log::segment, 500),
    ("image", image::image, 12),
    ("staging", image::staging, 12),
    ("resp", esker_server::fuzzing::resp, 2_000),
    ("grpc", esker_server::fuzzing::grpc, 2_000),
    ("glob", esker_server::fuzzing::glob, 2_000),
    ("hyperloglog", esker_server::fuzzing::hyperloglog, 2_000),
    ("users", bytes::users, 300),
    ("settings", bytes::settings, 500),
    ("rdb", bytes::rdb, 1_000),
    ("dump", bytes::dump, 2_000),
    ("drive_log", bytes::drive_log, 1_000),
    ("wire", esker_cluster::wire::fuzzed::messages, 2_000),
];

/// Returns the function of a target.
///
/// # Panics
/// If there is no such target.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, ..)| *known == name);
    found.unwrap_or_else(|| panic!("there is no target {name}")).1
}
