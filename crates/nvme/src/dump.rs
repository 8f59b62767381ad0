//! Log pages as text.

use crate::page::{PAGE_BYTES, PageError};

/// Parses a hex dump as `nvme get-log` prints it: lines of an offset, a colon, bytes, and their text between quotation
/// marks. Lines that do not begin with a hexadecimal number and a colon are headings. Several pages may follow each
/// other.
///
/// # Errors
/// If a line of the dump is malformed or missing.
pub(crate) fn hex_dump(text: &str) -> Result<Vec<u8>, PageError> {
    let mut bytes = Vec::new();
    // Start of the page that the current line belongs to.
    let mut page = 0;
    for (number, line) in text.lines().enumerate() {
        let Some((offset, rest)) = line.split_once(':') else { continue };
        let offset = offset.trim();
        let is_offset = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_hexdigit());
        // For example the heading `Device:nvme0 log-id:202`.
        if !is_offset || offset.len() < 4 {
            continue;
        }
        let broken = || PageError::Dump { line: number + 1, text: line.trim().chars().take(60).collect() };
        let offset = usize::from_str_radix(offset, 16).map_err(|_| broken())?;
        if offset == 0 && bytes.len() % PAGE_BYTES == 0 {
            page = bytes.len();
        }
        if offset != bytes.len() - page {
            return Err(broken());
        }
        let hex = rest.split('"').next().unwrap_or_default();
        for byte in hex.split_whitespace() {
            let byte = (byte.len() == 2).then(|| u8::from_str_radix(byte, 16).ok()).flatten();
            bytes.push(byte.ok_or_else(broken)?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvme_cli_dump_is_read_and_broken_dump_refused() {
        let dump = "Device:nvme0n1 log-id:202 namespace-id:0xffffffff\n       0  1  2  3\n\
                    0000: f4 00 00 64 \"...d\"\n0004: 00 f0 39 26 \"..9&\"\n";
        assert_eq!(hex_dump(dump), Ok(vec![0xf4, 0, 0, 0x64, 0, 0xf0, 0x39, 0x26]));
        let gap = dump.replace("0004:", "0008:");
        assert!(matches!(hex_dump(&gap), Err(PageError::Dump { line: 4, .. })));
        let rot = dump.replace("f0 39", "g0 39");
        assert!(matches!(hex_dump(&rot), Err(PageError::Dump { line: 4, .. })));
        assert_eq!(hex_dump("nothing of the kind\n"), Ok(Vec::new()));
    }
}
