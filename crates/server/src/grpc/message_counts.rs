//! Counts the list elements of a message before it is decoded.
//!
//! A list element may take two bytes in a message and a hundred times that when decoded, so the limit of a method must be checked
//! first. This module reads the field tags of a message as it arrives. For malformed messages it may count more elements than the
//! decoder would find, but never fewer.

use tonic::Status;

/// Counter of the list elements in a message that arrives in pieces.
pub(super) struct Counted {
    /// Numbers of the repeated fields.
    lists: &'static [u64],
    /// Fails if the method does not allow this number of elements.
    check: fn(usize) -> Result<(), Status>,
    count: usize,
    /// Number of open groups; fields inside of groups do not count.
    groups: usize,
    next: Next,
}

/// Element of the encoding that comes next.
enum Next {
    Tag(Varint),
    /// A number that is skipped.
    Number(Varint),
    Length(Varint),
    Bytes(u64),
    /// The decoder has failed by this point, so nothing more is counted.
    Nothing,
}

/// A partly read varint.
#[derive(Default)]
struct Varint {
    value: u64,
    bits: u32,
}

impl Varint {
    /// Adds a byte. Returns the number if the byte is its last; fails if the number is too long.
    fn read(&mut self, byte: u8) -> Result<Option<u64>, ()> {
        if self.bits >= u64::BITS {
            return Err(());
        }
        self.value |= u64::from(byte & 0x7F) << self.bits;
        self.bits += 7;
        Ok((byte & 0x80 == 0).then_some(self.value))
    }
}

impl Counted {
    /// Counts the fields with these numbers; `check` is the limit of the method.
    pub(super) fn new(lists: &'static [u64], check: fn(usize) -> Result<(), Status>) -> Counted {
        Counted { lists, check, count: 0, groups: 0, next: Next::Tag(Varint::default()) }
    }

    /// Reads the next piece of a message.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        loop {
            if let Next::Bytes(left) = &mut self.next {
                let skipped = (*left).min(bytes.len() as u64);
                *left -= skipped;
                bytes = &bytes[skipped as usize..];
                if *left == 0 {
                    self.next = Next::Tag(Varint::default());
                }
            }
            let Some((&byte, rest)) = bytes.split_first() else { return };
            bytes = rest;
            let number = match &mut self.next {
                Next::Tag(number) | Next::Number(number) | Next::Length(number) => number.read(byte),
                Next::Bytes(_) | Next::Nothing => return,
            };
            match number {
                Ok(Some(number)) => self.next = self.after(number),
                Ok(None) => {}
                Err(()) => self.next = Next::Nothing,
            }
        }
    }

    /// Returns the element that follows a complete number.
    fn after(&mut self, number: u64) -> Next {
        match self.next {
            Next::Tag(_) => {}
            Next::Length(_) => return Next::Bytes(number),
            _ => return Next::Tag(Varint::default()),
        }
        match number & 7 {
            0 => Next::Number(Varint::default()),
            1 => Next::Bytes(8),
            2 => {
                self.count += usize::from(self.groups == 0 && self.lists.contains(&(number >> 3)));
                Next::Length(Varint::default())
            }
            3 => {
                self.groups += 1;
                Next::Tag(Varint::default())
            }
            4 => {
                self.groups = self.groups.saturating_sub(1);
                Next::Tag(Varint::default())
            }
            5 => Next::Bytes(4),
            _ => Next::Nothing,
        }
    }

    /// Ends a message: fails if it has too many elements. The next bytes begin another message.
    pub(super) fn end(&mut self) -> Result<(), Status> {
        let count = self.count;
        *self = Counted::new(self.lists, self.check);
        (self.check)(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::grpc::pb;

    fn counted(bytes: &[u8], lists: &'static [u64]) -> usize {
        let mut whole = Counted::new(lists, |_| Ok(()));
        whole.read(bytes);
        let mut pieces = Counted::new(lists, |_| Ok(()));
        bytes.chunks(1).for_each(|piece| pieces.read(piece));
        assert_eq!(whole.count, pieces.count, "{}", bytes.escape_ascii());
        whole.count
    }

    #[test]
    fn lists_are_counted_and_nothing_else() {
        for (bytes, expected) in [
            (&b""[..], 0),
            (b"\x0a\x00\x0a\x00", 2),
            (b"\x0a\x02\x0a\x00\x12\x00", 1),
            // A number, eight bytes, four bytes, and an overlong tag in front.
            (b"\x08\xff\x01\x0a\x00", 1),
            (b"\x09\x0a\x00\x0a\x00\x0a\x00\x0a\x00\x0a\x00", 1),
            (b"\x0d\x0a\x00\x0a\x00\x0a\x00", 1),
            (b"\x8a\x80\x00\x80\x00\x0a\x00", 2),
            // In a group.
            (b"\x2b\x0a\x00\x2b\x0a\x00\x2c\x0a\x00\x2c\x0a\x00", 1),
            // Malformed messages: elements before the error count.
            (b"\x0a\x00\x0f\x0a\x00", 1),
            (b"\x0a\x00\x2c\x0a\x00", 2),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x00", 1),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x0a\x00", 0),
            (b"\x0a", 1),
        ] {
            assert_eq!(counted(bytes, &[1]), expected, "{}", bytes.escape_ascii());
        }
        let request = pb::TxnRequest {
            compares: vec![Default::default(); 3],
            success: vec![pb::TxnOperation::default(); 5],
            failure: vec![pb::TxnOperation::default(); 7],
            options: Some(pb::WriteOptions { request_id: vec![7; 200].into(), ..Default::default() }),
        };
        assert_eq!(counted(&request.encode_to_vec(), &[1, 2, 3]), 15);
    }

    #[test]
    fn each_message_is_counted_by_itself() {
        let check = |count| if count > 64 { Err(Status::invalid_argument("too many")) } else { Ok(()) };
        let mut counted = Counted::new(&[1, 2], check);
        for names in [64, 65, 64] {
            counted.read(&b"\x0a\x00\x12\x00".repeat(32));
            counted.read(&b"\x0a\x00".repeat(names - 64));
            assert_eq!(counted.end().is_ok(), names == 64);
            counted.read(b"\x0f");
            assert!(counted.end().is_ok());
        }
    }

    proptest! {
        /// Compared with the decoder, for bytes that resemble messages and for any bytes.
        #[test]
        fn never_fewer_than_what_is_decoded(
            bytes in prop::collection::vec(prop_oneof![Just(0x0a), Just(0x12), 0..4_u8, any::<u8>()], 0..64),
        ) {
            let count = counted(&bytes, &[1, 2]);
            if let Ok(watch) = pb::WatchRequest::decode(&bytes[..]) {
                prop_assert_eq!(count, watch.prefixes.len() + watch.keys.len());
            }
            let count = counted(&bytes, &[1]);
            if let Ok(batch) = pb::BatchRequest::decode(&bytes[..]) {
                prop_assert_eq!(count, batch.operations.len());
            }
        }
    }
}
