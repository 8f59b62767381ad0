//! Atomic batches and conditional writes, with blocking calls.
//!
//! `cargo run --example batch [DIRECTORY]`

use esker::{Batch, Blocking, Condition, Error, ErrorKind, Options, WriteOptions};

fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| {
        let dir = std::env::temp_dir().join(format!("esker-batch-{}", std::process::id()));
        dir.display().to_string()
    });
    let store = Blocking::open(Options::directory(&dir))?;
    store.put("account/anna", "100")?;

    // A batch is visible and recovered whole or not at all.
    let mut transfer = Batch::new();
    transfer.put("account/anna", "60").put("account/ben", "40").delete("pending/7");
    store.write(transfer)?;
    assert_eq!(store.get("account/anna")?.as_deref(), Some(&b"60"[..]));
    assert_eq!(store.get("account/ben")?.as_deref(), Some(&b"40"[..]));

    // Every write gives its key a new version: the value is replaced only if no other write came in between.
    let read = store.get_entry("account/ben")?.expect("it was written above");
    let if_unchanged = WriteOptions::new().condition(Condition::IfVersion(read.version));
    let version = store.put_with("account/ben", "45", if_unchanged)?;
    assert!(version > read.version);
    let late = store.put_with("account/ben", "39", if_unchanged).expect_err("the version is another one now");
    assert_eq!(late.kind(), ErrorKind::Conflict);
    println!("{late}");

    // A batch can have conditions, on keys that it writes and on others.
    let mut opening = Batch::new();
    opening.require("account/anna", Condition::IfAbsent).put("account/anna", "0").put("pending/8", "welcome");
    let taken = store.write(opening).expect_err("the account is there");
    assert_eq!(taken.kind(), ErrorKind::Conflict);
    println!("{taken}");
    assert!(!store.insert_if_absent("account/anna", "0")?, "the same for a single key");
    assert_eq!(store.get("pending/8")?, None);

    assert_eq!(store.get("account/anna")?.as_deref(), Some(&b"60"[..]));
    assert_eq!(store.get("account/ben")?.as_deref(), Some(&b"45"[..]));
    store.close()
}
