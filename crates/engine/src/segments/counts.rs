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
        free: "Empty, whether they can be taken at once or are being prepared or discarded.",
        open: "Being written, or ready to be.",
        sealed: "Written, with a summary.",
        relocating: "Being emptied.",
        damaged: "Kept as they are, because something in them cannot be read.",
    }
}

counts! {
    /// Numbers of segments of a tier, by write stream.
    Classes {
        lane: "Puts as they come; where they are told apart, those that are expected to live briefly.",
        large: "Large values that went straight to the capacity tier.",
        long_lived: "Puts that are expected to last.",
        destaged: "Destaged records that are expected to live briefly.",
        collected_short_lived: "Collected out of segments of short-lived records.",
        collected_young: "Collected records, the youngest.",
        collected_middle: "Collected records of middle age.",
        collected_old: "Collected records, the oldest.",
        other: "Of a flow that this version does not know.",
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
