//! Records and the pages of a device: a record does not lie in one page more than it has to, where that costs little.
//!
//! A read of two pages costs a device a fifth more than a read of one. So a record is not begun in the last bytes of a page
//! if it would end in one page more than if it began with the next. Those bytes are zeros, and no record begins with a zero:
//! so whoever walks over records knows where the next one is. See `docs/decisions/0025-small-records.md`.

/// What a device reads, and is taken to displace, as a whole.
pub const PAGE_BYTES: usize = 4096;
/// So much of a page is left empty at most: a sixty-fourth.
pub const GAP_BYTES_MAX: u64 = 64;

/// Bytes from an offset to the end of its page.
#[inline]
pub(crate) fn left_in_page(offset: u64) -> u64 {
    PAGE_BYTES as u64 - offset % PAGE_BYTES as u64
}

/// The bytes that are left empty in front of a record of so many bytes, with its padding, that could begin at `offset`.
#[inline]
pub fn gap_before(offset: u64, bytes: u64) -> u64 {
    let left = left_in_page(offset);
    if left > GAP_BYTES_MAX || bytes <= left {
        return 0;
    }
    let page = PAGE_BYTES as u64;
    if (bytes - left).div_ceil(page) < bytes.div_ceil(page) { 0 } else { left }
}

/// The most that [`gap_before`] can leave empty in front of all of so many records of so many bytes together, the first of
/// which could begin at `offset`.
#[inline]
pub(crate) fn gaps_max(offset: u64, records: usize, bytes: u64) -> u64 {
    let left = left_in_page(offset);
    let first = if left <= GAP_BYTES_MAX && records > 0 { left } else { 0 };
    if records <= 1 {
        return first;
    }
    let more = records as u64 - 1;
    // Each is at the end of a page that the records before it fill.
    let pages = bytes / (PAGE_BYTES as u64 - GAP_BYTES_MAX) + 1;
    first + more.min(pages) * GAP_BYTES_MAX
}

/// Where the record begins that comes next at `at`, behind another one: there, or with the next page. `bytes` are those of the
/// segment from its start.
#[inline]
pub fn skip_gap(bytes: &[u8], at: usize) -> usize {
    let left = left_in_page(at as u64);
    if left <= GAP_BYTES_MAX && bytes.get(at) == Some(&0) { at + left as usize } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_saves_a_page_and_is_small() {
        let pages = |at: u64, bytes: u64| (at + bytes - 1) / 4096 - at / 4096 + 1;
        for bytes in (4..9000).step_by(4) {
            for at in (8192 - 200..8192 + 8).step_by(4) {
                let gap = gap_before(at, bytes);
                let (here, next) = (pages(at, bytes), pages(at + left_in_page(at), bytes));
                let saves = left_in_page(at) <= GAP_BYTES_MAX && next < here;
                assert_eq!(gap, if saves { left_in_page(at) } else { 0 }, "{bytes} bytes at {at}");
            }
        }
    }

    #[test]
    fn gaps_are_no_more_than_is_kept_for_them() {
        for bytes in [20, 56, 132, 1020, 2044, 4100, 4140] {
            for start in [64, 2000, 4032, 4040, 4092] {
                let (mut at, mut gaps) = (start, 0);
                for records in 1..300 {
                    gaps += gap_before(at, bytes);
                    at = start + gaps + records * bytes;
                    assert!(
                        gaps <= gaps_max(start, records as usize, records * bytes),
                        "{records} of {bytes}"
                    );
                }
            }
        }
    }
}
