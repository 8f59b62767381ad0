//! The bytes of a HyperLogLog: a header and 16,384 registers in one of two forms.
//!
//! | bytes | |
//! |---|---|
//! | 4 | `HYLL` |
//! | 1 | the form: 0 dense, 1 sparse |
//! | 3 | not used |
//! | 8 | the count, little-endian; the highest bit is set if it is unknown |
//!
//! Dense registers have six bits each, from the lowest bit of the first byte on. Sparse ones are runs: see `sparse`.

use std::ops::Range;

use super::sparse::{self, Set};

pub(super) const REGISTERS: usize = 1 << 14;
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * REGISTER_BITS / 8;

const REGISTER_BITS: usize = 6;
const REGISTER_MASK: u16 = (1 << REGISTER_BITS) - 1;

const MAGIC: &[u8] = b"HYLL";
const FORM_AT: usize = 4;
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const COUNT_AT: usize = 8;
const COUNT_UNKNOWN: u64 = 1 << 63;

/// Maximum length of the sparse form: no runs of all registers take more bytes.
const SPARSE_BYTES_MAX: usize = HEADER_BYTES + REGISTERS * 2;

/// The reason why a value cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The value is not a HyperLogLog.
    Other,
    /// The value has the header of a HyperLogLog, but is invalid.
    Corrupted,
}

fn check(value: &[u8]) -> Result<(), Unusable> {
    if value.len() < HEADER_BYTES || !value.starts_with(MAGIC) {
        return Err(Unusable::Other);
    }
    match value[FORM_AT] {
        DENSE if value.len() == DENSE_BYTES => Ok(()),
        SPARSE if value.len() <= SPARSE_BYTES_MAX => Ok(()),
        SPARSE => Err(Unusable::Corrupted),
        _ => Err(Unusable::Other),
    }
}

/// Returns true if a valid value is dense.
pub(super) fn is_dense(value: &[u8]) -> bool {
    value[FORM_AT] == DENSE
}

fn count_field(value: &[u8]) -> u64 {
    let field = value[COUNT_AT..].first_chunk().expect("the value has a header");
    u64::from_le_bytes(*field)
}

/// Returns the count cached in a value, if it is known.
pub(super) fn cached_count(value: &[u8]) -> Result<Option<u64>, Unusable> {
    check(value)?;
    Ok(Some(count_field(value)).filter(|count| count & COUNT_UNKNOWN == 0))
}

/// Calls a function with the value and range of each run of registers. An error may follow after some calls.
pub(super) fn each_run(value: &[u8], mut each: impl FnMut(u8, Range<usize>)) -> Result<(), Unusable> {
    check(value)?;
    if is_dense(value) {
        (0..REGISTERS).for_each(|register| each(dense(value, register), register..register + 1));
        return Ok(());
    }
    let (mut register, mut rest) = (0, &value[HEADER_BYTES..]);
    while !rest.is_empty() {
        let run = sparse::Run::read(rest).ok_or(Unusable::Corrupted)?;
        if register + run.registers > REGISTERS {
            return Err(Unusable::Corrupted);
        }
        each(run.value, register..register + run.registers);
        register += run.registers;
        rest = &rest[run.bytes..];
    }
    if register == REGISTERS { Ok(()) } else { Err(Unusable::Corrupted) }
}

/// Returns the byte in which a dense register begins, and the bit in it.
fn place(register: usize) -> (usize, usize) {
    let bit = register * REGISTER_BITS;
    (HEADER_BYTES + bit / 8, bit % 8)
}

/// Returns two bytes as a number; beyond the end, the second is zero.
fn pair(value: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([value[at], value.get(at + 1).copied().unwrap_or(0)])
}

fn dense(value: &[u8], register: usize) -> u8 {
    let (at, shift) = place(register);
    (pair(value, at) >> shift & REGISTER_MASK) as u8
}

fn set_dense(value: &mut [u8], register: usize, to: u8) {
    let (at, shift) = place(register);
    let both = pair(value, at) & !(REGISTER_MASK << shift) | u16::from(to) << shift;
    let [low, high] = both.to_le_bytes();
    value[at] = low;
    if let Some(byte) = value.get_mut(at + 1) {
        *byte = high;
    }
}

/// A HyperLogLog that is being changed.
pub(super) struct Sketch {
    bytes: Vec<u8>,
}

impl Sketch {
    /// Returns the sketch of an empty set.
    pub(super) fn new() -> Sketch {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(HEADER_BYTES, 0);
        bytes[FORM_AT] = SPARSE;
        sparse::put_zeros(&mut bytes, REGISTERS);
        Sketch { bytes }
    }

    pub(super) fn of(value: &[u8]) -> Result<Sketch, Unusable> {
        check(value)?;
        Ok(Sketch { bytes: value.to_vec() })
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Raises a register to a value, unless its value is at least that. Returns true if the register changed.
    pub(super) fn raise(&mut self, register: usize, value: u8) -> Result<bool, Unusable> {
        if !is_dense(&self.bytes) {
            match sparse::raise(&mut self.bytes, register, value)? {
                Set::Kept => return Ok(false),
                Set::Raised => return Ok(true),
                Set::TooLong => self.make_dense()?,
            }
        }
        let raised = dense(&self.bytes, register) < value;
        if raised {
            set_dense(&mut self.bytes, register, value);
        }
        Ok(raised)
    }

    /// Converts the sketch to the dense form. The other header fields stay.
    pub(super) fn make_dense(&mut self) -> Result<(), Unusable> {
        if is_dense(&self.bytes) {
            return Ok(());
        }
        let mut bytes = self.bytes[..HEADER_BYTES].to_vec();
        bytes[FORM_AT] = DENSE;
        bytes.resize(DENSE_BYTES, 0);
        each_run(&self.bytes, |value, registers| {
            if value > 0 {
                registers.for_each(|register| set_dense(&mut bytes, register, value));
            }
        })?;
        self.bytes = bytes;
        Ok(())
    }

    pub(super) fn forget_count(&mut self) {
        // The other bits of the field stay.
        let count = count_field(&self.bytes) | COUNT_UNKNOWN;
        self.keep_count(count);
    }

    pub(super) fn keep_count(&mut self, count: u64) {
        self.bytes[COUNT_AT..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
    }
}

/// The highest value of each register in several HyperLogLogs.
pub(super) struct Maxima(Box<[u8]>);

impl Maxima {
    pub(super) fn new() -> Maxima {
        Maxima(vec![0; REGISTERS].into())
    }

    pub(super) fn join(&mut self, value: &[u8]) -> Result<(), Unusable> {
        each_run(value, |value, registers| {
            if value > 0 {
                self.0[registers].iter_mut().for_each(|known| *known = value.max(*known));
            }
        })
    }

    /// Returns the registers with their values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u8)> {
        self.0.iter().copied().enumerate()
    }
}
