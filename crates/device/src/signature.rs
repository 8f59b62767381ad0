//! Recognises existing data on a device, so that the device is not formatted by mistake.

/// Number of bytes from the start of a device that [`foreign_signature`] needs: the farthest magic (btrfs) ends within.
pub const SIGNATURE_BYTES: usize = 68 << 10;

/// First bytes of a device or file with an unfinished restore from a backup. It holds no store yet, but possibly
/// segments of one.
pub const RESTORE_MARK: &[u8; 16] = b"ESKER RESTORING\n";

/// First bytes of a device or file that is being formatted as a store. They are in place while the first pair of
/// superblocks is written, and the second pair replaces them. With this mark, damaged superblocks therefore belong to a
/// store that was never opened.
pub const FORMAT_MARK: &[u8; 16] = b"ESKER FORMATTING";

/// The name under which [`foreign_signature`] reports an unfinished restore.
pub const UNFINISHED_RESTORE: &str = "an unfinished restore of Esker: run esker restore again";

/// Known signatures: offset, magic bytes, name. The order matters if a format embeds another's boot sector.
const SIGNATURES: [(usize, &[u8], &str); 19] = [
    (0, RESTORE_MARK, UNFINISHED_RESTORE),
    (0, FORMAT_MARK, "a store of Esker whose making did not end"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"hsqs", "a SquashFS image"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT32 file system"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (512, b"LABELONE", "an LVM2 physical volume"),
    (0, b"LABELONE", "an LVM2 physical volume"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (1024 + 56, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
    (64 * 1024 + 64, b"_BHRfS_M", "a btrfs file system"),
];

/// Returns the name of the format that the first bytes of a device indicate (pass [`SIGNATURE_BYTES`] of them), or
/// `None` if the device looks empty. Callers check for their own format first, and refuse to format over anything else
/// unless forced.
pub fn foreign_signature(start: &[u8]) -> Option<&'static str> {
    let known = SIGNATURES
        .iter()
        .find(|(offset, magic, _)| start.get(*offset..).is_some_and(|rest| rest.starts_with(magic)))
        .map(|(_, _, name)| *name);
    known
        .or_else(|| is_zfs(start).then_some("a ZFS pool member"))
        .or_else(|| {
            (start.get(510..512) == Some(&[0x55, 0xAA])).then_some("an MBR partition table or boot sector")
        })
        .or_else(|| start.iter().any(|byte| *byte != 0).then_some("data that is not zero"))
}

/// True if the bytes contain a ZFS label: a pool description at 16 KiB that begins with its encoding (XDR, in either
/// byte order of the host) and names the pool.
fn is_zfs(start: &[u8]) -> bool {
    let description = start.get(16 << 10..).unwrap_or_default();
    let description = &description[..description.len().min(4096)];
    matches!(description, [1, 0 | 1, 0, 0, ..]) && description.windows(9).any(|window| window == b"pool_guid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_devices_are_free_and_others_are_named() {
        let empty = vec![0; SIGNATURE_BYTES];
        assert_eq!(foreign_signature(&empty), None);
        assert_eq!(foreign_signature(&[]), None);
        for (offset, magic, name) in SIGNATURES {
            let mut start = empty.clone();
            start[offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(foreign_signature(&start), Some(name));
        }
        let mut mbr = empty.clone();
        mbr[510..512].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(foreign_signature(&mbr), Some("an MBR partition table or boot sector"));
        let mut zfs = empty.clone();
        zfs[16384..16388].copy_from_slice(&[1, 1, 0, 0]);
        zfs[16500..16509].copy_from_slice(b"pool_guid");
        assert_eq!(foreign_signature(&zfs), Some("a ZFS pool member"));
        let mut other = empty;
        other[SIGNATURE_BYTES - 1] = 1;
        assert_eq!(foreign_signature(&other), Some("data that is not zero"));
    }
}
