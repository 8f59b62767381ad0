//! Small stores: segments fit the limit, so that most of the space beside the reserve is for users.

use esker::{Blocking, ErrorKind, Options};

const MIB: u64 = 1 << 20;

fn open(dir: &tempfile::TempDir, limit_bytes: u64) -> Blocking {
    let options = Options::directory(dir.path().join("store"));
    let options = options.capacity_limit_bytes(limit_bytes).durability(esker::Durability::None);
    // So that the stored length equals the length put.
    let options = options.compression(esker::Compression::Off);
    Blocking::open(options).expect("the store opens")
}

#[test]
fn a_small_limit_leaves_most_to_users() {
    for (limit, least_percent) in [(32, 70), (64, 70), (129, 70), (160, 70), (256, 70), (1024, 70)] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(&dir, limit * MIB);
        let stats = store.store().stats();
        let percent = stats.user_limit_bytes * 100 / (limit * MIB);
        assert!(
            (least_percent..=80).contains(&percent),
            "of {limit} MiB users may fill {percent} %: {stats:?}"
        );
        store.close().expect("it closes");
    }
}

#[test]
fn user_limit_reported_by_stats_can_be_filled() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = open(&dir, 40 * MIB);
    let limit = store.store().stats().user_limit_bytes;
    let mut filled = 0;
    for number in 0u64.. {
        let value = vec![number as u8; 4000 + (number % 7) as usize * 1000];
        match store.put(number.to_le_bytes().to_vec(), value.clone()) {
            Ok(_) => filled += value.len() as u64,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                break;
            }
        }
    }
    assert!(filled > limit * 95 / 100, "{filled} of {limit} bytes");
    assert!(filled > 27 * MIB, "{filled} bytes of 40 MiB");
    store.close().expect("it closes");
}
