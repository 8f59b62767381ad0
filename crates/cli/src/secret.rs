//! Secrets in files, as container platforms and systemd's credentials hand them over.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// No file with a secret is longer.
const BYTES_MAX: u64 = 4096;

/// The first line of a file.
///
/// # Errors
/// A sentence that names the file, and nothing that is in it.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let mut text = String::new();
    // Not by the length that the file claims: devices and pipes have none.
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("{shown} has more than {BYTES_MAX} bytes; a file with a password has no more"));
    }
    match text.lines().next().map(str::trim_end).filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(format!("{shown} holds no password: its first line is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        for (text, expected) in [("sesame\n", Ok("sesame")), ("open sesame\r\nrest", Ok("open sesame"))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path).as_deref(), expected.as_ref().map(|secret| *secret));
        }
        for (text, expected) in
            [("\nsesame", "first line is empty"), (&"x".repeat(5000), "more than 4096 bytes")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err();
            assert!(error.contains(expected) && !error.contains("sesame"), "{error}");
        }
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(error.contains("more than 4096 bytes"), "{error}");
        assert!(read(&directory.path().join("none")).unwrap_err().contains("none"));
    }
}
