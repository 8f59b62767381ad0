//! Runs the `esker` command as a process: one line per error, one line when it is ready, a clean end.
#![allow(clippy::disallowed_methods, reason = "processes run in real time")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

#[path = "serve/backup.rs"]
mod backup;
#[path = "serve/cluster.rs"]
mod cluster;
#[path = "serve/devices.rs"]
mod devices;
#[path = "serve/drives.rs"]
mod drives;
#[path = "serve/inspect.rs"]
mod inspect;
#[path = "serve/live.rs"]
mod live;
#[path = "serve/moving.rs"]
mod moving;
#[path = "serve/packages.rs"]
mod packages;
#[path = "serve/pages/mod.rs"]
mod pages;
#[path = "serve/service.rs"]
mod service;
#[path = "serve/several_devices.rs"]
mod several_devices;
#[path = "serve/surroundings.rs"]
mod surroundings;
#[path = "serve/tls.rs"]
mod tls;
#[path = "serve/tools.rs"]
mod tools;
#[path = "serve/transfer.rs"]
mod transfer;
#[path = "serve/unix_socket.rs"]
mod unix_socket;

fn esker(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.current_dir(directory).args(arguments).env_clear();
    command
}

/// Runs a call that must be refused. Returns its one line of output. A call that is accepted would serve
/// for ever, so it is killed after a while.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    failed(directory, arguments, 2)
}

/// As `refused`, for any call that fails before it serves, with its exit code.
fn failed(directory: &Path, arguments: &[&str], code: i32) -> String {
    let mut command = esker(directory, arguments);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while process.try_wait().unwrap().is_none() && Instant::now() < patience {
        sleep(Duration::from_millis(5));
    }
    let _ = process.kill();
    let Output { status, stdout, stderr } = process.wait_with_output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(stdout, b"", "{arguments:?}");
    assert_eq!((text.lines().count(), text.ends_with('\n')), (1, true), "{arguments:?}: {text}");
    text
}

/// A running server; killed if a test ends without stopping it.
struct Serving {
    process: Child,
    stdout: BufReader<ChildStdout>,
    ready: String,
}

impl Serving {
    fn start(directory: &Path, arguments: &[&str]) -> Serving {
        Serving::start_with(directory, arguments, &[], Stdio::inherit())
    }

    /// Starts a server with environment variables.
    fn start_in(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Serving {
        Serving::start_with(directory, arguments, environment, Stdio::inherit())
    }

    fn start_with(directory: &Path, arguments: &[&str], environment: &[(&str, &str)], log: Stdio) -> Serving {
        let given = arguments.contains(&"--resp");
        let resp: &[&str] = if given { &[] } else { &["--resp", "127.0.0.1:0"] };
        let arguments = [&["serve"], resp, arguments].concat();
        let mut command = esker(directory, &arguments);
        let command = command.env("ESKER_MEMORY", "128m").envs(environment.iter().copied());
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        Serving { process, stdout, ready }
    }

    fn word(&self, name: &str) -> &str {
        let found = self.ready.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name}= in {:?}", self.ready))
    }

