//! A running hash of all decisions. Equal traces mean, in practice, equal runs.

/// FNV-1a over 64-bit words, finished by a multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Trace {
        let mut trace = Trace { hash: 0xCBF2_9CE4_8422_2325, events: 0 };
        trace.record(&[seed]);
        trace
    }

    pub(crate) fn record(&mut self, words: &[u64]) {
        self.events += 1;
        for word in words {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        (self.hash ^ self.events).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}
