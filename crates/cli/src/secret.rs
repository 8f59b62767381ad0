//! Secrets in files, as provided by container platforms and systemd credentials.

use std::path::Path;

use esker_server::read_text;

/// Limit of a file with a secret, in bytes.
const BYTES_MAX: u64 = 4096;

/// Returns the first line of a file.
///
/// # Errors
/// A sentence that names the file, without any of its content.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = read_text(path, BYTES_MAX)
        .map_err(|error| format!("cannot read the password of {shown}: {error}"))?;
    match text.lines().next().map(str::trim_end).filter(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(format!("{shown} holds no password: its first line is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_first_line() {
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
        assert!(read(Path::new("/dev/zero")).unwrap_err().contains("more than 4096 bytes"));
        assert!(read(&directory.path().join("none")).unwrap_err().contains("none"));
    }
}
