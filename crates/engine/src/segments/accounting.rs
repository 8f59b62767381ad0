//! Write accounting of a tier: bytes written, each byte with exactly one cause.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_seeded_bugs::{Bug, planted};

macro_rules! causes {
    ($($name:ident: $meaning:literal,)*) => {
        /// Counts the bytes written to a tier, by cause.
        #[derive(Default)]
        pub(crate) struct WriteAccounting { $($name: AtomicU64,)* }

        /// Bytes written to a tier since the store was opened, by cause. Their sum is the number of bytes written to the
        /// device.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Written { $(#[doc = $meaning] pub $name: u64,)* }

        impl WriteAccounting {
            pub(crate) fn written(&self) -> Written {
                Written { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Written {
            /// Returns the sum of all causes.
            pub fn total(&self) -> u64 {
                0 $(+ self.$name)*
            }

            /// Returns name and bytes of each cause.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

causes! {
    user_bytes: "Records of users, including tombstones: header, key, value, padding to the granule.",
    log_bytes: "Entries of the log of replicated groups.",
    destaged_bytes: "Records copied from the fast tier to the capacity tier.",
    collected_bytes: "Records copied within the tier.",
    recovered_bytes: "Records that an opening recovered from the staging file of the last process, or that were written again after their device failed.",
    frame_header_bytes: "Headers of frames.",
    padding_bytes: "Padding of frames to whole write units.",
    summary_bytes: "Summaries of sealed segments, with their padding.",
    marker_bytes: "Markers of freed slots, each a write unit.",
    superblock_bytes: "Superblocks, and the space around them when the tier was formatted.",
    clearing_bytes: "Zeros that make slots read as free before their first use.",
    zeroed_bytes: "Zeros written ahead of short durable frames into a file's blocks that were never written.",
}

/// Source of records that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    User,
    /// The log of replicated groups.
    Log,
    Destaged,
    Collected,
    Recovered,
}

/// Content of a write to a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// A frame, `payload_bytes` of which are header and records; `header_bytes` of those precede the records.
    Frame {
        origin: Origin,
        header_bytes: u32,
        payload_bytes: u32,
    },
    Summary,
    Marker,
    Zeros,
}

impl WriteAccounting {
    pub(crate) fn count(&self, content: Content, bytes: u64) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        match content {
            Content::Frame { origin, header_bytes, payload_bytes } => {
                let (header, payload) = (u64::from(header_bytes), u64::from(payload_bytes));
                let records = match origin {
                    Origin::Recovered if planted(Bug::RecoveredBookedAsUsers) => &self.user_bytes,
                    Origin::User => &self.user_bytes,
                    Origin::Log => &self.log_bytes,
                    Origin::Destaged => &self.destaged_bytes,
                    Origin::Collected => &self.collected_bytes,
                    Origin::Recovered => &self.recovered_bytes,
                };
                add(records, payload - header);
                add(&self.frame_header_bytes, header);
                add(&self.padding_bytes, bytes - payload);
            }
            Content::Summary => add(&self.summary_bytes, bytes),
            Content::Marker => add(&self.marker_bytes, bytes),
            Content::Zeros => add(&self.zeroed_bytes, bytes),
        }
    }

    pub(crate) fn superblock(&self, bytes: u64) {
        self.superblock_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn clearing(&self, bytes: u64) {
        self.clearing_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
