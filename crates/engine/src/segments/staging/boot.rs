//! Identity of this start of the machine: the page cache keeps the data of a dead process only until the machine stops.

/// Number of one start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BootId(pub(super) u64);

impl BootId {
    /// Returns the number in its stored form; never 0.
    pub(crate) fn number(self) -> u64 {
        self.0.max(1)
    }
}

impl From<u64> for BootId {
    fn from(number: u64) -> BootId {
        BootId(number)
    }
}

/// Returns the number of this start of the machine, if the kernel reports it. An unknown number equals no other, not even
/// another unknown one: the pages of a file may or may not have survived in between.
pub(crate) fn boot_id() -> Option<BootId> {
    parse_boot_id(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?)
}

pub(super) fn parse_boot_id(text: &[u8]) -> Option<BootId> {
    let digits = text.trim_ascii().iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    // A UUID, which is never zero.
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
