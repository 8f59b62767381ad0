//! Unreadable sectors: data outside of them stays available.

use std::ops::Range;
use std::sync::Arc;

use esker::{Blocking, ErrorKind, Options};
use esker_device::{Device as _, Fault, MemoryDevice, Operation, OperationKind, WriteMode};
use esker_log::{
    FOOTER_BYTES, FRAME_HEADER_BYTES, FrameHeader, IDENTITY_BYTES, SegmentIdentity, Superblock, free_marker,
};

const PAGE: u64 = 4096;
const SEGMENT: u64 = 64 << 10;
const BYTES: u64 = 4 << 20;
const KEYS: u64 = 200;

fn on(device: &MemoryDevice) -> Options {
    let options = Options::devices(None, Some(Arc::new(device.clone())));
    options.segment_bytes(SEGMENT).indirection_unit_bytes(PAGE).memory_bytes(64 << 20)
}

fn key(number: u64) -> String {
    format!("key {number:04}")
}

/// Returns a value that fills a page with its frame, even with the first one of a segment, which also has the identity:
/// without padding, nothing is collected while an image is made.
fn value(number: u64) -> Vec<u8> {
    let mut random = esker_simulated::Random::new(number);
    (0..478).flat_map(|_| random.bits().to_le_bytes()).collect()
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let (buffer, read) = device.read(0, device.buffer(BYTES as usize)).wait();
    read.expect("it can be read");
    buffer.to_vec()
}

fn device_with(bytes: &[u8]) -> MemoryDevice {
    let device = MemoryDevice::new(BYTES);
    let buffer = esker_device::Buffer::copy_from(bytes);
    device.write(0, buffer.into(), WriteMode::Durable).wait().expect("it can be written");
    device
}

/// Returns a store with some keys, in the state after a close or a kill.
fn image(is_closed: bool) -> Vec<u8> {
    let device = MemoryDevice::new(BYTES);
    let store = Blocking::open(on(&device)).expect("it opens");
    for number in 0..KEYS {
        store.put(key(number), value(number)).expect("there is room");
    }
    if is_closed {
        store.close().expect("it closes");
    }
    bytes_of(&device)
}

/// Makes reads of these bytes fail from now on.
fn lose(device: &MemoryDevice, bad: Range<u64>) {
    device.set_faults(Box::new(move |operation: &Operation| {
        let ends = operation.offset + operation.bytes;
        let is_bad = bad.start < ends && operation.offset < bad.end;
        if is_bad && operation.kind == OperationKind::Read { Fault::Error(libc::EIO) } else { Fault::None }
    }));
}

/// Checks that every key reads as its value or as an error. Returns the number of readable keys.
fn readable(store: &Blocking, when: &str) -> u64 {
    let is_readable = |number: &u64| match store.get(key(*number)) {
        Ok(found) => {
            assert_eq!(found.as_deref(), Some(&value(*number)[..]), "key {number} {when}");
            true
        }
        Err(error) => {
            assert!(
                matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt),
                "key {number} {when}: {error}"
            );
            false
        }
    };
    (0..KEYS).filter(is_readable).count() as u64
}

#[test]
fn a_store_that_was_closed_opens_without_any_page() {
    let image = image(true);
    let superblock = Superblock::find(&image).expect("it has one");
    let used = superblock.data_offset + u64::from(superblock.used_slots).min(14) * SEGMENT;
    for page in 0..used / PAGE {
        let device = device_with(&image);
        lose(&device, page * PAGE..(page + 1) * PAGE);
        let when = format!("without page {page}");
        let store = Blocking::open(on(&device)).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(readable(&store, &when) >= KEYS - 4, "{when}");
    }
}

#[test]
fn a_store_that_was_killed_tells_of_each_page_that_held_keys() {
    let image = image(false);
    let superblock = Superblock::find(&image).expect("it has one");
    let used = superblock.data_offset + u64::from(superblock.used_slots).min(14) * SEGMENT;
    let mut refused = 0;
    for page in 0..used / PAGE {
        let device = device_with(&image);
        lose(&device, page * PAGE..(page + 1) * PAGE);
        let when = format!("without page {page}");
        match Blocking::open(on(&device)) {
            Ok(store) => assert!(readable(&store, &when) >= KEYS - 4, "{when}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{when}: {error}");
                assert!(error.to_string().contains("accept_loss"), "{when}: {error}");
                refused += 1;
                let store = Blocking::open(on(&device).accept_loss(true)).expect("the loss is accepted");
                let there = (0..KEYS).filter(|number| store.get(key(*number)).is_ok_and(|v| v.is_some()));
                assert!(there.count() >= KEYS as usize - 40, "{when}");
                store.close().expect("it closes");
                let store = Blocking::open(on(&device)).expect("nothing more is lost");
                store.close().expect("it closes");
            }
        }
    }
    assert!((1..40).contains(&refused), "{refused} pages were missed");
}

