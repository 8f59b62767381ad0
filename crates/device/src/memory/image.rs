//! The content of an in-memory device. Pages are allocated on their first write, so a large and mostly empty device
//! costs little. A clone shares its pages until one side writes.

use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE_BYTES: u64 = 64 << 10;

static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

#[derive(Clone, Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Image {
    pub(super) fn from_bytes(bytes: &[u8]) -> Image {
        let mut image = Image::default();
        image.write(0, bytes);
        image
    }

    pub(super) fn read(&self, offset: u64, target: &mut [u8]) {
        for (page, within, part) in parts(offset, target.len()) {
            match self.pages.get(&page) {
                Some(bytes) => target[part.clone()].copy_from_slice(&bytes[within..within + part.len()]),
                None => target[part].fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, source: &[u8]) {
        for (page, within, part) in parts(offset, source.len()) {
            let source = &source[part];
            if !self.pages.contains_key(&page) && *source == ZEROS[..source.len()] {
                continue;
            }
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new(vec![0; PAGE_BYTES as usize]));
            Arc::make_mut(bytes)[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Fills a range with zeros, freeing whole pages.
    pub(super) fn clear(&mut self, offset: u64, bytes: u64) {
        let end = offset + bytes;
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|(page, _)| *page).collect();
        for page in touched {
            let start = page * PAGE_BYTES;
            let from = offset.max(start) - start;
            let to = end.min(start + PAGE_BYTES) - start;
            if (from, to) == (0, PAGE_BYTES) {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
        }
    }

    pub(super) fn to_bytes(&self, bytes: u64) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(bytes).expect("a snapshot fits the address space")];
        self.read(0, &mut all);
        all
    }
}

/// Splits a range at page boundaries into page number, offset within the page, and part of the range.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done as u64;
        let within = at % PAGE_BYTES;
        let count = ((PAGE_BYTES - within) as usize).min(bytes - done);
        let part = done..done + count;
        done += count;
        Some((at / PAGE_BYTES, within as usize, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_flat_array() {
        let size = 5 * PAGE_BYTES as usize / 2;
        let mut flat = vec![0u8; size];
        let mut image = Image::default();
        let mut random = 7u64;
        for step in 0..400 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let offset = (random >> 20) as usize % size;
            let bytes = (random >> 40) as usize % (size - offset) + 1;
            if step % 4 == 3 {
                image.clear(offset as u64, bytes as u64);
                flat[offset..offset + bytes].fill(0);
            } else {
                image.write(offset as u64, &vec![step as u8; bytes]);
                flat[offset..offset + bytes].fill(step as u8);
            }
            assert!(image.to_bytes(size as u64) == flat, "step {step}");
        }
        image.clear(0, size as u64 * 2);
        assert_eq!(image.to_bytes(size as u64), vec![0; size]);
    }
}
