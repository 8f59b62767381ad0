//! Memory of a backup: no more with many earlier backups than with one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_backup::backup;
use esker_engine::{Blocking, Compression, Durability, Options};

/// Counts the bytes allocated at the same time.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system allocator unchanged.
#[allow(unsafe_code, reason = "an allocator cannot be counted otherwise")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Takes a backup. Returns the peak of allocated bytes.
fn taken(store: &Blocking, copies: &Path) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    backup(store.store(), copies, 0, |_| {}).expect("it is backed up");
    MOST.load(Ordering::Relaxed).saturating_sub(before)
}

#[test]
fn a_backup_takes_no_memory_for_each_earlier_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let copies = dir.path().join("copies");
    let options = Options::directory(dir.path().join("store")).segment_bytes(64 << 10);
    let options = options.capacity_limit_bytes(256 << 20).indirection_unit_bytes(4096);
    let options = options.durability(Durability::None).compression(Compression::Off).memory_bytes(64 << 20);
    let store = Blocking::open(options).expect("it opens");
    for number in 0..25_000u32 {
        store.put(number.to_le_bytes().as_slice(), vec![7; 4000]).expect("there is room");
    }
    taken(&store, &copies);
    let second = taken(&store, &copies);
    for _ in 0..6 {
        taken(&store, &copies);
    }
    let last = taken(&store, &copies);
    let path = copies.join("backups/000001.json");
    let text = std::fs::read_to_string(path).expect("it is text");
    let segments = text.lines().count() - 2;
    assert!(segments > 1_500, "{segments}");
    assert!(text.len() < 80 * segments + 2_000, "{} bytes for {segments} segments", text.len());
    // The checkpoint's list of segments, and those of the newest backup. Only those take memory per segment.
    assert!(last < second + text.len(), "{second} bytes beside one, {last} beside 8");
    assert!(last < (4 << 20) + 300 * segments, "{last} bytes for {segments} segments");
    store.close().expect("it closes");
}