    fn ask(&self, lines: &str) -> String {
        let mut client = TcpStream::connect(self.word("resp")).unwrap();
        client.write_all(format!("{lines}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Stops the server with a signal; it must exit with 0, and print nothing more on stdout.
    fn stop(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        assert_eq!(self.process.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "more on stdout than the ready line");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn admin_actions_are_logged_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = std::fs::File::create(&path).unwrap();
    let password = [("ESKER_PASSWORD", "sesame")];
    let server = Serving::start_with(directory.path(), &["--dir", "store"], &password, log.into());
    let said = server.ask(
        "AUTH sesame\r\nCONFIG SET slowlog-max-len 5\r\nCONFIG SET requirepass hunter2\r\nCONFIG RESETSTAT\r\nCONFIG GET save\r\n\
         SLOWLOG RESET\r\nCLIENT KILL ID 1000\r\nSET k hunter2\r\nFLUSHALL",
    );
    assert!(said.ends_with("+OK\r\n+OK\r\n"), "{said}");
    // Without a login the command has no effect, and the answer claims none.
    assert!(server.ask("CONFIG SET slowlog-max-len 6").starts_with("-NOAUTH"));
    let mut client = TcpStream::connect(server.word("resp")).unwrap();
    client.write_all(b"AUTH sesame\r\nSHUTDOWN\r\n").unwrap();
    let mut server = server;
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    let log = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("esker_server::audit")).collect();
    let actions = [
        "CONFIG SET slowlog-max-len=5",
        "CONFIG RESETSTAT",
        "SLOWLOG RESET",
        "CLIENT KILL: 0 connections",
        "FLUSHALL",
        "SHUTDOWN",
    ];
    assert_eq!(lines.len(), actions.len(), "{log}");
    for (line, action) in lines.iter().zip(actions) {
        assert!(line.contains(action), "{action}: {line}");
        assert!(line.contains("user=\"default\"") && line.contains("address=127.0.0.1:"), "{line}");
    }
    assert!(!log.contains("sesame") && !log.contains("hunter2"), "{log}");
}

#[test]
fn log_filter_changes_while_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = std::fs::File::create(&path).unwrap();
    let server =
        Serving::start_with(directory.path(), &["--dir", "store", "--log", "error"], &[], log.into());
    let said = server.ask(
        "CONFIG GET log\r\nCONFIG SET slowlog-max-len 5\r\nCONFIG SET log info\r\nCONFIG SET slowlog-max-len 6\r\n\
         CONFIG SET slowlog-max-len 7 log =,=\r\nCONFIG GET log\r\nCONFIG GET slowlog-max-len",
    );
    let refused =
        "-ERR CONFIG SET failed (possibly related to argument 'log') - '=,=' is no filter: give a level";
    let told = |level: &str| format!("*2\r\n$3\r\nlog\r\n${}\r\n{level}\r\n", level.len());
    assert!(said.starts_with(&format!("{}+OK\r\n+OK\r\n+OK\r\n{refused}", told("error"))), "{said}");
    assert!(
        said.ends_with(&format!("{}*2\r\n$15\r\nslowlog-max-len\r\n$1\r\n6\r\n+OK\r\n", told("info"))),
        "{said}"
    );
    server.stop(Signal::TERM);
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(!log.contains("slowlog-max-len=5") && log.contains("slowlog-max-len=6"), "{log}");
    assert!(log.contains("CONFIG SET log=info"), "{log}");
}

/// Runs a call. Returns its stderr if it fails.
fn accepts(directory: &Path, arguments: &[&str]) -> Result<(), String> {
    let Output { status, stderr, .. } = esker(directory, arguments).output().unwrap();
    if status.success() { Ok(()) } else { Err(String::from_utf8(stderr).unwrap()) }
}

#[test]
fn durability_has_the_same_words_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let server = Serving::start(directory.path(), &["--dir", "store"]);
    for (word, good) in [
        ("sync", true),
        ("Process", true),
        ("NONE", true),
        ("periodic", true),
        ("periodic:1", true),
        ("Periodic:60000", true),
        ("periodic:60001", false),
        ("periodic:0", false),
        ("periodic:+5", false),
        ("periodic:05", false),
        ("always", false),
    ] {
        let checked = accepts(directory.path(), &["serve", "--check-config", "--durability", word]);
        for (face, said, taken) in [
            ("CLIENT DURABILITY", server.ask(&format!("CLIENT DURABILITY {word}")), "+OK\r\n+OK"),
            ("SET", server.ask(&format!("SET k v DURABILITY {word}")), "+OK\r\n+OK"),
            ("serve", checked.err().unwrap_or_else(|| "checked".to_owned()), "checked"),
        ] {
            let choices = said.contains("it is sync, process, periodic (a second), periodic:MS (1 to 60000");
            assert_eq!((said.contains(taken), choices), (good, !good), "{face} with {word}: {said}");
        }
    }
    server.stop(Signal::TERM);
}

#[test]
fn wrong_calls_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (vec!["--memory", "12q"], "'12q'"),
        (vec!["--memory", "12q"], "512m, 1.5g, 1TiB"),
        (vec!["--memory", "99999999999g"], "'99999999999g'"),
        (vec!["--dir", "a", "--fast", "b"], "--dir and --fast contradict each other"),
        (vec!["--dir", "a", "--capacity", "b"], "--dir and --capacity contradict each other"),
        (vec!["--fast", "a", "--capacity", "a"], "same path"),
        (vec!["--fast", "a", "--capacity-limit", "1g"], "--capacity-limit needs capacity"),
        (vec!["--fast-limit", "1g"], "--fast-limit needs fast"),
        (vec!["--fast", "a", "--iu", "64k"], "--iu"),
        (vec!["--dir", "none/store"], "there is no directory none"),
        (vec!["--capacity", "none/store"], "there is no directory none"),
        (vec!["--durability", "always"], "sync, process, periodic (a second), periodic:MS"),
        (vec!["--reserve", "80"], "5..=50"),
        (vec!["--backend", "aio"], "auto, uring, threads"),
        (vec!["--resp", "here"], "HOST:PORT"),
        (vec!["--what"], "'--what'"),
        (vec!["--password", "hunter2"], "ESKER_PASSWORD"),
        (vec!["--pasword=hunter2"], "ESKER_PASSWORD"),
        (vec!["--requirepass", "hunter2"], "ESKER_PASSWORD"),
        (
            vec!["--dirr", "x"],
            "unexpected argument '--dirr' found; did you mean --dir? (see esker serve --help)",
        ),
        (vec!["--check-confg"], "did you mean --check-config?"),
        (vec!["--port", "6380"], "'--port' found; did you mean --resp 127.0.0.1:6380?"),
        (vec!["--dir", "x", "--port=6380"], "did you mean --resp 127.0.0.1:6380?"),
        (vec!["--port"], "did you mean --resp 127.0.0.1:6379?"),
        (vec!["--listen", "6380"], "did you mean --resp 127.0.0.1:6380?"),
        (vec!["--maxmemory", "1g"], "did you mean --memory?"),
        (vec!["--fast_limit", "1g"], "did you mean --fast-limit?"),
        (vec!["--backend", "urin"], "auto, uring, threads"),
        (vec!["--resp", "0.0.0.0:0"], "--resp has 0.0.0.0:0"),
        (vec!["--config", "none.toml"], "none.toml"),
        (vec!["--users", "none.toml"], "--users: cannot use the users in none.toml"),
        (vec!["--check-config", "--users", "none.toml"], "--users: cannot use the users in none.toml"),
        (vec!["--check-config", "--memory", "10m"], "--memory is 10m"),
        (vec!["--check-config", "--iu", "3"], "--iu is 3"),
        (
            vec!["--check-config", "--http", "127.0.0.1:6379"],
            "resp (default) and --http contradict each other",
        ),
        (
            vec![
                "--check-config",
                "--resp-tls",
                "127.0.0.1:1",
                "--tls-cert",
                "none.pem",
                "--tls-key",
                "none.pem",
            ],
            "--tls-cert: cannot use none.pem",
        ),
    ] {
        let text = refused(directory.path(), &[&["serve"], arguments.as_slice()].concat());
        assert!(
            text.starts_with("esker: ") && !text.contains("hunter2") && text.contains(expected),
            "{arguments:?}: {text}"
        );
    }
    refused(directory.path(), &[]);
    refused(directory.path(), &["bogus"]);
    for (call, expected) in [
        (&["serv"] as &[&str], "did you mean serve? (see esker --help)"),
        (&["user", "lst"], "did you mean list? (see esker user --help)"),
        (&["user", "add", "--user", "u", "me"], "did you mean --users? (see esker user --help)"),
        (&["user", "add", "--users", "u", "me", "--password", "hunter2"], "read from stdin"),
    ] {
        let text = refused(directory.path(), call);
        assert!(text.contains(expected) && !text.contains("hunter2"), "{call:?}: {text}");
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        0,
        "a refused call left something behind"
    );
}

