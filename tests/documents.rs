//! What the documents say of the code is there: files that they lead to, and the functions that assert the invariants.

use std::path::{Path, PathBuf};

/// A text without its links, and where those lead.
fn parted(text: &str) -> (String, Vec<&str>) {
    let (mut rest, mut links, mut from) = (String::new(), Vec::new(), text);
    while let Some((before, after)) = from.split_once("](") {
        let (shown, behind) = after.split_once(')').unwrap_or((after, ""));
        links.push(shown);
        rest.push_str(before.rsplit_once('[').map_or("", |(outside, _)| outside));
        from = behind;
    }
    rest.push_str(from);
    (rest, links)
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_directory = |path: PathBuf| {
        let entries = std::fs::read_dir(path).expect("documents are there");
        entries.map(|entry| entry.expect("they can be listed").path()).collect::<Vec<_>>()
    };
    let mut all = vec![root.join("README.md")];
    all.extend(in_directory(root.join("docs")));
    all.extend(in_directory(root.join("docs/decisions")));
    all.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    assert!(all.len() > 10, "{all:?}");
    all
}

#[test]
fn links_lead_somewhere() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it can be read");
        for link in parted(&text).1 {
            let path = link.split('#').next().unwrap_or(link);
            let is_file = !path.is_empty() && !path.contains("://") && !path.contains(char::is_whitespace);
            let beside = document.parent().expect("it lies in a directory").join(path);
            assert!(!is_file || beside.exists(), "{} links to {link}", document.display());
        }
    }
}

#[test]
fn invariants_are_asserted_where_the_table_says() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let text = std::fs::read_to_string(docs.join("architecture.md")).expect("it can be read");
    let (_, table) = text.split_once("## Invariants").expect("there is a table");
    let table = table.split("\n## ").next().expect("and an end of it");
    let mut names = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")) {
        let place = row.trim_end_matches('|').rsplit('|').next().expect("a row has cells");
        let (words, links) = parted(place);
        let sources: String = links
            .iter()
            .map(|link| {
                std::fs::read_to_string(docs.join(link)).unwrap_or_else(|error| panic!("{link}: {error}"))
            })
            .collect();
        assert!(!sources.is_empty(), "{row}");
        for name in words.split('`').skip(1).step_by(2) {
            let name = name.rsplit("::").next().unwrap_or(name);
            let made = ["fn", "struct"].map(|kind| format!("{kind} {name}"));
            assert!(made.iter().any(|made| sources.contains(made)), "{name} is not made there: {row}");
            names += 1;
        }
    }
    assert!(names >= 6, "the table names {names} functions");
}
