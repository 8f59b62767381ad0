//! Both handles have the same calls.

use std::collections::BTreeSet;

/// The public calls that are written out in a file.
fn calls(source: &str) -> BTreeSet<&str> {
    source
        .lines()
        .filter_map(|line| {
            let call = line.strip_prefix("    pub async fn ").or(line.strip_prefix("    pub fn "))?;
            call.split(['(', '<']).next()
        })
        .collect()
}

#[test]
fn it_has_every_call_of_the_store() {
    let sources = [
        include_str!("changing.rs"),
        include_str!("handle.rs"),
        include_str!("reading.rs"),
        include_str!("segments.rs"),
        include_str!("writing.rs"),
    ];
    let mut of_store: BTreeSet<&str> = sources.iter().flat_map(|source| calls(source)).collect();
    assert!(of_store.remove("blocking"), "the store says how to get here");
    let mut here = calls(include_str!("blocking.rs"));
    assert!(here.remove("store"), "and there is a way back");
    assert_eq!(here, of_store);
}
