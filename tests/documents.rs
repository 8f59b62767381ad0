//! Checks statements of the documents about the repository: files that they link to and name exist,
//! functions that assert the invariants exist, and the example of the first page can be copied unchanged.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns a text without its links, and the targets of the links.
fn split_links(text: &str) -> (String, Vec<&str>) {
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

/// Returns every Markdown file below a directory, except files of build tools and package managers.
fn markdown_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the directory can be listed") {
        let path = entry.expect("its entries can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "node_modules" {
            markdown_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    markdown_below(root(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    found
}

/// Returns a document's text outside of fenced blocks, and inside of them.
fn split_fences(text: &str) -> (String, String) {
    let (mut prose, mut fenced, mut is_fenced) = (String::new(), String::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let part = if is_fenced { &mut fenced } else { &mut prose };
        part.push_str(line);
        part.push('\n');
    }
    (prose, fenced)
}

/// Returns the directories at the top of the repository, except uncommitted ones.
fn top_directories() -> BTreeSet<String> {
    let entries = std::fs::read_dir(root()).expect("the repository can be listed");
    let directories =
        entries.map(|entry| entry.expect("it can be read")).filter(|entry| entry.path().is_dir());
    let names = directories.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| !["target", ".git", "esker-data"].contains(&name.as_str())).collect()
}

/// Returns true if a word looks like a path of this repository: it begins with a directory at its top, or
/// it has directories and the ending of a file that is kept here.
fn looks_like_a_path(word: &str, top: &BTreeSet<String>) -> bool {
    let of_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let Some((first, _)) = word.split_once('/') else { return false };
    if first.is_empty() || first == "target" || !word.chars().all(of_path) {
        return false;
    }
    // A component in capitals is a placeholder.
    let is_placeholder = |part: &str| {
        part.chars().any(|c| c.is_ascii_uppercase()) && !part.chars().any(|c| c.is_ascii_lowercase())
    };
    if word.split('/').any(is_placeholder) {
        return false;
    }
    let kept = ["rs", "md", "toml", "py", "proto", "service", "mjs", "sh", "txt"];
    let ending = Path::new(word).extension().and_then(|extension| extension.to_str());
    top.contains(first) || ending.is_some_and(|ending| kept.contains(&ending))
}

/// Returns the paths that a document names in backticks, alone or in a fenced block, and that exist
/// neither from the top of the repository nor beside the document.
fn missing_paths(text: &str, beside: &Path, top: &BTreeSet<String>) -> Vec<String> {
    let (prose, fenced) = split_fences(text);
    // The text of a link is checked by its target.
    let prose = prose.replace("[`", "").replace("`](", "(");
    let spans = prose.split('`').skip(1).step_by(2);
    let words = fenced.split(|c: char| c.is_whitespace() || "\"'=(),:;".contains(c));
    let is_missing = |word: &&str| {
        let exists = |base: &Path| base.join(word).exists();
        looks_like_a_path(word, top) && !exists(root()) && !exists(beside)
    };
    // A span can be a command with paths in it.
    let of_spans = spans.flat_map(str::split_whitespace);
    of_spans.chain(words).filter(is_missing).map(str::to_owned).collect()
}

#[test]
fn links_lead_somewhere() {
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it can be read");
        for link in split_links(&split_fences(&text).0).1 {
            let path = link.split('#').next().unwrap_or(link);
            let is_file = !path.is_empty() && !path.contains("://") && !path.contains(char::is_whitespace);
            let beside = document.parent().expect("it lies in a directory").join(path);
            assert!(!is_file || beside.exists(), "{} links to {link}", document.display());
        }
    }
}

/// A page that the table of contents lacks is not in the site; mdBook makes an empty page for an entry without a file.
#[test]
fn every_page_is_in_the_table_of_contents() {
    let docs = root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).expect("it can be read");
    let listed = split_links(&summary).1;
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let mut pages = Vec::new();
    markdown_below(&docs, &mut pages);
    let pages: BTreeSet<String> = pages
        .iter()
        .map(|page| page.strip_prefix(&docs).expect("it lies there").display().to_string())
        .filter(|page| page != "SUMMARY.md")
        .collect();
    let missing: Vec<_> = pages.iter().filter(|page| !unique.contains(page.as_str())).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
    let unknown: Vec<_> = unique.iter().filter(|page| !pages.contains(**page)).collect();
    assert!(unknown.is_empty(), "docs/SUMMARY.md lists {unknown:?}, which do not exist");
}

