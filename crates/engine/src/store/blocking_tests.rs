//! Checks that `Blocking` has a blocking form of every asynchronous call of `Store`.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the bodies of the `impl` blocks of a type in a source file.
fn blocks_of<'s>(source: &'s str, name: &str) -> impl Iterator<Item = &'s str> {
    let begin = format!("\nimpl {name} {{\n");
    let blocks: Vec<_> = source.split(&begin).skip(1).collect();
    blocks.into_iter().map(|block| block.split("\n}\n").next().expect("there is a first part"))
}

/// Returns the names of the public functions in a part of a source file that begin with `prefix`.
fn calls<'s>(source: &'s str, prefix: &str) -> BTreeSet<&'s str> {
    source.lines().filter_map(|line| line.strip_prefix(prefix)?.split(['(', '<']).next()).collect()
}

/// Every file with calls of `Store`.
const SOURCES: [(&str, &str); 10] = [
    ("changing.rs", include_str!("changing.rs")),
    ("checkpoint.rs", include_str!("checkpoint.rs")),
    ("devices.rs", include_str!("devices.rs")),
    ("handle.rs", include_str!("handle.rs")),
    ("iterating.rs", include_str!("iterating.rs")),
    ("places.rs", include_str!("places.rs")),
    ("reading.rs", include_str!("reading.rs")),
    ("replicating.rs", include_str!("replicating.rs")),
    ("segments.rs", include_str!("segments.rs")),
    ("writing.rs", include_str!("writing.rs")),
];

/// Asynchronous calls that only `Store` has: for backups, which read segments while others write, for a server, whose
/// reads take several steps, for devices that are not files, and for a cluster.
const OF_STORE_ONLY: [&str; 5] =
    ["add_opened_device", "checkpoint", "forget_lost", "get_probed", "is_in_damage"];

/// Other calls of `Blocking`: the way back, the handle of another database, and iterators.
const OF_BLOCKING_ONLY: [&str; 4] = ["database", "iter", "keys", "store"];

#[test]
fn blocking_has_every_asynchronous_call_of_the_store() {
    let of = |name: &str, prefix: &str| -> BTreeSet<&str> {
        let sources = SOURCES.iter().flat_map(|(_, source)| blocks_of(source, name));
        sources.flat_map(|block| calls(block, prefix)).collect()
    };
    let (mut of_store, mut here) = (of("Store", "    pub async fn "), of("Blocking", "    pub fn "));
    here.extend(calls(include_str!("blocking.rs"), "    pub fn "));
    for call in OF_STORE_ONLY {
        assert!(of_store.remove(call), "the store has no call {call}");
    }
    for call in OF_BLOCKING_ONLY {
        assert!(here.remove(call), "there is no call {call}");
    }
    assert_eq!(here, of_store);
}

#[test]
fn no_file_with_calls_of_the_store_is_left_out() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    for file in std::fs::read_dir(directory).expect("it can be listed") {
        let path = file.expect("it can be listed").path();
        let source = std::fs::read_to_string(&path).expect("it can be read");
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
        let has_calls = blocks_of(&source, "Store")
            .any(|block| block.contains("    pub fn ") || block.contains("    pub async fn "));
        assert_eq!(has_calls, SOURCES.iter().any(|(known, _)| *known == name), "{name}");
    }
}
