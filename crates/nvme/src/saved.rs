//! Log pages saved in a file.

use std::path::Path;

use crate::drive::DriveError;
use crate::dump::hex_dump;
use crate::page::{Counters, PAGE_BYTES, Page, PageError};

/// Returns the combined counters of the pages in a file: one or several pages, binary or as printed by `nvme get-log`.
/// `page`: the type of a single page, if known; otherwise it is guessed from the content.
///
/// # Errors
/// [`DriveError::Open`] if the file cannot be read, [`DriveError::Page`] if it contains anything else.
pub fn saved(path: &Path, page: Option<Page>) -> Result<Counters, DriveError> {
    let file = std::fs::read(path).map_err(|error| DriveError::Open { path: path.to_owned(), error })?;
    pages(file, page).map_err(|error| DriveError::Page { path: path.to_owned(), error })
}

fn pages(file: Vec<u8>, page: Option<Page>) -> Result<Counters, PageError> {
    let bytes = match std::str::from_utf8(&file) {
        // A binary page may be valid UTF-8 too, but contains zeros.
        Ok(text) if !text.contains('\0') => hex_dump(text)?,
        _ => file,
    };
    if bytes.is_empty() || bytes.len() % PAGE_BYTES != 0 {
        return Err(PageError::Length(bytes.len()));
    }
    let mut all = Counters::default();
    for bytes in bytes.chunks(PAGE_BYTES) {
        all = all.or(page.unwrap_or_else(|| Page::of(bytes)).parse(bytes)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::{health_page, ocp_page, vendor_page};

    #[test]
    fn consecutive_pages_are_merged() {
        let both = [ocp_page(3 << 30), health_page(2000)].concat();
        let counters = pages(both, None).expect("they are pages");
        assert_eq!((counters.media_bytes, counters.host_bytes), (Some(3 << 30), Some(1_024_000_000)));
        let one = pages(vendor_page(), None).expect("it is a page");
        assert_eq!(one, Page::Vendor.parse(&vendor_page()).expect("it is one"));
    }

    #[test]
    fn consecutive_dumps_are_pages() {
        let dump = |page: Vec<u8>| {
            let lines = page.chunks(16).enumerate().map(|(number, line)| {
                let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{:04x}: {} \"................\"\n", number * 16, hex.join(" "))
            });
            "Device:nvme0 log-id:192\n       0  1  2  3\n".to_owned() + &lines.collect::<String>()
        };
        let text = dump(ocp_page(5 << 20)) + &dump(health_page(10));
        let counters = pages(text.clone().into_bytes(), None).expect("they are pages");
        assert_eq!((counters.media_bytes, counters.host_bytes), (Some(5 << 20), Some(5_120_000)));
        // The first of them is incomplete.
        let cut = text.replacen("01f0: ", "", 1);
        assert!(matches!(pages(cut.into_bytes(), None), Err(PageError::Dump { .. })));
    }

    #[test]
    fn incomplete_page_is_refused() {
        for bytes in [0, 511, 513] {
            assert_eq!(pages(vec![0; bytes], None), Err(PageError::Length(bytes)));
        }
        assert!(
            saved(Path::new("/nowhere"), None)
                .expect_err("it is not there")
                .to_string()
                .starts_with("/nowhere: ")
        );
    }
}