/// Returns the anchors of a page: its headings as GitHub and mdBook name them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = split_fences(text).0;
    let headings = headings.lines().filter(|line| line.starts_with('#'));
    let mut anchors = BTreeSet::new();
    for heading in headings {
        let heading = heading.trim_start_matches('#').trim();
        // The text of a link counts, its target does not.
        let shown: String = heading.split("](").enumerate().fold(String::new(), |text, (part, piece)| {
            let piece = if part == 0 { piece } else { piece.split_once(')').map_or("", |(_, rest)| rest) };
            text + piece
        });
        let kept = shown.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase();
        let number = (0..).find(|number| !anchors.contains(&numbered(&name, *number))).expect("one is free");
        anchors.insert(numbered(&name, number));
    }
    anchors
}

fn numbered(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}-{number}") }
}

#[test]
fn links_lead_to_headings_that_exist() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it can be read");
        for link in split_links(&split_fences(&text).0).1 {
            let Some((path, anchor)) = link.split_once('#').filter(|(path, _)| !path.contains("://")) else {
                continue;
            };
            let beside = document.parent().expect("it lies in a directory");
            let target = if path.is_empty() { document.clone() } else { beside.join(path) };
            let is_page = target.extension().is_some_and(|extension| extension == "md");
            if is_page && !anchors(&std::fs::read_to_string(&target).unwrap_or_default()).contains(anchor) {
                missing.push(format!("{} links to {link}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "these headings do not exist:\n{}", missing.join("\n"));
}

#[test]
fn a_missing_heading_is_noticed() {
    let of = |text: &str| anchors(text).into_iter().collect::<Vec<_>>();
    assert_eq!(
        of("# A b: c\n## `x-y` [z](w.md)\n```\n# no heading\n```\n## A b: c\n"),
        ["a-b-c", "a-b-c-1", "x-y-z"]
    );
}

#[test]
fn paths_in_backticks_exist() {
    let top = top_directories();
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("it can be read");
        let beside = document.parent().expect("it lies in a directory");
        let paths = missing_paths(&text, beside, &top);
        missing.extend(paths.into_iter().map(|path| format!("{} names {path}", document.display())));
    }
    assert!(missing.is_empty(), "these paths do not exist:\n{}", missing.join("\n"));
}

#[test]
fn a_wrong_path_is_noticed() {
    let top = top_directories();
    let missing = |text: &str| missing_paths(text, &root().join("docs"), &top);
    assert_eq!(missing("See `crates/nowhere`, or `src/lib.rs`."), ["crates/nowhere"]);
    assert_eq!(missing("`command/nowhere.rs` is beside nothing"), ["command/nowhere.rs"]);
    assert_eq!(missing("[`store/nowhere.rs`](../src/lib.rs), `docs/nowhere`"), ["docs/nowhere"]);
    assert_eq!(missing("`python3 tests/nowhere.py --all`"), ["tests/nowhere.py"]);
    assert_eq!(missing("```sh\npython3 tests/nowhere.py --dir=docs/nowhere\n```\n").len(), 2);
    assert_eq!(missing("`decisions/0001-one-lane-one-order.md` lies beside it"), [""; 0]);
    let harmless =
        "`/etc/esker/esker.toml` `target/release/esker` `docs/benchmarks/NAME` `HELLO/AUTH` `docs/*.md`";
    assert_eq!(missing(harmless), [""; 0]);
}

#[test]
fn every_document_begins_with_its_title() {
    for path in documents() {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        assert!(text.starts_with("# "), "{} does not begin with a title", path.display());
    }
}

/// rustdoc compiles the example. The repository's page would show its hidden lines, and a copy must be a
/// complete program.
#[test]
fn the_example_of_the_first_page_can_be_copied() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("it can be read");
    let blocks: Vec<&str> =
        text.split("```rust").skip(1).map(|rest| rest.split("```").next().unwrap_or(rest)).collect();
    assert!(!blocks.is_empty(), "there is no example");
    for block in blocks {
        assert!(block.contains("fn main()"), "no whole program:\n{block}");
        assert!(!block.lines().any(|line| line == "#" || line.starts_with("# ")), "a hidden line:\n{block}");
    }
}

/// Returns true if a source defines a function or struct of this name.
fn is_made_in(source: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    ["fn", "struct"].iter().any(|kind| source.split(&format!("{kind} {name}")).skip(1).any(ends))
}

#[test]
fn invariants_are_asserted_where_the_table_says() {
    let docs = root().join("docs");
    let text = std::fs::read_to_string(docs.join("architecture.md")).expect("it can be read");
    let (_, table) = text.split_once("## Invariants").expect("there is a table");
    let table = table.split("\n## ").next().expect("and an end of it");
    let mut names = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")) {
        let place = row.trim_end_matches('|').rsplit('|').next().expect("a row has cells");
        let (words, links) = split_links(place);
        let sources: String = links
            .iter()
            .map(|link| {
                std::fs::read_to_string(docs.join(link)).unwrap_or_else(|error| panic!("{link}: {error}"))
            })
            .collect();
        assert!(!sources.is_empty(), "{row}");
        for name in words.split('`').skip(1).step_by(2) {
            let name = name.rsplit("::").next().unwrap_or(name);
            assert!(is_made_in(&sources, name), "{name} is not made there: {row}");
            names += 1;
        }
    }
    assert!(names >= 6, "the table names {names} functions");
}

