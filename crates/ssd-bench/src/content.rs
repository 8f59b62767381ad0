//! Content of a modelled drive, without zeros: the workloads' values are nearly all zeros, so that a drive of many
//! gigabytes fits in memory.

/// Bytes of a line, the unit in which zeros are left out.
const LINE_BYTES: usize = 64;
/// Bytes of a page, whose lines are tracked by a 64-bit mask.
const PAGE_BYTES: usize = 64 * LINE_BYTES;

/// The lines of a page that are not all zeros, in order; `there` is the mask of these lines.
#[derive(Clone, Debug, Default)]
struct Page {
    there: u64,
    lines: Box<[u8]>,
}

impl Page {
    fn of(bytes: &[u8]) -> Page {
        let (mut there, mut lines) = (0, Vec::new());
        for (at, line) in bytes.chunks_exact(LINE_BYTES).enumerate() {
            if line != [0; LINE_BYTES] {
                there |= 1 << at;
                lines.extend_from_slice(line);
            }
        }
        Page { there, lines: lines.into_boxed_slice() }
    }

    fn copy_to(&self, bytes: &mut [u8]) {
        let mut lines = self.lines.chunks_exact(LINE_BYTES);
        for (at, target) in bytes.chunks_exact_mut(LINE_BYTES).enumerate() {
            if self.there & 1 << at == 0 {
                target.fill(0);
            } else {
                target.copy_from_slice(lines.next().expect("there is a line for each bit"));
            }
        }
    }
}

/// The content of a drive.
#[derive(Debug)]
pub(crate) struct Content {
    pages: Vec<Page>,
}

impl Content {
    /// Returns content of zeros.
    pub(crate) fn new(bytes: u64) -> Content {
        Content { pages: vec![Page::default(); bytes.div_ceil(PAGE_BYTES as u64) as usize] }
    }

    /// Writes sectors.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, part) in parts(offset, bytes.len()) {
            let source = &bytes[part];
            if source.len() == PAGE_BYTES {
                self.pages[page] = Page::of(source);
            } else {
                let mut whole = [0; PAGE_BYTES];
                self.pages[page].copy_to(&mut whole);
                whole[within..within + source.len()].copy_from_slice(source);
                self.pages[page] = Page::of(&whole);
            }
        }
    }

    /// Reads sectors.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (page, within, part) in parts(offset, bytes.len()) {
            let target = &mut bytes[part];
            if target.len() == PAGE_BYTES {
                self.pages[page].copy_to(target);
            } else {
                let mut whole = [0; PAGE_BYTES];
                self.pages[page].copy_to(&mut whole);
                target.copy_from_slice(&whole[within..within + target.len()]);
            }
        }
    }

    /// Clears the whole pages of a range: they read as zeros.
    pub(crate) fn clear(&mut self, offset: u64, bytes: u64) {
        let page = PAGE_BYTES as u64;
        let (first, end) = (offset.div_ceil(page), (offset + bytes) / page);
        for at in first..end.max(first) {
            self.pages[at as usize] = Page::default();
        }
    }
}

/// Splits a range at page boundaries into page number, offset within the page, and part of the range.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset as usize + done;
        let within = at % PAGE_BYTES;
        let part = done..bytes.min(done + PAGE_BYTES - within);
        done = part.end;
        Some((at / PAGE_BYTES, within, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_an_array() {
        let size = 3 * PAGE_BYTES;
        let (mut flat, mut content) = (vec![0u8; size], Content::new(size as u64));
        let mut random = 7u64;
        for step in 0..2000usize {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (random >> 20) as usize % size / 512 * 512;
            let bytes = ((random >> 40) as usize % (size - offset) / 512 + 1) * 512;
            let mut source = vec![0; bytes];
            // A few lines of each write are not zero.
            source.iter_mut().step_by(1 + step % 700).for_each(|byte| *byte = step as u8);
            content.write(offset as u64, &source);
            flat[offset..offset + bytes].copy_from_slice(&source);
            let mut found = vec![1; bytes];
            content.read(offset as u64, &mut found);
            assert!(found == flat[offset..offset + bytes], "step {step}");
        }
        let mut found = vec![1; size];
        content.read(0, &mut found);
        assert!(found == flat);
        content.clear(100, 2 * PAGE_BYTES as u64);
        content.read(0, &mut found);
        assert!(found[PAGE_BYTES..2 * PAGE_BYTES].iter().all(|byte| *byte == 0), "a whole page is cleared");
        assert_eq!(found[..PAGE_BYTES], flat[..PAGE_BYTES], "part of one is not");
    }
}
