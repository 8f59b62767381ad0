//! The files of an append-only file: one file, or since Redis 7 a directory whose manifest names a base
//! and its increments.

use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use crate::terminal::Failure;

/// Ending of the name of a manifest.
const ENDING: &str = ".manifest";

/// Returns the files of `path`, in the order in which they apply: `path` itself, or the files of a
/// manifest. `path` may be a manifest or its directory.
///
/// # Errors
/// If a directory has no manifest or several, or a manifest is invalid.
pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let manifest = if path.is_dir() {
        manifest_in(path)?
    } else if path.to_string_lossy().ends_with(ENDING) {
        path.to_owned()
    } else {
        return Ok(vec![path.to_owned()]);
    };
    let shown = manifest.display();
    let text =
        read_to_string(&manifest).map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
    let names =
        parse(&text).map_err(|(line, what)| Failure::Usage(format!("{shown}, line {line}: {what}")))?;
    if names.is_empty() {
        return Err(Failure::Usage(format!("{shown} names no file of a base or an increment")));
    }
    Ok(names.into_iter().map(|name| manifest.with_file_name(name)).collect())
}

/// Returns true for a directory with a manifest.
pub(crate) fn has_manifest(path: &Path) -> bool {
    manifests_in(path).is_ok_and(|manifests| !manifests.is_empty())
}

/// Returns the manifests of a directory, sorted by name.
fn manifests_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let names = read_dir(directory)?.flatten().map(|entry| entry.path());
    let mut manifests: Vec<PathBuf> = names.filter(|path| path.to_string_lossy().ends_with(ENDING)).collect();
    manifests.sort();
    Ok(manifests)
}

fn manifest_in(directory: &Path) -> Result<PathBuf, Failure> {
    let shown = directory.display();
    let manifests =
        manifests_in(directory).map_err(|error| Failure::Usage(format!("cannot read {shown}: {error}")))?;
    match <[PathBuf; 1]>::try_from(manifests) {
        Ok([manifest]) => Ok(manifest),
        Err(manifests) if manifests.is_empty() => Err(Failure::Usage(format!(
            "{shown} is a directory without a {ENDING} file: give an RDB file, an append-only file, or Redis' appendonlydir"
        ))),
        Err(manifests) => Err(Failure::Usage(format!(
            "{shown} has {} manifests; give the one that is meant, such as {}",
            manifests.len(),
            manifests[0].display()
        ))),
    }
}

/// Returns the names of the base and of the increments in order of their numbers. An error has the number
/// of its line.
fn parse(text: &str) -> Result<Vec<String>, (usize, String)> {
    let (mut base, mut increments) = (None, Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = named(line) else {
            return Err((number, "expected 'file NAME seq NUMBER type b, i or h'".to_owned()));
        };
        if name.contains('/') {
            return Err((
                number,
                format!("'{name}' is a path, and not the name of a file beside the manifest"),
            ));
        }
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let value = |key| words.as_chunks::<2>().0.iter().find(|[name, _]| *name == key).map(|pair| pair[1]);
        let sequence: Option<u64> = value("seq").and_then(|sequence| sequence.parse().ok());
        match (value("type"), sequence) {
            (Some("b"), Some(_)) if base.is_some() => {
                return Err((number, "a second base; a manifest has one".to_owned()));
            }
            (Some("b"), Some(_)) => base = Some(name),
            (Some("i"), Some(sequence)) => increments.push((sequence, name)),
            // A history file, which redis-server no longer reads and has not removed yet.
            (Some("h"), Some(_)) => {}
            _ => return Err((number, "seq needs a number, and type is b, i or h".to_owned())),
        }
    }
    increments.sort();
    Ok(base.into_iter().chain(increments.into_iter().map(|(_, name)| name)).collect())
}

/// Returns the name after `file`, which may be in quotes, and the rest of the line.
fn named(line: &str) -> Option<(String, &str)> {
    let rest = line.strip_prefix("file")?.trim_start();
    let (name, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => rest.split_once(' ')?,
    };
    (!name.is_empty() && !name.contains('\\')).then(|| (name.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_names_base_and_increments_in_order() {
        let text = "file a.aof.2.incr.aof seq 2 type i\nfile \"a b.1.base.rdb\" seq 1 type b\n\
                    file old.rdb seq 9 type h\nfile a.aof.1.incr.aof seq 1 type i startoffset 0\n";
        assert_eq!(
            parse(text),
            Ok(vec![
                "a b.1.base.rdb".to_owned(),
                "a.aof.1.incr.aof".to_owned(),
                "a.aof.2.incr.aof".to_owned()
            ])
        );
    }

    #[test]
    fn manifest_with_faults_is_refused_with_its_line() {
        for (text, line, expected) in [
            ("x\n", 1, "expected 'file NAME"),
            ("file a seq 1 type b\nfile ../b seq 1 type i\n", 2, "is a path"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", 2, "second base"),
            ("file a seq x type b\n", 1, "seq needs a number"),
            ("file a seq 1 type z\n", 1, "type is b, i or h"),
        ] {
            let (found, what) = parse(text).expect_err(text);
            assert!(found == line && what.contains(expected), "{text}: {found} {what}");
        }
    }

    #[test]
    fn directory_stands_for_the_files_of_its_manifest() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        assert!(matches!(files_of(at), Err(Failure::Usage(what)) if what.contains("without a .manifest")));
        std::fs::write(at.join("a.manifest"), "file a.rdb seq 1 type b\n").expect("it is written");
        assert_eq!(files_of(at).ok(), Some(vec![at.join("a.rdb")]));
        assert_eq!(files_of(&at.join("a.manifest")).ok(), Some(vec![at.join("a.rdb")]));
        assert_eq!(files_of(&at.join("a.rdb")).ok(), Some(vec![at.join("a.rdb")]));
        std::fs::write(at.join("b.manifest"), "").expect("it is written");
        assert!(matches!(files_of(at), Err(Failure::Usage(what)) if what.contains("2 manifests")));
    }
}