/// Returns the source files below a directory, except tests.
fn sources_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the directory can be listed") {
        let path = entry.expect("its entries can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            sources_below(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Returns true if the code of a source file, without comments and tests, has an atomic ordering other than Relaxed.
fn has_strong_ordering(text: &str) -> bool {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let strong = ["Acquire", "Release", "AcqRel", "SeqCst"].map(|name| format!("Ordering::{name}"));
    code.into_iter().any(|line| strong.iter().any(|strong| line.contains(strong)))
}

#[test]
fn memory_orderings_are_where_the_tables_say() {
    let docs = root().join("docs");
    let text = std::fs::read_to_string(docs.join("memory-ordering.md")).expect("it can be read");
    let mut names = 0;
    for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| words")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        // The tables of protocols have five columns, the fourth of which is prose.
        let [_, store, load, _, test] = cells[..] else {
            assert_eq!(cells.len(), 2, "{row}");
            continue;
        };
        let links = split_links(row).1;
        let read = |link: &&str| {
            std::fs::read_to_string(docs.join(link)).unwrap_or_else(|error| panic!("{link}: {error}"))
        };
        let sources: String = links.iter().filter(|link| link.ends_with(".rs")).map(read).collect();
        for cell in [store, load, test] {
            for name in split_links(cell).0.split('`').skip(1).step_by(2) {
                assert!(is_made_in(&sources, name), "{name} is not made there: {row}");
                names += 1;
            }
        }
    }
    assert!(names >= 100, "the tables name {names} functions");
}

#[test]
fn every_file_with_a_memory_ordering_is_explained() {
    let text = std::fs::read_to_string(root().join("docs/memory-ordering.md")).expect("it can be read");
    let linked: BTreeSet<&str> = split_links(&text).1.into_iter().collect();
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the directory can be listed") {
        sources_below(&entry.expect("its entries can be read").path().join("src"), &mut sources);
    }
    let mut strong = 0;
    for source in sources {
        if has_strong_ordering(&std::fs::read_to_string(&source).expect("it can be read")) {
            let path = source.strip_prefix(root()).expect("it lies in the repository").display();
            let is_linked = linked.contains(format!("../{path}").as_str());
            assert!(is_linked, "docs/memory-ordering.md does not explain the orderings of {path}");
            strong += 1;
        }
    }
    assert!(strong > 30, "{strong} files have an ordering other than Relaxed");
}

/// Cargo does not find tests by itself here, so a file that is not named would never run.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let read = |path: &Path| std::fs::read_to_string(path).expect("it can be read");
    let (store, manifest) = (read(&tests.join("store/main.rs")), read(&tests.join("../Cargo.toml")));
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder can be read").flatten();
        let names = entries.map(|entry| entry.file_name().into_string().expect("a name in UTF-8"));
        names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect()
    };
    for name in names(&tests) {
        let is_named = manifest.contains(&format!("name = \"{name}\""));
        assert!(is_named, "tests/{name}.rs is in no program: name it in Cargo.toml");
    }
    for name in names(&tests.join("store")).iter().filter(|name| *name != "main") {
        let is_named = store.contains(&format!("mod {name};"));
        assert!(is_named, "tests/store/{name}.rs is in no program: name it in tests/store/main.rs");
    }
}
