//! NVMe log pages with write counters.

/// Length of each page in bytes.
pub(crate) const PAGE_BYTES: usize = 512;

/// Row of the vendor page: number, two reserved bytes, normalized value, one reserved byte, six bytes of raw value, one
/// reserved byte. Source: the coarse-IU white paper, whose examples are the test data here.
const ROW_BYTES: usize = 12;
const RAW: std::ops::Range<usize> = 5..11;
const NAND_BYTES_WRITTEN: u8 = 0xF4;
const HOST_BYTES_WRITTEN: u8 = 0xF5;
/// Unit of both counters in bytes.
const VENDOR_UNIT_BYTES: u128 = 32 << 20;

/// Identity at the end of the OCP page: AFD514C9-7C6F-4F9C-A4F2-BFEA2810AFC5, least significant byte first. Source: OCP
/// Datacenter NVMe SSD specification, "SMART / Health Information Extended (Log Identifier C0h)".
const OCP_GUID: [u8; 16] =
    [0xC5, 0xAF, 0x10, 0x28, 0xEA, 0xBF, 0xF2, 0xA4, 0x9C, 0x4F, 0x6F, 0x7C, 0xC9, 0x14, 0xD5, 0xAF];

/// Position of "data units written" in the SMART / health information page, and its unit. Source: NVM Express base
/// specification, "SMART / Health Information (02h)": thousands of 512 bytes, rounded up.
const DATA_UNITS_WRITTEN: std::ops::Range<usize> = 48..64;
const DATA_UNIT_BYTES: u128 = 512_000;

/// A log page with write counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// Vendor attributes of drives made by Intel and Solidigm: bytes written to the flash and by the host.
    Vendor,
    /// OCP: bytes written to the flash.
    Ocp,
    /// SMART / health information, which every drive has: bytes written by the host.
    Health,
}

/// Write counters in bytes, over the life of the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes written to the flash.
    pub media_bytes: Option<u128>,
    /// Bytes written by the host.
    pub host_bytes: Option<u128>,
}

/// The reason why bytes are not a valid log page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// The length is wrong.
    #[error("the log page has {0} bytes instead of {PAGE_BYTES}; save the whole page")]
    Length(usize),
    /// The vendor's page lacks a required row.
    #[error("log page 0xca has no row {0:#04x}; try log page 0xc0 instead")]
    MissingRow(u8),
    /// The page does not have the OCP identity.
    #[error("log page 0xc0 is not the OCP page: it does not end with the OCP identity")]
    NotOcp,
    /// A line is not part of a hex dump.
    #[error("line {line} of the hex dump is not an offset and bytes: {text}")]
    Dump {
        /// Line number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
}

impl Page {
    /// Returns the log page identifier.
    pub fn id(self) -> u8 {
        match self {
            Page::Vendor => 0xCA,
            Page::Ocp => 0xC0,
            Page::Health => 0x02,
        }
    }

    /// Parses the page.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse(self, bytes: &[u8]) -> Result<Counters, PageError> {
        if bytes.len() != PAGE_BYTES {
            return Err(PageError::Length(bytes.len()));
        }
        match self {
            Page::Vendor => {
                let units = |id| row(bytes, id).map(|units| units * VENDOR_UNIT_BYTES);
                let (media, host) = (units(NAND_BYTES_WRITTEN)?, units(HOST_BYTES_WRITTEN)?);
                Ok(Counters { media_bytes: Some(media), host_bytes: Some(host) })
            }
            Page::Ocp if bytes[PAGE_BYTES - 16..] != OCP_GUID => Err(PageError::NotOcp),
            Page::Ocp => Ok(Counters { media_bytes: Some(number(&bytes[..16])), host_bytes: None }),
            Page::Health => {
                let host = number(&bytes[DATA_UNITS_WRITTEN]).saturating_mul(DATA_UNIT_BYTES);
                Ok(Counters { media_bytes: None, host_bytes: Some(host) })
            }
        }
    }

    /// Guesses the page type: the OCP page by its identity, the vendor's page by its rows.
    pub fn of(bytes: &[u8]) -> Page {
        let is_vendor = Page::Vendor.parse(bytes).is_ok();
        match bytes.ends_with(&OCP_GUID) {
            true => Page::Ocp,
            false if is_vendor => Page::Vendor,
            // The critical warning has six bits, and the temperature is between 200 and 500 kelvins.
            false
                if bytes.len() == PAGE_BYTES
                    && bytes[0] < 64
                    && (200..500).contains(&number(&bytes[1..3])) =>
            {
                Page::Health
            }
            false => Page::Vendor,
        }
    }
}

/// Returns the raw value of a row.
fn row(bytes: &[u8], id: u8) -> Result<u128, PageError> {
    // Looks only at the starts of rows, because another row's value may contain the same byte.
    let found = bytes.chunks_exact(ROW_BYTES).find(|row| row[0] == id).ok_or(PageError::MissingRow(id))?;
    Ok(number(&found[RAW]))
}

