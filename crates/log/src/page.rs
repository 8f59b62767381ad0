//! Alignment of records to device pages: a record touches no more pages than necessary, if avoiding that costs little.
//!
//! A read of two pages costs a device a fifth more than a read of one. So a record does not begin in the last bytes of
//! a page if it would touch one page more than if it began on the next page. The skipped bytes are zeros, and no record
//! begins with a zero, so a sequential reader of records can find the next one. See
//! `docs/decisions/0025-small-records.md`.

/// Page size in bytes: the unit in which a device reads, and the assumed unit of misdirected I/O.
pub const PAGE_BYTES: usize = 4096;
/// Maximum number of bytes left empty at the end of a page: a sixty-fourth.
pub const GAP_BYTES_MAX: u64 = 64;

/// Returns the bytes from an offset to the end of its page.
#[inline]
pub(crate) fn left_in_page(offset: u64) -> u64 {
    PAGE_BYTES as u64 - offset % PAGE_BYTES as u64
}

/// Returns the bytes left empty before a record of `bytes` bytes, with its padding, that could begin at `offset`.
#[inline]
pub fn gap_before(offset: u64, bytes: u64) -> u64 {
    let left = left_in_page(offset);
    if left > GAP_BYTES_MAX || bytes <= left {
        return 0;
    }
    let page = PAGE_BYTES as u64;
    if (bytes - left).div_ceil(page) < bytes.div_ceil(page) { 0 } else { left }
}

/// Returns the maximum that [`gap_before`] leaves empty in total before `records` records of `bytes` bytes in total,
/// the first of which could begin at `offset`.
#[inline]
pub(crate) fn gaps_max(offset: u64, records: usize, bytes: u64) -> u64 {
    let left = left_in_page(offset);
    let first = if left <= GAP_BYTES_MAX && records > 0 { left } else { 0 };
    if records <= 1 {
        return first;
    }
    let more = records as u64 - 1;
    // In the worst case each gap is at the end of a page that the previous records fill.
    let pages = bytes / (PAGE_BYTES as u64 - GAP_BYTES_MAX) + 1;
    first + more.min(pages) * GAP_BYTES_MAX
}

/// Returns the offset of the next record if the previous one ends at `at`: `at` itself, or the start of the next page.
/// `bytes` are the segment's bytes from its start.
#[inline]
pub fn skip_gap(bytes: &[u8], at: usize) -> usize {
    let left = left_in_page(at as u64);
    if left <= GAP_BYTES_MAX && bytes.get(at) == Some(&0) { at + left as usize } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_saves_a_page_and_is_small() {
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
    fn gaps_fit_their_reservation() {
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
