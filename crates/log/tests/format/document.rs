//! `docs/format.md` contains the tables that the encoders use, and the golden image as its worked example.

use std::path::Path;

/// Asserts that the part of the document between the markers is `wanted`, without the markers' lines.
#[track_caller]
fn check(part: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = std::fs::read_to_string(&path).expect("docs/format.md");
    let (begin, end) = (format!("<!-- {part}: begin -->\n"), format!("<!-- {part}: end -->"));
    let (before, rest) = text.split_once(&begin).expect("a marker where it begins");
    let (found, after) = rest.split_once(&end).expect("a marker where it ends");
    if std::env::var_os("ESKER_BLESS").is_some() {
        std::fs::write(&path, [before, &begin, wanted, &end, after].concat()).expect("docs/format.md");
        return;
    }
    assert!(
        found == wanted,
        "docs/format.md differs from the code. If the code is right:\n\
         ESKER_BLESS=1 cargo test -p esker-log --test format document -- --test-threads=1\n{wanted}"
    );
}

#[test]
fn format_document_matches_field_tables() {
    check("tables", &format!("\n{}", esker_log::describe_format()));
}

#[test]
fn worked_example_matches_golden_image() {
    check("example", &crate::golden::worked_example());
}
