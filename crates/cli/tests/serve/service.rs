//! Runs as a service: the opening of the store, reloads, and notifications to the service manager.

use std::fs::{File, create_dir, read_dir, write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use super::*;

/// Time limit: no step takes longer unless it hangs. The kernel breaks a lease after 45 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// `F_SETSIG` of `asm-generic/fcntl.h`, which `libc` does not name.
const F_SETSIG: libc::c_int = 10;

/// Blocks every open of the file until the lease is dropped, like a slow device. Returns `None` if the
/// file system has no leases.
fn hold_opens(path: &Path) -> Option<File> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let descriptor = file.as_raw_fd();
    // A signal reports the blocked open. SIGURG is ignored by default, unlike SIGIO, which would end the
    // process.
    #[allow(unsafe_code, reason = "there is no safe call for leases")]
    // SAFETY: the descriptor is open, and both calls take a number and no memory.
    let done = unsafe {
        [
            libc::fcntl(descriptor, F_SETSIG, libc::SIGURG),
            libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_WRLCK),
        ]
    };
    (done == [0, 0]).then_some(file)
}

/// Returns an address for a server that starts later.
pub(super) fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], cluster::free_ports(1)[0]))
}

/// Sends a request. Returns at most `most` bytes of the answer.
fn ask(address: SocketAddr, text: &str, most: u64) -> String {
    let began = Instant::now();
    let mut client = loop {
        match TcpStream::connect(address) {
            Ok(client) => break client,
            Err(error) => assert!(began.elapsed() < PATIENCE, "nobody listens at {address}: {error}"),
        }
        sleep(Duration::from_millis(10));
    };
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    client.take(most).read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn opening_is_reported_and_can_be_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let serving = Serving::start(directory.path(), &["--dir", "store"]);
    assert_eq!(serving.ask("SET a 1"), "+OK\r\n+OK\r\n");
    serving.stop(Signal::TERM);
    let Some(held) = hold_opens(&directory.path().join("store/data.esker")) else {
        eprintln!("SKIPPED: the file system of {} has no leases", directory.path().display());
        return;
    };
    let [resp, http] = [free_address(), free_address()];
    let arguments = ["serve", "--resp", &resp.to_string(), "--http", &http.to_string(), "--dir", "store"];
    let mut command = esker(directory.path(), &arguments);
    let mut process = command.env("ESKER_MEMORY", "128m").stdout(Stdio::piped()).spawn().unwrap();
    let loading = "-LOADING Esker is loading the dataset in memory\r\n";
    assert_eq!(ask(resp, "PING\r\n", loading.len() as u64), loading);
    let answer = ask(http, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", 4096);
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("recovering for 0 s, step 1 of 3: 0 %"),
        "{answer}"
    );
    let answer = ask(http, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 4096);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let asked = Instant::now();
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    let ended = loop {
        match process.try_wait().unwrap() {
            Some(ended) => break ended,
            None if asked.elapsed() > PATIENCE => {
                process.kill().unwrap();
                panic!("SIGTERM is not heard");
            }
            None => sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!(ended.code(), Some(0));
    let mut said = String::new();
    process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "it was never ready");
    drop(held);
    let serving = Serving::start(directory.path(), &["--dir", "store"]);
    assert_eq!(serving.ask("GET a"), "$1\r\n1\r\n+OK\r\n");
    serving.stop(Signal::TERM);
}

/// Returns the next notification to the service manager, without progress reports.
pub(super) fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    loop {
        let read = socket.recv(&mut bytes).expect("something is told");
        let text = std::str::from_utf8(&bytes[..read]).unwrap();
        if !text.starts_with("STATUS=") {
            return text.trim_end().to_owned();
        }
    }
}

/// Runs `esker user` with a password. Returns its output.
fn user(directory: &Path, arguments: &[&str]) -> String {
    let mut command = esker(directory, &[&["user"], arguments, &["--users", "users.toml"]].concat());
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // A command that reads no password may have ended.
    let written = process.stdin.take().unwrap().write_all(b"secret\n");
    assert!(written.map_or_else(|error| error.kind() == std::io::ErrorKind::BrokenPipe, |()| true));
    let Output { status, stdout, .. } = process.wait_with_output().unwrap();
    assert!(status.success(), "{arguments:?}");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn users_are_listed_with_rights() {
    let directory = tempfile::tempdir().unwrap();
    user(directory.path(), &["add", "ann", "--rights", "read,write", "--prefix", "app:"]);
    let users = directory.path().join("users.toml");
    let rules = "[users.bob]\noff = true\ncommands = \"-@all +@read\"\nkeys = [\"~a*\", \"%R~b*\"]\nchannels = [\"&c*\"]\n";
    write(&users, std::fs::read_to_string(&users).unwrap() + rules).unwrap();
    assert_eq!(
        user(directory.path(), &["list"]),
        "ann rights=read,write keys=app:* login=password\n\
         bob rules=\"~a* %R~b* &c* -@all +@read\" login=off\n"
    );
}

#[test]
fn service_manager_is_notified_of_reloads_and_failures() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users.toml");
    let said = user(directory.path(), &["add", "ann"]);
    assert!(said.contains("users.toml") && said.contains("systemctl reload esker"), "{said}");
    let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = directory.path().join("notify").display().to_string();
    let flags = ["--users", "users.toml", "--memory", "160m"];
    let serving = Serving::start_in(directory.path(), &flags, &[("NOTIFY_SOCKET", &path)]);
    let ready = "READY=1\nSTATUS=serving";
    assert_eq!(told(&socket), ready);
    let reload = || {
        kill_process(Pid::from_child(&serving.process), Signal::HUP).unwrap();
        let begun = told(&socket);
        assert!(begun.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{begun}");
        told(&socket)
    };
    assert_eq!(reload(), ready);
    let before = std::fs::read(&users).unwrap();
    write(&users, "no users").unwrap();
    let failed = reload();
    assert!(failed.starts_with(ready) && failed.contains("the last reload failed"), "{failed}");
    assert!(failed.contains("users.toml") && failed.lines().count() == 2, "{failed}");
    write(&users, before).unwrap();
    assert_eq!(reload(), ready);
    kill_process(Pid::from_child(&serving.process), Signal::TERM).unwrap();
    assert!(told(&socket).starts_with("STOPPING=1\n"));
}

#[test]
fn directory_with_other_files_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    create_dir(&home).unwrap();
    write(home.join("notes.txt"), "mine").unwrap();
    let text = refused(directory.path(), &["serve", "--resp", "127.0.0.1:0", "--dir", "home"]);
    assert!(text.contains("notes.txt") && text.contains("such as home/esker"), "{text}");
    assert_eq!(read_dir(&home).unwrap().count(), 1, "something was put into it");

    // Entries of the file system in a new directory are accepted, and so are other files beside an
    // existing store.
    let mount = directory.path().join("mount");
    create_dir(&mount).unwrap();
    create_dir(mount.join("lost+found")).unwrap();
    Serving::start(directory.path(), &["--dir", "mount"]).stop(Signal::TERM);
    write(mount.join("notes.txt"), "mine").unwrap();
    Serving::start(directory.path(), &["--dir", "mount"]).stop(Signal::TERM);
}
