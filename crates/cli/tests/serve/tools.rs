//! Tools around a server: `esker ping`, `esker support`, `esker compat`.

use std::io::Read;

use super::*;

/// Runs a call to its end with an input on stdin. Returns its exit code, stdout and stderr.
fn call(
    directory: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
    input: &str,
) -> (Option<i32>, String, String) {
    let mut command = esker(directory, arguments);
    command.envs(environment.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // A call that is refused may end before it reads.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    let Output { status, stdout, stderr } = process.wait_with_output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn ping_tells_a_serving_server_from_others() {
    let directory = tempfile::tempdir().unwrap();
    let password = [("ESKER_PASSWORD", "sesame")];
    let server = Serving::start_in(directory.path(), &["--dir", "store"], &password);
    let address = server.word("resp").to_owned();
    let ping = |environment: &[(&str, &str)]| call(directory.path(), &["ping", &address], environment, "");
    let (code, said, why) = ping(&password);
    assert!(code == Some(0) && said.starts_with("PONG in "), "{said}{why}");
    for (environment, expected) in [(&[][..], "NOAUTH"), (&[("ESKER_PASSWORD", "x")][..], "WRONGPASS")] {
        let (code, said, why) = ping(environment);
        assert!(code == Some(2) && said.is_empty() && why.contains(expected), "{why}");
    }
    server.stop(Signal::TERM);
    let (code, _, why) = ping(&password);
    assert!(code == Some(1) && why.lines().count() == 1 && why.contains(&address), "{why}");
    // A listener that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (code, _, why) = call(directory.path(), &["ping", &address, "--timeout", "100ms"], &[], "");
    assert!(code == Some(1) && why.contains("nothing happened for 0.1 seconds"), "{why}");
}

/// Returns the files of an archive with their contents.
fn unpacked(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()));
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, String::from_utf8_lossy(&bytes).into_owned())
    });
    files.collect()
}

#[test]
fn support_archive_has_no_key_value_or_secret() {
    const PLANTED: [&str; 4] = ["planted-key", "planted-value", "planted-secret", "planted-name"];
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("esker.toml"), "password = \"planted-secret\"\nlog = \"debug\"\n").unwrap();
    std::fs::write(at.join("secret"), "planted-secret\n").unwrap();
    let log = std::fs::File::create(at.join("log")).unwrap();
    let http = service::free_address().to_string();
    let flags = ["--dir", "store", "--config", "esker.toml", "--http", &http];
    let server = Serving::start_with(at, &flags, &[], log.into());
    let said = server.ask(
        "AUTH planted-secret\r\nSET planted-key planted-value\r\nCLIENT SETNAME planted-name\r\n\
         EVAL \"redis.log(redis.LOG_WARNING, 'planted-value of ' .. KEYS[1]) return 1\" 1 planted-key\r\n\
         CONFIG SET slowlog-log-slower-than 0\r\nGET planted-key\r\nINCR planted-key",
    );
    assert!(said.contains(":1\r\n") && said.contains("planted-value"), "{said}");
    let address = server.word("resp").to_owned();
    let arguments = [
        "support",
        "report.tar.gz",
        "--from",
        &address,
        "--http",
        &http,
        "--config",
        "esker.toml",
        "--store",
        "store",
        "--log",
        "log",
        "--password-file",
        "secret",
    ];
    let (code, said, why) = call(at, &arguments, &[], "");
    assert_eq!((code, said.contains("report.tar.gz")), (Some(0), true), "{why}");
    let files = unpacked(&at.join("report.tar.gz"));
    for (name, content) in &files {
        for planted in PLANTED {
            assert!(!content.contains(planted), "{planted} in {name}: {content}");
        }
    }
    let has = |name: &str, part: &str| {
        let found = files.iter().find(|(path, _)| *path == format!("esker-support/{name}"));
        let content = &found.unwrap_or_else(|| panic!("no {name}: {why}")).1;
        assert!(content.contains(part), "{name}: {content}");
    };
    // The log has the planted texts, so that their absence is the work of the verb.
    let whole = std::fs::read_to_string(at.join("log")).unwrap();
    assert!(whole.contains("planted-value of planted-key"), "{whole}");
    for (name, part) in [
        ("about.txt", "Linux version"),
        ("settings.txt", "password = (not shown)  [esker.toml:1]"),
        ("info.txt", "cmdstat_set:calls=1"),
        ("status.json", "\"keys\":1"),
        ("config.txt", "slowlog-log-slower-than = 0"),
        ("metrics.txt", "esker_build_info"),
        ("layout.json", "\"segment_bytes\""),
        ("log.txt", "a message of a script is left out"),
        ("missing.txt", ""),
    ] {
        has(name, part);
    }
    server.stop(Signal::TERM);

    assert!(refused(at, &["support", "report.tar.gz"]).contains("already exists"));
    // Without a server the rest is collected.
    let (code, _, why) =
        call(at, &["support", "other.tar.gz", "--from", &address, "--log", "-"], &[], "2026-01-01 x\n");
    assert!(code == Some(0) && why.contains("left out: info.txt: cannot reach"), "{why}");
    let files = unpacked(&at.join("other.tar.gz"));
    let missing = files.iter().find(|(name, _)| name.ends_with("missing.txt")).unwrap();
    assert!(missing.1.contains("info.txt: cannot reach"), "{missing:?}");
}

#[test]
fn compat_judges_what_clients_sent() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let monitor = "OK\n1.5 [0 127.0.0.1:5] \"set\" \"k\" \"planted-value\"\n";
    let (code, said, why) = call(at, &["compat", "-"], &[], monitor);
    assert!(
        code == Some(0) && said.contains("not served: nothing") && !said.contains("planted-value"),
        "{said}{why}"
    );
    let (code, said, _) = call(at, &["compat", "-", "--json"], &[], "1.5 [0 a:5] \"lpush\" \"k\" \"v\"\n");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &report["not_served"][0]["family"]), (Some(1), &"lists".into()), "{said}");
    let (code, _, _) =
        call(at, &["compat", "-", "--ignore", "LPUSH"], &[], "1.5 [0 a:5] \"lpush\" \"k\" \"v\"\n");
    assert_eq!(code, Some(0));
    for arguments in
        [&["compat", "nothing"][..], &["compat", "."], &["compat"], &["compat", "-", "--as", "aof"]]
    {
        let why = refused(at, arguments);
        assert!(!why.is_empty(), "{arguments:?}");
    }
    // The answer to MONITOR may arrive long before the first command.
    let mut command = esker(at, &["compat", "-"]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    for part in ["OK\n", "1.5 [0 a:5] \"get\" ", "\"k\"\n"] {
        input.write_all(part.as_bytes()).unwrap();
        input.flush().unwrap();
        sleep(Duration::from_millis(50));
    }
    drop(input);
    assert_eq!(process.wait_with_output().unwrap().status.code(), Some(0));
    // A running server is asked for its counters.
    let server = Serving::start(at, &["--dir", "store"]);
    server.ask("SET k v\r\nHSET h f v");
    let (code, said, why) = call(at, &["compat", "--from", server.word("resp"), "--json"], &[], "");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &report["served"]["set"]), (Some(0), &1.into()), "{said}{why}");
    server.stop(Signal::TERM);
}
