//! What is fuzzed: for each kind of bytes that comes from outside, a function that takes any bytes. It must return, soon, and a
//! panic is what fuzzing looks for. Where more can be said of what came out than that it came, it is asserted.
//!
//! `fuzz/` has a target of cargo-fuzz for each, and small corpora. The test `corpora` runs all of these, and changes of them, with
//! the stable compiler.

mod bytes;
mod image;
mod log;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// All of them, by the names of their targets and corpora, and how many changes of each input the test makes.
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
];

/// The function of a target.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> Target {
    let found = TARGETS.iter().find(|(known, ..)| *known == name);
    found.unwrap_or_else(|| panic!("there is no target {name}")).1
}
