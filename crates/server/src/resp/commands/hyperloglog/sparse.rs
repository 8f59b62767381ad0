//! The sparse form: a sequence of runs of registers with the same value.
//!
//! | bits | |
//! |---|---|
//! | `00nnnnnn` | n + 1 registers of 0 |
//! | `01nnnnnn nnnnnnnn` | n + 1 registers of 0 |
//! | `1vvvvvnn` | n + 1 registers of v + 1 |
//!
//! The bytes depend on where runs are split and joined, so this is done exactly as in Redis.

use super::sketch::{HEADER_BYTES, Unusable};

/// Length in bytes above which a value becomes dense: Redis' default of `hll-sparse-max-bytes`.
const BYTES_MAX: usize = 3000;

/// Highest register value of this form, and longest run of a nonzero value.
const VALUE_MAX: u8 = 32;
const VALUES_MAX: usize = 4;

/// Longest run of zeros in one byte.
const SHORT_ZEROS_MAX: usize = 64;

/// Number of runs that are checked for two that can be joined.
const LOOKED_AT: usize = 5;

/// A run of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) value: u8,
    pub(super) registers: usize,
    /// Bytes of the encoded run.
    pub(super) bytes: usize,
}

impl Run {
    /// Returns the run at the beginning of the bytes, or `None` if it is truncated.
    pub(super) fn read(bytes: &[u8]) -> Option<Run> {
        Some(match *bytes.first()? {
            byte @ 0x80.. => {
                let (value, registers) = ((byte >> 2 & 0x1F) + 1, usize::from(byte & 3) + 1);
                Run { value, registers, bytes: 1 }
            }
            byte @ 0x40.. => {
                let registers = usize::from(byte & 0x3F) << 8 | usize::from(*bytes.get(1)?);
                Run { value: 0, registers: registers + 1, bytes: 2 }
            }
            byte => Run { value: 0, registers: usize::from(byte) + 1, bytes: 1 },
        })
    }
}

/// Appends a run of zeros, unless it is empty.
pub(super) fn put_zeros(bytes: &mut Vec<u8>, registers: usize) {
    match registers.checked_sub(1) {
        Some(less) if registers > SHORT_ZEROS_MAX => bytes.extend([0x40 | (less >> 8) as u8, less as u8]),
        Some(less) => bytes.push(less as u8),
        None => {}
    }
}

/// Appends a run of a value, unless it is empty.
fn put_values(bytes: &mut Vec<u8>, value: u8, registers: usize) {
    if registers > 0 {
        bytes.push(values(value, registers));
    }
}

fn values(value: u8, registers: usize) -> u8 {
    0x80 | (value - 1) << 2 | (registers - 1) as u8
}

/// The outcome of raising a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// The register has that value or a higher one.
    Kept,
    Raised,
    /// This form cannot represent the value, or would become too long. Nothing has changed.
    TooLong,
}

/// Raises a register to a value, unless its value is at least that.
pub(super) fn raise(bytes: &mut Vec<u8>, register: usize, value: u8) -> Result<Set, Unusable> {
    if value > VALUE_MAX {
        return Ok(Set::TooLong);
    }
    let (mut at, mut first, mut before) = (HEADER_BYTES, 0, None);
    let run = loop {
        let run = Run::read(&bytes[at..]).ok_or(Unusable::Corrupted)?;
        if register < first + run.registers {
            break run;
        }
        before = Some(at);
        at += run.bytes;
        first += run.registers;
    };
    if run.value >= value {
        return Ok(Set::Kept);
    }
    let (left, right) = (register - first, first + run.registers - 1 - register);
    let mut parts = Vec::with_capacity(5);
    let put = |parts: &mut Vec<u8>, registers| match run.value {
        0 => put_zeros(parts, registers),
        value => put_values(parts, value, registers),
    };
    put(&mut parts, left);
    put_values(&mut parts, value, 1);
    put(&mut parts, right);
    if parts.len() > run.bytes && bytes.len() - run.bytes + parts.len() > BYTES_MAX {
        return Ok(Set::TooLong);
    }
    bytes.splice(at..at + run.bytes, parts);
    join_runs(bytes, before.unwrap_or(HEADER_BYTES));
    Ok(Set::Raised)
}

/// Joins adjacent runs of the same value, among a few runs from `at` on.
fn join_runs(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..LOOKED_AT {
        let Some(run) = bytes.get(at..).and_then(Run::read) else { return };
        let next = bytes.get(at + 1..).and_then(Run::read);
        let joined = next.filter(|next| run.value > 0 && next.value == run.value);
        match joined.map(|next| run.registers + next.registers) {
            Some(registers) if registers <= VALUES_MAX => {
                bytes[at] = values(run.value, registers);
                bytes.remove(at + 1);
            }
            _ => at += run.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sketch::{REGISTERS, Sketch, each_run, is_dense};
    use super::*;

    proptest! {
        #[test]
        fn registers_are_those_of_a_plain_list_in_both_forms(
            raised in prop::collection::vec((0..200_usize, 1..40_u8, any::<bool>()), 1..600),
        ) {
            let (mut sketch, mut plain) = (Sketch::new(), vec![0; REGISTERS]);
            for (register, value, far) in raised {
                let register = if far { register * 83 % REGISTERS } else { register };
                let less = plain[register] < value;
                prop_assert_eq!(sketch.raise(register, value), Ok(less));
                plain[register] = plain[register].max(value);
            }
            let value = sketch.into_bytes();
            prop_assert!(is_dense(&value) || value.len() <= BYTES_MAX);
            let mut found = Vec::new();
            each_run(&value, |value, registers| found.extend(registers.map(|_| value))).expect("the value is valid");
            prop_assert_eq!(found, plain);
        }
    }

    #[test]
    fn runs_are_parted_and_joined() {
        let mut bytes = vec![0; HEADER_BYTES];
        put_zeros(&mut bytes, REGISTERS);
        assert_eq!(bytes[HEADER_BYTES..], [0x7F, 0xFF]);
        for register in [100, 102, 101, 103, 104] {
            assert_eq!(raise(&mut bytes, register, 5), Ok(Set::Raised));
            assert_eq!(raise(&mut bytes, register, 4), Ok(Set::Kept));
        }
        // 100 zeros, four of 5, one of 5, and zeros.
        assert_eq!(bytes[HEADER_BYTES..], [0x40, 99, 0x80 | 4 << 2 | 3, 0x80 | 4 << 2, 0x7F, 0x96]);
        assert_eq!(raise(&mut bytes, 101, 33), Ok(Set::TooLong));
        assert_eq!(raise(&mut vec![0; HEADER_BYTES], 0, 1), Err(Unusable::Corrupted));
    }
}
