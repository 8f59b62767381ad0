//! Files and payloads that people or other programs make.

use std::io::Write;

use esker_server::UserFile;

/// Runs it on a file that holds the bytes.
fn with_file(bytes: &[u8], run: impl FnOnce(&std::path::Path)) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("it is written");
    run(file.path());
}

/// A file of users. What is read is written and read again as it was.
pub(crate) fn users(bytes: &[u8]) {
    with_file(bytes, |path| {
        let Ok(users) = UserFile::read(path) else { return };
        users.write(path).expect("it is written");
        let again = UserFile::read(path).expect("what was written is read");
        assert_eq!(format!("{:?}", again.users()), format!("{:?}", users.users()));
    });
}

/// A file of settings.
pub(crate) fn settings(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Err(why) = esker_cli::check_settings(path) {
            assert!(!why.is_empty(), "an error without words");
        }
    });
}

/// A file of Redis.
pub(crate) fn rdb(bytes: &[u8]) {
    let limits = esker_rdb::Limits { key_bytes_max: 1 << 16, value_bytes_max: 1 << 20 };
    let Ok(mut reader) = esker_rdb::Reader::new(bytes, limits) else { return };
    while let Ok(Some(_)) = reader.read() {}
}

/// A payload of DUMP. What is read is encoded and read again as it was.
pub(crate) fn dump(bytes: &[u8]) {
    const MOST: u64 = 1 << 20;
    if let Ok(value) = esker_rdb::dump::decode(bytes, MOST) {
        assert!(value.len() as u64 <= MOST);
        let again = esker_rdb::dump::decode(&esker_rdb::dump::encode(&value), MOST);
        assert!(again.is_ok_and(|again| again == value));
    }
    let _ = esker_rdb::dump::value_bytes(bytes);
}

/// Log pages that somebody saved.
pub(crate) fn drive_log(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok(counters) = esker_nvme::saved(path, None) {
            let _ = counters.write_amplification();
        }
    });
}