/// Decodes a little-endian number of at most 16 bytes.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

impl Counters {
    /// Fills missing counters from another page.
    pub fn or(self, other: Counters) -> Counters {
        Counters {
            media_bytes: self.media_bytes.or(other.media_bytes),
            host_bytes: self.host_bytes.or(other.host_bytes),
        }
    }

    /// Returns the bytes written to the flash per byte written by the host; `None` if either is unknown, or the host
    /// wrote nothing.
    pub fn write_amplification(&self) -> Option<f64> {
        let (media, host) = (self.media_bytes?, self.host_bytes.filter(|host| *host > 0)?);
        Some(media as f64 / host as f64)
    }

    /// Returns the increase since `before`; `None` if a counter decreased, as between different drives.
    pub fn since(&self, before: &Counters) -> Option<Counters> {
        let less = |now: Option<u128>, then: Option<u128>| match (now, then) {
            (Some(now), Some(then)) => now.checked_sub(then).map(Some),
            _ => Some(None),
        };
        let media_bytes = less(self.media_bytes, before.media_bytes)?;
        Some(Counters { media_bytes, host_bytes: less(self.host_bytes, before.host_bytes)? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Rows of the white paper's dump.
    const F4: [u8; 12] = [0xf4, 0, 0, 0x64, 0, 0xf0, 0x39, 0x26, 0x02, 0, 0, 0];
    const F5: [u8; 12] = [0xf5, 0, 0, 0x64, 0, 0x17, 0x02, 0x6f, 0x01, 0, 0, 0];

    pub(crate) fn vendor_page() -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[24..36].copy_from_slice(&F4);
        page[36..48].copy_from_slice(&F5);
        page
    }

    pub(crate) fn ocp_page(media_bytes: u128) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[..16].copy_from_slice(&media_bytes.to_le_bytes());
        page[PAGE_BYTES - 16..].copy_from_slice(&OCP_GUID);
        page
    }

    pub(crate) fn health_page(data_units: u128) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[1..3].copy_from_slice(&310u16.to_le_bytes());
        page[DATA_UNITS_WRITTEN].copy_from_slice(&data_units.to_le_bytes());
        page
    }

    #[test]
    fn white_paper_dump_is_read() {
        assert_eq!((row(&F4, 0xf4), row(&F5, 0xf5)), (Ok(36_059_632), Ok(24_052_247)));
        let counters = Page::Vendor.parse(&vendor_page()).expect("it is one");
        assert_eq!(counters.media_bytes, Some(36_059_632 << 25));
        assert_eq!(format!("{:.4}", counters.write_amplification().expect("both are known")), "1.4992");
        assert_eq!(Page::of(&vendor_page()), Page::Vendor);
    }

    #[test]
    fn ocp_page_counts_flash_and_health_page_host() {
        let (ocp, health) = (ocp_page(3 << 70), health_page(2000));
        let mut anonymous = ocp.clone();
        anonymous[PAGE_BYTES - 1] = 0;
        assert_eq!(Page::Ocp.parse(&anonymous), Err(PageError::NotOcp));
        assert_eq!((Page::of(&ocp), Page::of(&health)), (Page::Ocp, Page::Health));
        let both =
            Page::Ocp.parse(&ocp).expect("it is one").or(Page::Health.parse(&health).expect("it is one"));
        assert_eq!(both, Counters { media_bytes: Some(3 << 70), host_bytes: Some(1_024_000_000) });
    }

    #[test]
    fn value_like_row_start_is_no_row() {
        for looks_like in [NAND_BYTES_WRITTEN, HOST_BYTES_WRITTEN] {
            let mut page = vendor_page();
            page[..12].copy_from_slice(&[0xe2, 0, 0, 0x64, 0, looks_like, 0, 0, 0, 0, 0, 0]);
            assert_eq!(Page::Vendor.parse(&page), Page::Vendor.parse(&vendor_page()), "{looks_like:#x}");
        }
    }

    #[test]
    fn non_page_is_refused() {
        assert_eq!(Page::Vendor.parse(&[0; 511]), Err(PageError::Length(511)));
        assert_eq!(Page::Vendor.parse(&[0; PAGE_BYTES]), Err(PageError::MissingRow(0xf4)));
        let mut half = vendor_page();
        half[36..48].fill(0);
        assert_eq!(Page::Vendor.parse(&half), Err(PageError::MissingRow(0xf5)));
    }

    #[test]
    fn interval_is_difference_unless_counter_decreased() {
        let at = |media, host| Counters { media_bytes: Some(media), host_bytes: Some(host) };
        let since = at(150, 120).since(&at(100, 80)).expect("they grew");
        assert_eq!((since, since.write_amplification()), (at(50, 40), Some(1.25)));
        assert_eq!(at(150, 70).since(&at(100, 80)), None);
        assert_eq!(at(100, 80).since(&at(100, 80)).and_then(|none| none.write_amplification()), None);
    }
}
