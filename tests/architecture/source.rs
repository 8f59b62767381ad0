//! The parts of a source file that matter for arrows between files: its words, its `use` trees and its
//! paths.
//!
//! This is not a parser: bodies of macros are read as code, and code for tests alone is skipped.

use std::collections::BTreeSet;

/// A `use`, one leaf of its tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The path in the source, without a final `*` or `self`.
    pub(crate) path: Vec<String>,
    /// The imported name; `*` for all.
    pub(crate) name: String,
    /// True if other modules may import the name from here.
    pub(crate) is_public: bool,
}

/// The names in a file that refer to other files.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) uses: Vec<Use>,
    /// Paths of two components or more outside of `use`.
    pub(crate) paths: Vec<Vec<String>>,
    /// Identifiers outside of `use`.
    pub(crate) identifiers: BTreeSet<String>,
    /// Modules for tests alone.
    pub(crate) test_modules: Vec<String>,
}

impl Source {
    /// Reads a file without its tests.
    pub(crate) fn of(text: &str) -> Source {
        let mut source = Source::default();
        let words = source.without_tests(&words(text));
        source.read(&words);
        source
    }

    /// Reads a file with its tests.
    pub(crate) fn with_tests(text: &str) -> Source {
        let mut source = Source::default();
        source.read(&words(text));
        source
    }

    /// Returns the first components of all paths, and the imported names.
    pub(crate) fn firsts(&self) -> BTreeSet<&str> {
        let uses = self.uses.iter().map(|one| &one.path);
        uses.chain(&self.paths).filter_map(|path| path.first()).map(String::as_str).collect()
    }

