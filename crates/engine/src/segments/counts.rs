//! Numbers of segments of a tier, by state and by class.

macro_rules! counts {
    ($(#[$about:meta])* $type:ident { $($name:ident: $meaning:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $type { $(#[doc = $meaning] pub $name: u64,)* }

        impl $type {
            /// Iterates over all counts, each with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    /// Numbers of segments of a tier, by state.
    States {
        free: "Empty: available, being prepared, or being discarded.",
        open: "Being written, or prepared for writing.",
        sealed: "Written, with a summary.",
        relocating: "Being relocated.",
        damaged: "Kept, because some of their content cannot be read or does not verify.",
    }
}

counts! {
    /// Numbers of segments of a tier, by write stream.
    Classes {
        lane: "Puts; if records are separated by lifetime, only short-lived ones.",
        large: "Large values that were written directly to the capacity tier.",
        long_lived: "Long-lived puts.",
        destaged: "Destaged records; if records are separated by lifetime, only short-lived ones.",
        collected_short_lived: "Records collected from segments of short-lived records.",
        collected_young: "Collected records, the youngest.",
        collected_middle: "Collected records of middle age.",
        collected_old: "Collected records, the oldest.",
        other: "Records of a write stream that is unknown to this version.",
    }
}

impl Classes {
    /// Names the counts, given by stream and then of all other streams.
    pub(crate) fn of(counts: [u64; 9]) -> Classes {
        let [lane, large, long_lived, destaged, short_lived, young, middle, old, other] = counts;
        Classes {
            lane,
            large,
            long_lived,
            destaged,
            collected_short_lived: short_lived,
            collected_young: young,
            collected_middle: middle,
            collected_old: old,
            other,
        }
    }
}
