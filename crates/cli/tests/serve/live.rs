//! Observes and changes a running server: `esker top`, reloads, the watchdog; and checks the pages that
//! the command makes.

use std::fs::{create_dir, read_to_string, write};
use std::os::unix::net::UnixDatagram;

use super::service::{PATIENCE, told};
use super::*;

/// Runs a call to its end. Returns its exit code, stdout and stderr.
fn ended(
    directory: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        esker(directory, arguments).envs(environment.iter().copied()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn top_prints_one_sample_for_scripts() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path().join("secret"), "sesame\n").unwrap();
    let mut serving = Serving::start(directory.path(), &["--dir", "store", "--password-file", "secret"]);
    assert!(serving.ask("SET a 1").starts_with("-NOAUTH"));
    assert_eq!(serving.ask("AUTH sesame\r\nSET a 1"), "+OK\r\n+OK\r\n+OK\r\n");
    let address = serving.word("resp").to_owned();
    let password = [("ESKER_PASSWORD", "sesame")];
    let (code, json, _) = ended(directory.path(), &["top", &address, "--json"], &password);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json.lines().count(), &status["keys"]), (Some(0), 1, &1.into()), "{json}");
    assert!(status["window_ms"].as_u64() > Some(0), "{json}");
    let (code, text, _) =
        ended(directory.path(), &["top", &address, "--once", "--password-file", "secret"], &[]);
    assert!(code == Some(0) && text.contains("write amplification"), "{text}");

    let (code, _, why) = ended(directory.path(), &["top", &address, "--once"], &[]);
    assert!(code == Some(2) && why.contains("NOAUTH") && why.contains("ESKER_PASSWORD"), "{why}");
    let (code, _, why) = ended(directory.path(), &["top", &address, "--once"], &[("ESKER_PASSWORD", "x")]);
    assert!(code == Some(2) && why.contains("WRONGPASS"), "{why}");
    let (code, _, why) = ended(directory.path(), &["top", &address], &password);
    assert!(code == Some(2) && why.contains("--once"), "{why}");
    serving.process.kill().unwrap();
    serving.process.wait().unwrap();
    let (code, _, why) = ended(directory.path(), &["top", &address, "--once"], &password);
    assert!(code == Some(1) && why.contains(&address) && why.lines().count() == 1, "{why}");
}

#[test]
fn reload_applies_live_settings_and_names_others() {
    let directory = tempfile::tempdir().unwrap();
    let [config, log] = ["esker.toml", "log"].map(|name| directory.path().join(name));
    let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = directory.path().join("notify").display().to_string();
    write(&config, "log = \"warn\"\nlog-format = \"json\"\n").unwrap();
    let serving = Serving::start_with(
        directory.path(),
        &["--dir", "store", "--config", "esker.toml"],
        &[("NOTIFY_SOCKET", &path)],
        std::fs::File::create(&log).unwrap().into(),
    );
    assert_eq!(told(&socket), "READY=1\nSTATUS=serving");
    let reload = |text: &str| {
        write(&config, text).unwrap();
        kill_process(Pid::from_child(&serving.process), Signal::HUP).unwrap();
        assert!(told(&socket).starts_with("RELOADING=1\n"));
        told(&socket)
    };
    let get = |name: &str| serving.ask(&format!("CONFIG GET {name}"));
    assert!(get("appendfsync").contains("always") && get("maxclients").contains("10000"));
    let ready = "READY=1\nSTATUS=serving";
    let all =
        "log = \"info\"\ndurability = \"none\"\nbackground-limit = \"1m\"\nconnections = 1\npipeline = 9\n";
    assert_eq!(reload(all), ready);
    assert!(get("appendfsync").contains("everysec") && get("maxclients").contains("\r\n1\r\n"));
    // One connection is accepted; the next one gets an error before it is closed.
    let (mut held, mut refused) = (Vec::new(), String::new());
    while refused.is_empty() && held.len() < 5 {
        let mut client = TcpStream::connect(serving.word("resp")).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let _ = client.read_to_string(&mut refused);
        held.push(client);
    }
    assert!(refused.starts_with("-ERR max number of clients reached"), "{refused}");
    drop(held);
    let failed = reload("connections = 0\n");
    assert!(failed.contains("the last reload failed") && failed.contains("esker.toml:1"), "{failed}");
    assert_eq!(reload("connections = 10\n"), ready);

    let log = read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let has = |text: &str| lines.iter().any(|line| line["message"].as_str().unwrap().contains(text));
    assert!(has("in effect only after a restart: pipeline, log-format"), "{log}");
    assert!(
        lines.iter().any(|line| line["changed"] == "durability, background-limit, connections, log"),
        "{log}"
    );
}

#[test]
fn watchdog_is_notified_repeatedly() {
    let directory = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = directory.path().join("notify").display().to_string();
    let environment = [("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", "100000")];
    let _serving = Serving::start_in(directory.path(), &["--dir", "store"], &environment);
    let (mut heard, mut message) = (0, [0; 4096]);
    while heard < 3 {
        let bytes = socket.recv(&mut message).expect("the server says that it is alive");
        heard += usize::from(message[..bytes].trim_ascii_end() == b"WATCHDOG=1");
    }
}

#[test]
fn man_pages_and_completions_are_made() {
    let directory = tempfile::tempdir().unwrap();
    create_dir(directory.path().join("pages")).unwrap();
    let (code, ..) = ended(directory.path(), &["man", "pages"], &[]);
    let page = read_to_string(directory.path().join("pages/esker-user-add.1")).unwrap();
    assert!(code == Some(0) && page.contains("certificate"), "{page}");
    let serve = read_to_string(directory.path().join("pages/esker-serve.1")).unwrap();
    assert!(serve.contains("background\\-limit") && serve.contains("Examples"), "{serve}");
    assert!(refused(directory.path(), &["man", "none"]).contains("no directory none"));
    for shell in ["bash", "zsh", "fish"] {
        let (code, text, _) = ended(directory.path(), &["completions", shell], &[]);
        assert!(code == Some(0) && text.contains("background-limit"), "{shell}: {text}");
    }
}
