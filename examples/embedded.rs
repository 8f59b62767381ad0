//! Writes, closes, reopens and reads, with blocking calls.
//!
//! `cargo run --example embedded [DIRECTORY]`

use esker::{Blocking, Options};

fn main() -> Result<(), esker::Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| {
        let dir = std::env::temp_dir().join(format!("esker-example-{}", std::process::id()));
        dir.display().to_string()
    });

    let store = Blocking::open(Options::directory(&dir))?;
    store.put("greeting", "hello")?;
    store.put("gone", "soon")?;
    assert!(store.delete("gone")?);
    store.close()?;

    let store = Blocking::open(Options::directory(&dir))?;
    let greeting = store.get("greeting")?.expect("it was acknowledged, so it is there");
    assert_eq!(store.get("gone")?, None);
    println!("{} (recovered {} keys from {dir})", String::from_utf8_lossy(&greeting), store.recovery().keys);
    store.close()
}