#[test]
fn port_in_use_is_refused_before_store_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let text = refused(directory.path(), &["serve", "--resp", &address]);
    assert!(text.contains(&address), "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a refused call made a store");
}

#[test]
fn minimum_sizes_are_sufficient() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [
        &["--dir", "store", "--memory", "101m"] as &[&str],
        &["--dir", "coalescing", "--memory", "138m", "--coalesce-for", "10s", "--durability", "process"],
        &["--dir", "small", "--memory", "37m", "--capacity-limit", "129m"],
        &["--dir", "smaller", "--memory", "29m", "--capacity-limit", "16m", "--iu", "4k"],
        &[
            "--fast",
            "f",
            "--capacity",
            "c",
            "--memory",
            "138m",
            "--fast-limit",
            "129m",
            "--iu",
            "1m",
            "--capacity-limit",
            "132m",
        ],
    ] {
        let serving = Serving::start(directory.path(), flags);
        assert_eq!(serving.word("keys"), "0");
        serving.stop(Signal::TERM);
    }
}

#[test]
fn too_small_tier_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for flags in [["--dir", "store", "--capacity-limit", "1m"], ["--fast", "file", "--fast-limit", "64k"]] {
        let text = refused(directory.path(), &[&["serve", "--resp", ":0"], flags.as_slice()].concat());
        assert!(text.contains("has room for") && text.contains("at least"), "{text}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a refused call made a store");
}

/// The error names the missing part, and the flag to continue without it.
#[test]
fn incomplete_store_opens_if_loss_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    Serving::start(directory.path(), &["--dir", "store", "--capacity-limit", "64m"]).stop(Signal::TERM);
    let file = std::fs::File::options().write(true).open(directory.path().join("store/data.esker")).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - (1 << 20)).unwrap();
    let text = failed(directory.path(), &["serve", "--resp", ":0", "--dir", "store"], 1);
    assert!(text.contains("cut off") && text.contains("--accept-loss"), "{text}");
    Serving::start(directory.path(), &["--dir", "store", "--accept-loss"]).stop(Signal::TERM);
    Serving::start(directory.path(), &["--dir", "store"]).stop(Signal::TERM);
}

