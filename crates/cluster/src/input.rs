//! Parts of messages and entries: strings, bytes, and numbers of variable length. Every length is checked against the bytes that are left
//! before memory is allocated.

use bytes::{Buf, BufMut, Bytes};

/// Appends a number in groups of seven bits, the lowest first.
pub(crate) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.put_u8(number as u8 | 0x80);
        number >>= 7;
    }
    to.put_u8(number as u8);
}

/// Takes a number. Returns `None` if it does not end, is longer than 64 bits, or is not in its shortest form.
pub(crate) fn get_number(from: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        let bits = u64::from(byte & 0x7F);
        if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Appends bytes and, before them, their length as a number.
pub(crate) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_number(to, bytes.len() as u64);
    to.put_slice(bytes);
}

/// Takes bytes with their length. They share the memory of the message.
pub(crate) fn get_bytes(from: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(get_number(from)?).ok()?;
    (length <= from.len()).then(|| from.split_to(length))
}

/// Maximum length of a text in a message, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4096;

/// Appends a text, cut to [`TEXT_BYTES_MAX`].
pub(crate) fn put_text(to: &mut Vec<u8>, text: &str) {
    put_bytes(to, &text.as_bytes()[..text.floor_char_boundary_of(TEXT_BYTES_MAX)]);
}

/// Takes a text of at most [`TEXT_BYTES_MAX`].
pub(crate) fn get_text(from: &mut Bytes) -> Option<String> {
    let bytes = get_bytes(from).filter(|bytes| bytes.len() <= TEXT_BYTES_MAX)?;
    str::from_utf8(&bytes).ok().map(str::to_owned)
}

/// Takes a byte that is 0 or 1.
pub(crate) fn get_bool(from: &mut Bytes) -> Option<bool> {
    match from.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// `str::floor_char_boundary` is newer than the oldest supported compiler.
trait FloorCharBoundary {
    fn floor_char_boundary_of(&self, at: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_of(&self, at: usize) -> usize {
        let at = at.min(self.len());
        (0..=at).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}
