//! Files and payloads made by people or other programs.

use std::io::Write;

use esker_server::UserFile;

/// Calls `run` with a file that contains the bytes.
fn with_file(bytes: &[u8], run: impl FnOnce(&std::path::Path)) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("it is written");
    run(file.path());
}

/// A users file. Users that parse survive a write and a second read unchanged.
pub(crate) fn users(bytes: &[u8]) {
    with_file(bytes, |path| {
        let Ok(users) = UserFile::read(path) else { return };
        users.write(path).expect("it is written");
        let again = UserFile::read(path).expect("what was written is read");
        assert_eq!(format!("{:?}", again.users()), format!("{:?}", users.users()));
    });
}

/// A settings file.
pub(crate) fn settings(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Err(why) = esker_cli::check_settings(path) {
            assert!(!why.is_empty(), "an error without words");
        }
    });
}

/// A Redis RDB file.
pub(crate) fn rdb(bytes: &[u8]) {
    let limits = esker_rdb::Limits { key_bytes_max: 1 << 16, value_bytes_max: 1 << 20 };
    let Ok(mut reader) = esker_rdb::Reader::new(bytes, limits) else { return };
    while let Ok(Some(_)) = reader.read() {}
}

/// A DUMP payload. A payload that decodes survives encoding and decoding unchanged.
pub(crate) fn dump(bytes: &[u8]) {
    const MOST: u64 = 1 << 20;
    if let Ok(value) = esker_rdb::dump::decode(bytes, MOST) {
        assert!(value.len() as u64 <= MOST);
        let again = esker_rdb::dump::decode(&esker_rdb::dump::encode(&value), MOST);
        assert!(again.is_ok_and(|again| again == value));
    }
    let _ = esker_rdb::dump::value_bytes(bytes);
}

/// Saved log pages.
pub(crate) fn drive_log(bytes: &[u8]) {
    with_file(bytes, |path| {
        if let Ok(counters) = esker_nvme::saved(path, None) {
            let _ = counters.write_amplification();
        }
    });
}
