//! Which start of the machine this is: what a process left in the page cache is there as long as the machine runs.

/// Number of one start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BootId(pub(super) u64);

impl BootId {
    /// As it is written down; never 0.
    pub(crate) fn number(self) -> u64 {
        self.0.max(1)
    }
}

impl From<u64> for BootId {
    fn from(number: u64) -> BootId {
        BootId(number)
    }
}

/// Number of this start of the machine, if the kernel tells. One that is unknown is the same as no other, not even as one
/// that was unknown: the pages of a file may or may not have outlived what was between.
pub(crate) fn boot_id() -> Option<BootId> {
    parse_boot_id(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?)
}

pub(super) fn parse_boot_id(text: &[u8]) -> Option<BootId> {
    let digits = text.trim_ascii().iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    // A UUID, which never is zero.
    let known = digits == 32 && text.iter().any(|byte| byte.is_ascii_hexdigit() && *byte != b'0');
    known.then(|| BootId(xor_fold(text)))
}

fn xor_fold(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0u64, |sum, chunk| {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum.rotate_left(9) ^ u64::from_le_bytes(word)
    })
}
