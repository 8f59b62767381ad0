//! Bounded reading of small files: settings, users, certificates and passwords.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

/// Reads a file of up to `bytes_max` bytes. The file may be a pipe or an endless device: at most `bytes_max` + 1 bytes are read.
///
/// # Errors
/// The file cannot be opened or read, or is longer than `bytes_max`.
pub fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Reads a file as [`read_bounded`] does, and returns its text.
///
/// # Errors
/// As [`read_bounded`], and if the file is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    let bytes = read_bounded(path, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_an_end_are_refused() {
        for device in ["/dev/zero", "/dev/full"] {
            let refused = read_bounded(Path::new(device), 1000).unwrap_err();
            assert_eq!(refused.to_string(), "it has more than 1000 bytes");
        }
        assert_eq!(read_text(Path::new("/dev/null"), 0).unwrap(), "");
    }

    #[test]
    fn a_file_may_be_as_long_as_its_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_text(&path, 3).unwrap(), "abc");
        assert_eq!(read_text(&path, 2).unwrap_err().to_string(), "it has more than 2 bytes");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 3).unwrap_err().to_string(), "it is not UTF-8");
        assert_eq!(read_text(&directory.path().join("none"), 3).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