    fn without_tests<'t>(&mut self, words: &[&'t str]) -> Vec<&'t str> {
        let (mut kept, mut at) = (Vec::new(), 0);
        while at < words.len() {
            if !is_for_tests(&words[at..]) {
                kept.push(words[at]);
                at += 1;
                continue;
            }
            let start = at;
            while words.get(at) == Some(&"#") {
                at = closing(words, at + 1) + 1;
            }
            let end = item_end(words, at);
            let module = words[start..end].windows(3).find(|three| three[0] == "mod" && three[2] == ";");
            self.test_modules.extend(module.map(|three| three[1].to_owned()));
            at = end;
        }
        kept
    }

    fn read(&mut self, words: &[&str]) {
        let mut at = 0;
        while at < words.len() {
            let is_public = words[at] == "pub";
            if is_public && words.get(at + 1) == Some(&"(") {
                // `pub(in crate::room)` does not use the room.
                at = closing(words, at + 1);
            }
            if is_public {
                at += 1;
            }
            match words.get(at) {
                // `use<>` of a type is not an import.
                Some(&"use") if words.get(at + 1) != Some(&"<") => {
                    at = self.read_tree(words, at + 1, Vec::new(), is_public);
                }
                Some(word) if is_identifier(word) => {
                    let mut path = vec![(*word).to_owned()];
                    while words.get(at + 1) == Some(&"::")
                        && words.get(at + 2).is_some_and(|word| is_identifier(word))
                    {
                        path.push(words[at + 2].to_owned());
                        at += 2;
                    }
                    self.identifiers.extend(path.iter().cloned());
                    if path.len() > 1 {
                        self.paths.push(path);
                    }
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// Reads the `use` tree at a word. Returns the position after its end.
    fn read_tree(&mut self, words: &[&str], mut at: usize, mut path: Vec<String>, is_public: bool) -> usize {
        while at < words.len() {
            match words[at] {
                "::" => at += 1,
                "{" => {
                    at += 1;
                    while at < words.len() && words[at] != "}" {
                        at = self.read_tree(words, at, path.clone(), is_public);
                        at += usize::from(words.get(at) == Some(&","));
                    }
                    return at + 1;
                }
                "*" => {
                    self.uses.push(Use { path, name: "*".to_owned(), is_public });
                    return at + 1;
                }
                word => {
                    path.push(word.to_owned());
                    at += 1;
                    if words.get(at) == Some(&"::") {
                        continue;
                    }
                    if path.len() > 1 && word == "self" {
                        path.pop();
                    }
                    let mut name = path.last().cloned().unwrap_or_default();
                    if words.get(at) == Some(&"as") {
                        name = words.get(at + 1).unwrap_or(&"").to_string();
                        at += 2;
                    }
                    self.uses.push(Use { path, name, is_public });
                    return at;
                }
            }
        }
        at
    }
}

/// Returns true if words begin with `#[cfg(test)]` or a condition that includes it.
fn is_for_tests(words: &[&str]) -> bool {
    let inside = |end: usize| &words[4..end.min(words.len())];
    words.starts_with(&["#", "[", "cfg", "("])
        && inside(closing(words, 1)).contains(&"test")
        && !inside(closing(words, 1)).contains(&"not")
}

/// Returns the position at which the bracket at a word closes.
fn closing(words: &[&str], open: usize) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(open) {
        match *word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    words.len() - 1
}

/// Returns the position after an item: after its braces, its semicolon, or, for a field, its comma.
fn item_end(words: &[&str], mut at: usize) -> usize {
    while at < words.len() {
        match words[at] {
            "(" | "[" => at = closing(words, at),
            "{" => return closing(words, at) + 1,
            ";" | "," => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits a source into words: identifiers, numbers, `::` and single characters; without comments,
/// strings, characters or lifetimes.
pub(crate) fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => comment(rest),
            _ if text_prefix(rest).is_some() => text_length(rest),
            '\'' => quote(rest),
            _ if first.is_alphanumeric() || first == '_' => {
                let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                words.push(&rest[..length]);
                length
            }
            _ if rest.starts_with("::") => {
                words.push("::");
                2
            }
            _ => {
                if !first.is_whitespace() {
                    words.push(&rest[..first.len_utf8()]);
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    words
}

/// Returns the length of the comment at the beginning, which may contain others.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text.get(at..at + 2) {
            Some("/*") => (depth, at) = (depth + 1, at + 2),
            Some("*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the number of letters before the quote of a string at the beginning, and the number of `#`
/// after them.
fn text_prefix(text: &str) -> Option<(usize, usize)> {
    let letters = ["br", "cr", "r", "b", "c", ""].into_iter().find(|letters| {
        text.strip_prefix(letters).is_some_and(|behind| behind.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = text[letters.len()..].bytes().take_while(|&byte| byte == b'#').count();
    (hashes == 0 || letters.ends_with('r')).then_some((letters.len(), hashes))
}

fn text_length(text: &str) -> usize {
    let (letters, hashes) = text_prefix(text).expect("it is one");
    let start = letters + hashes + 1;
    if text[..letters].ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        return text[start..].find(&end).map_or(text.len(), |at| start + at + end.len());
    }
    start + escaped(&text[start..], '"')
}

/// Returns the length up to and including an unescaped quote.
fn escaped(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of the character or the lifetime at the beginning.
fn quote(text: &str) -> usize {
    let mut behind = text.chars().skip(1);
    match (behind.next(), behind.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => 1 + escaped(&text[1..], '\''),
        _ => 1 + text[1..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len() - 1),
    }
}

#[test]
fn words_are_code_alone() {
    let text = r##"
        //! crate::no
        /* crate::no /* crate::no */ crate::no */
        fn f<'a>(x: &'a str) -> char { g("crate::no \" crate::no", r#"crate::"no"#, b"no", '"', '\'', 'x', b'\\') }
        r#type
    "##;
    // The letter before a byte character stays, which is harmless.
    let expected = "fn f < > ( x : & str ) - > char { g ( , , , , , , b ) } r # type";
    assert_eq!(words(text), expected.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn uses_are_read_leaf_by_leaf() {
    let source = Source::of(
        "use crate::{a::{self, B as C}, d::*};
         pub(crate) use e::F;
         pub(in crate::g) fn h() -> impl Sized + use<> { crate::i::J::k() }
         #[cfg(test)]
         mod tests { use crate::no::No; }
         #[cfg(test)]
         #[path = \"l_tests.rs\"]
         mod l;
         fn m() { n::o() }",
    );
    let leaf = |path: &str, name: &str, is_public| Use {
        path: path.split("::").map(str::to_owned).collect(),
        name: name.to_owned(),
        is_public,
    };
    let expected = [
        leaf("crate::a", "a", false),
        leaf("crate::a::B", "C", false),
        leaf("crate::d", "*", false),
        leaf("e::F", "F", true),
    ];
    assert_eq!(source.uses, expected);
    assert_eq!(source.paths, [vec!["crate", "i", "J", "k"], vec!["n", "o"]]);
    assert_eq!(source.test_modules, ["l"]);
}
