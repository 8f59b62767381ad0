//! Expands gflags' own flags, which stand for others: `--flagfile`, `--fromenv`, `--tryfromenv`, and
//! `--undefok`.

use std::path::Path;

/// Limit of nested flag files.
const DEEPEST: usize = 16;

/// Returns the value of the flag `name` if `word` is this flag; the value may be the next word.
fn value<'a>(word: &'a str, name: &str, rest: &mut std::slice::Iter<'a, String>) -> Option<&'a str> {
    let body = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?.strip_prefix(name)?;
    match body.strip_prefix('=') {
        Some(value) => Some(value),
        None if body.is_empty() => rest.next().map(String::as_str),
        None => None,
    }
}

/// Returns true if this name in a flag file means this program. `*` matches anything.
fn is_ours(pattern: &str) -> bool {
    let name = Path::new(pattern).file_name().and_then(|name| name.to_str()).unwrap_or(pattern);
    match name.split_once('*') {
        None => ["esker-bench", "db_bench"].contains(&name),
        Some((head, tail)) => {
            ["esker-bench", "db_bench"].iter().any(|ours| ours.starts_with(head) && ours.ends_with(tail))
        }
    }
}

/// Reads the flags of a file: one per line; `#` begins a comment; flags after a line of program names are
/// for these programs only.
fn lines(path: &str) -> Result<Vec<String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("--flagfile={path}: {error}"))?;
    let (mut flags, mut ours, mut after_names) = (Vec::new(), true, false);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('-') {
            after_names = false;
            if ours {
                flags.push(line.to_owned());
            }
            continue;
        }
        let any = line.split_whitespace().any(is_ours);
        ours = any || after_names && ours;
        after_names = true;
    }
    Ok(flags)
}

fn from_environment(
    name: &str,
    must: bool,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, String> {
    match variable(&format!("FLAGS_{name}")) {
        Some(value) => Ok(Some(format!("--{name}={value}"))),
        None if must => Err(format!("--fromenv={name}: there is no FLAGS_{name} in the environment")),
        None => Ok(None),
    }
}

/// Replaces each such flag by the flags that it stands for.
pub(super) fn expand(
    words: &[String],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>, String> {
    expand_to(words, variable, 0)
}

fn expand_to(
    words: &[String],
    variable: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Result<Vec<String>, String> {
    if depth > DEEPEST {
        return Err(format!("--flagfile: files name each other, more than {DEEPEST} deep"));
    }
    let (mut all, mut rest) = (Vec::new(), words.iter());
    while let Some(word) = rest.next() {
        if let Some(paths) = value(word, "flagfile", &mut rest) {
            for path in paths.split(',').filter(|path| !path.is_empty()) {
                all.extend(expand_to(&lines(path)?, variable, depth + 1)?);
            }
            continue;
        }
        let from = ["fromenv", "tryfromenv"].into_iter();
        let named = from.filter_map(|name| Some((name, value(word, name, &mut rest)?))).next();
        let Some((flag, names)) = named else {
            all.push(word.clone());
            continue;
        };
        for name in names.split(',').filter(|name| !name.is_empty()) {
            all.extend(from_environment(name, flag == "fromenv", variable)?);
        }
    }
    Ok(all)
}

/// Returns the names that `--undefok` allows to be unknown.
pub(super) fn may_be_unknown(words: &[String]) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), words.iter());
    while let Some(word) = rest.next() {
        if let Some(list) = value(word, "undefok", &mut rest) {
            names.extend(list.split(',').map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn expanded(line: &str) -> Result<Vec<String>, String> {
        let variable = |name: &str| (name == "FLAGS_num").then(|| "7".to_owned());
        expand(&words(line), &variable)
    }

    #[test]
    fn flags_are_read_from_files_and_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let (outer, inner) = (dir.path().join("outer"), dir.path().join("inner"));
        let text = format!(
            "# of ours\n--num=5\n\nother_program\n--num=6\ndb_*  other\n  --sync\n-flagfile={}\n",
            inner.display()
        );
        std::fs::write(&outer, text).expect("a file");
        std::fs::write(&inner, "--db=/data/a b\n").expect("a file");
        assert_eq!(
            expanded(&format!("--seed=1 --flagfile {} --threads=2", outer.display())),
            Ok(vec![
                "--seed=1".to_owned(),
                "--num=5".into(),
                "--sync".into(),
                "--db=/data/a b".into(),
                "--threads=2".into()
            ])
        );
        assert_eq!(expanded("--fromenv=num --tryfromenv=db,num"), Ok(words("--num=7 --num=7")));
        assert!(expanded("--fromenv=db").is_err_and(|error| error.contains("FLAGS_db")));
        assert!(expanded("--flagfile=/nonexistent").is_err_and(|error| error.contains("/nonexistent")));
        std::fs::write(&inner, format!("--flagfile={}\n", inner.display())).expect("a file");
        assert!(expanded(&format!("--flagfile={}", inner.display())).is_err());
    }
}
