//! Files with commands, and the replies and pushes of redis-server: reading, recording and comparing.
//!
//! Lines with `> ` are commands. Empty lines and lines with `#` are comments. All other lines are output.

use std::net::SocketAddr;

use crate::redis::{Redis, here};

/// Returns the commands and comments of a file.
pub(crate) fn lines(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(here(file)).unwrap();
    let is_kept = |line: &&str| {
        let said = line.split_once("> ").is_some_and(|(name, _)| name.len() <= 1);
        line.is_empty() || line.starts_with('#') || said
    };
    text.lines().filter(is_kept).map(str::to_owned).collect()
}

/// Records a file again from a redis-server, if requested.
pub(crate) async fn record(file: &str, transcript: impl AsyncFn(SocketAddr) -> String) {
    if std::env::var_os("ESKER_RECORD").is_some() {
        let redis = Redis::start().await.expect("recording needs a redis-server");
        std::fs::write(here(file), transcript(redis.address).await).unwrap();
    }
}

/// Compares the output for a file with its content.
#[track_caller]
pub(crate) fn compare(file: &str, found: &str, whose: &str) {
    let expected = std::fs::read_to_string(here(file)).unwrap();
    let differs = expected.lines().zip(found.lines()).position(|(expected, found)| expected != found);
    if let Some(at) = differs {
        let near =
            |text: &str| text.lines().skip(at.saturating_sub(4)).take(10).collect::<Vec<_>>().join("\n");
        panic!("{file} of {whose}, line {}: expected\n{}\nfound\n{}", at + 1, near(&expected), near(found));
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{file} of {whose}");
}