#[test]
fn a_store_without_a_readable_superblock_is_not_formatted() {
    let image = image(true);
    let device = device_with(&image);
    lose(&device, 0..4 * PAGE);
    for options in [on(&device), on(&device).accept_loss(true), on(&device).force_format(true)] {
        let error = Blocking::open(options).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    device.set_faults(Box::new(|_| Fault::None));
    assert!(bytes_of(&device) == image, "something was written");
}

/// Returns the start of the slot with the segment that has no summary.
fn open_segment(image: &[u8]) -> u64 {
    let superblock = Superblock::find(image).expect("it has one");
    let secret = superblock.secret();
    let slots = image[superblock.data_offset as usize..].chunks_exact(SEGMENT as usize);
    let is_open = |(slot, bytes): &(u32, &[u8])| {
        let ends = esker_log::SlotEnds::parse(
            bytes,
            &bytes[SEGMENT as usize - FOOTER_BYTES..],
            &secret,
            *slot,
            SEGMENT as u32,
        );
        matches!(ends.start, esker_log::SlotStart::Frame(_)) && ends.footer.is_none()
    };
    let (open, _) = (0..).zip(slots).find(is_open).expect("one has no summary");
    superblock.data_offset + u64::from(open) * SEGMENT
}

/// Only the following frames prove that a frame with a wrong byte was durable.
#[test]
fn a_frame_is_lost_if_what_cannot_be_read_may_prove_it() {
    let mut image = image(false);
    let secret = Superblock::find(&image).expect("it has one").secret();
    let start = open_segment(&image);
    let first = FrameHeader::parse(&image[start as usize..], &secret, 0).expect("it begins with a frame");
    image[start as usize + FRAME_HEADER_BYTES + IDENTITY_BYTES + 8] ^= 1;
    let device = device_with(&image);
    let told = |device: &MemoryDevice| {
        let error = Blocking::open(on(device)).expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    };
    told(&device);
    lose(&device, start + u64::from(first.padded_bytes)..start + SEGMENT - PAGE);
    told(&device);
}

/// The superblocks have all that the identity says, so a frame does not depend on it.
#[test]
fn damaged_identities_lose_no_record() {
    let mut image = image(false);
    let superblock = Superblock::find(&image).expect("it has one");
    let data = superblock.data_offset as usize;
    let mut damaged = 0;
    for start in (data..image.len()).step_by(SEGMENT as usize) {
        if SegmentIdentity::parse(&image[start..]).is_some() {
            image[start + FRAME_HEADER_BYTES + damaged % IDENTITY_BYTES] ^= 1;
            assert_eq!(SegmentIdentity::parse(&image[start..]), None);
            damaged += 1;
        }
    }
    assert!(damaged > 10, "{damaged} segments");
    let store = Blocking::open(on(&device_with(&image))).expect("nothing is lost");
    assert_eq!(readable(&store, "without identities"), KEYS);
    store.close().expect("it closes");
}

/// An accepted loss is permanent, even if the device becomes readable again.
#[test]
fn loss_that_was_accepted_stays_after_device_recovers() {
    let image = image(false);
    let start = open_segment(&image);
    let device = device_with(&image);
    lose(&device, start..start + SEGMENT - PAGE);
    let error = Blocking::open(on(&device)).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let store = Blocking::open(on(&device).accept_loss(true)).expect("the loss is accepted");
    // The slot may be in use again, for copies, which are unreadable too.
    let is_there = |store: &Blocking, number: &u64| store.get(key(*number)).map_or(true, |v| v.is_some());
    let there: Vec<u64> = (0..KEYS).filter(|number| is_there(&store, number)).collect();
    assert!((1..KEYS as usize).contains(&there.len()), "{} keys", there.len());
    store.close().expect("it closes");
    device.set_faults(Box::new(|_| Fault::None));
    let store = Blocking::open(on(&device)).or_else(|_| Blocking::open(on(&device).accept_loss(true)));
    let store = store.expect("it opens");
    let back = (0..KEYS).filter(|number| is_there(&store, number) && !there.contains(number)).count();
    assert_eq!(back, 0, "keys are back");
}

/// A crash between the two markers leaves a slot whose end alone says that it is free. If that end rots
/// later, the freed records do not come back.
#[test]
fn a_slot_that_was_half_freed_is_freed_by_the_next_opening() {
    let mut image = image(false);
    let superblock = Superblock::find(&image).expect("it has one");
    let start = superblock.data_offset as usize;
    let secret = superblock.secret();
    let esker_log::SlotStart::Frame(first) = esker_log::slot_start(&image[start..], &secret, 0) else {
        panic!("a segment lies in slot 0")
    };
    let end = start + SEGMENT as usize;
    image[end - PAGE as usize..end].fill(0);
    image[end - FOOTER_BYTES..end].copy_from_slice(&free_marker(&secret, first.segment, 0));
    let device = device_with(&image);
    let is_there = |store: &Blocking, number: &u64| store.get(key(*number)).expect("it reads").is_some();
    let store = Blocking::open(on(&device)).expect("it opens");
    let there: Vec<u64> = (0..KEYS).filter(|number| is_there(&store, number)).collect();
    assert!((1..KEYS as usize).contains(&there.len()), "{} keys", there.len());
    let mut image = bytes_of(&device);
    image[end - PAGE as usize..end].fill(0);
    let store = Blocking::open(on(&device_with(&image)));
    let store =
        store.or_else(|_| Blocking::open(on(&device_with(&image)).accept_loss(true))).expect("it opens");
    let back = (0..KEYS).filter(|number| is_there(&store, number) && !there.contains(number)).count();
    assert_eq!(back, 0, "keys are back");
}
