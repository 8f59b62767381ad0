//! Licence expressions in the syntax of `Cargo.toml`.

/// Licences under which we ship code. An exception is listed with its licence.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Returns true if an expression can be satisfied with allowed licences. Returns an error if it is
/// invalid.
pub(crate) fn is_allowed(expression: &str) -> Result<bool, String> {
    // `/` is the old form of `OR`.
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<_> = text.split_whitespace().collect();
    let mut rest = tokens.as_slice();
    let allowed = any(&mut rest);
    match (allowed, rest) {
        (Some(allowed), []) => Ok(allowed),
        _ => Err(format!("'{expression}' is no licence expression")),
    }
}

fn any(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = all(rest)?;
    while let ["OR", behind @ ..] = *rest {
        *rest = behind;
        allowed |= all(rest)?;
    }
    Some(allowed)
}

fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(rest)?;
    while let ["AND", behind @ ..] = *rest {
        *rest = behind;
        allowed &= one(rest)?;
    }
    Some(allowed)
}

fn one(rest: &mut &[&str]) -> Option<bool> {
    if let ["(", behind @ ..] = *rest {
        *rest = behind;
        let allowed = any(rest)?;
        let [")", behind @ ..] = *rest else { return None };
        *rest = behind;
        return Some(allowed);
    }
    let (name, behind) = match *rest {
        [name, "WITH", exception, behind @ ..] => (format!("{name} WITH {exception}"), behind),
        [name, behind @ ..] => ((*name).to_owned(), behind),
        [] => return None,
    };
    if ["OR", "AND", "WITH", ")"].contains(&name.as_str()) {
        return None;
    }
    *rest = behind;
    Some(ALLOWED.contains(&name.as_str()))
}

#[test]
fn expressions_are_satisfied_by_what_is_allowed() {
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT/Apache-2.0", true),
        ("GPL-2.0 OR MIT", true),
        ("GPL-2.0 AND MIT", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND OpenSSL", false),
        ("MIT AND GPL-2.0 OR ISC", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-2.0 WITH Classpath-exception-2.0", false),
    ] {
        assert_eq!(is_allowed(expression), Ok(allowed), "{expression}");
    }
    for expression in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "OR MIT", "MIT)"] {
        assert!(is_allowed(expression).is_err(), "{expression}");
    }
}

/// `deny.toml`, for users of cargo-deny, must have the same list.
#[test]
fn deny_toml_allows_the_same() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deny.toml");
    let table: toml::Table = std::fs::read_to_string(path).expect("it is there").parse().expect("it is TOML");
    let allowed = table["licenses"]["allow"].as_array().expect("a list");
    let allowed: Vec<_> = allowed.iter().filter_map(|name| name.as_str()).collect();
    assert_eq!(allowed, ALLOWED);
}