#[test]
fn store_errors_use_given_setting_names() {
    let directory = tempfile::tempdir().unwrap();
    let store = ["--capacity", "c", "--capacity-limit", "64m"];
    Serving::start(directory.path(), &[store.as_slice(), &["--iu", "8k"]].concat()).stop(Signal::TERM);
    let serve = ["serve", "--resp", ":0", "--memory", "128m"];
    let text = refused(directory.path(), &[serve.as_slice(), &store, &["--iu", "4k"]].concat());
    assert!(text.contains("at c: --iu is 4096, but the store was formatted with 8192"), "{text}");
    std::fs::write(directory.path().join("file"), "something else".repeat(1000)).unwrap();
    let text = refused(directory.path(), &[serve.as_slice(), &["--fast", "file"]].concat());
    assert!(text.contains("--force-format is needed to format file"), "{text}");
}

#[test]
fn port_alone_listens_on_localhost() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("esker.toml");
    std::fs::write(&file, "grpc = 0").unwrap();
    let flags = ["--dir", "store", "--config", "esker.toml", "--http", ":0"];
    let serving = Serving::start_in(directory.path(), &flags, &[("ESKER_MEMORY", "0.125g")]);
    for name in ["http", "grpc"] {
        assert!(serving.word(name).starts_with("127.0.0.1:"), "{}", serving.ready);
    }
    serving.stop(Signal::TERM);
}

#[test]
fn bench_without_a_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(refused(directory.path(), &["bench", "none"]).contains("there is no directory none"));
    let small = esker(directory.path(), &["bench", ".", "--size", "1m"]).output().unwrap();
    assert!(small.status.code() == Some(2) && String::from_utf8_lossy(&small.stderr).contains("512m"));
    let Output { status, stdout, .. } = esker(directory.path(), &["bench", "--help"]).output().unwrap();
    assert!(status.success() && String::from_utf8_lossy(&stdout).contains("esker bench /var/lib/esker"));
}

#[test]
fn closed_stdout_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [["serve", "--check-config"], ["serve", "--print-config"]] {
        let mut command = esker(directory.path(), &arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = command.stdout(writer).output().unwrap();
        let text = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), text.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn ready_line_names_listeners_and_tiers() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &[]);
    assert!(serving.ready.starts_with("ready ") && serving.ready.ends_with('\n'), "{:?}", serving.ready);
    assert_eq!((serving.word("store"), serving.word("keys")), ("./esker-data", "0"));
    assert!(serving.word("recovery_ms").parse::<f64>().is_ok());
    assert_eq!(
        serving.ask("PING\r\nCONFIG GET dir"),
        "+PONG\r\n*2\r\n$3\r\ndir\r\n$12\r\n./esker-data\r\n+OK\r\n"
    );
    serving.stop(Signal::TERM);
}

/// Every configuration keeps its keys over both ways of stopping.
fn keeps_its_keys(flags: &[&str]) {
    let directory: TempDir = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), flags);
    assert_eq!(serving.ask("SET a 1\r\nMSET b 2 c 3\r\nDEL c"), "+OK\r\n+OK\r\n:1\r\n+OK\r\n");
    serving.stop(Signal::TERM);
    let serving = Serving::start(directory.path(), flags);
    assert_eq!(serving.word("keys"), "2");
    assert_eq!(serving.ask("GET a\r\nSET a 4\r\nEXISTS c"), "$1\r\n1\r\n+OK\r\n:0\r\n+OK\r\n");
    serving.stop(Signal::INT);
    let serving = Serving::start(directory.path(), flags);
    assert_eq!(serving.ask("MGET a b c\r\nFLUSHALL"), "*3\r\n$1\r\n4\r\n$1\r\n2\r\n$-1\r\n+OK\r\n+OK\r\n");
    serving.stop(Signal::TERM);
    let serving = Serving::start(directory.path(), flags);
    assert_eq!((serving.word("keys"), serving.ask("DBSIZE").as_str()), ("0", ":0\r\n+OK\r\n"));
    serving.stop(Signal::TERM);
}

#[test]
fn directory_store_keeps_keys() {
    keeps_its_keys(&["--dir", "store"]);
}

#[test]
fn two_tier_store_keeps_keys() {
    keeps_its_keys(&["--fast", "fast", "--capacity", "capacity", "--memory", "160m"]);
}

#[test]
fn fast_only_store_keeps_keys() {
    keeps_its_keys(&["--fast", "fast"]);
}

#[test]
fn capacity_only_store_keeps_keys() {
    keeps_its_keys(&["--capacity", "capacity"]);
}

#[test]
fn store_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--dir", "store"]);
    let text = refused(directory.path(), &["serve", "--resp", "127.0.0.1:0", "--dir", "store"]);
    assert!(text.contains("in use"), "{text}");
    serving.stop(Signal::TERM);
}
