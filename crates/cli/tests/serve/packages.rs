//! Unpacks and runs the packages that `packaging/build` makes.
//!
//! The packages are made of the tested binary, or lie in the directory `ESKER_PACKAGES`, and then they must be static
//! and small. Where the tests run as root, the binaries run in a root directory that has the unpacked files alone.

use std::collections::BTreeSet;
use std::fs::{copy, create_dir_all, read, read_dir, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::service::free_address;
use super::*;

/// Limit of the bytes of the server's binary.
const BINARY_BYTES_MAX: u64 = 25 << 20;

/// A file of another program in the directory of the packages, such as `target/release`.
const OTHER_FILE: &str = "esker-ssd";

/// The user of the image.
const USER: u64 = 65_532;

/// Runs a command that must succeed. Returns its stdout.
fn done(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).into_owned()
}

/// Returns the directory of the packages, and true if they were made for being given away.
fn packages(at: &Path) -> (PathBuf, bool) {
    if let Ok(given) = std::env::var("ESKER_PACKAGES") {
        return (given.into(), true);
    }
    let (binaries, out) = (at.join("binaries"), at.join("out"));
    create_dir_all(&binaries).unwrap();
    copy(env!("CARGO_BIN_EXE_esker"), binaries.join("esker")).unwrap();
    create_dir_all(&out).unwrap();
    std::fs::write(out.join(OTHER_FILE), "").unwrap();
    // Symbols are most of a binary for tests.
    let _ = Command::new("strip").arg(binaries.join("esker")).output();
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/build");
    let mut command = Command::new("python3");
    command.arg(build).arg("--fast").arg("--binaries").arg(&binaries).arg("--out").arg(&out);
    done(command.env("CARGO_NET_OFFLINE", "true"));
    (out, false)
}

/// Returns the only file with an ending.
fn file(packages: &Path, ending: &str) -> Option<PathBuf> {
    let files = read_dir(packages).unwrap().map(|entry| entry.unwrap().path());
    let mut found = files.filter(|path| path.to_string_lossy().ends_with(ending));
    let file = found.next();
    assert!(found.next().is_none(), "several files end in {ending}");
    file
}

/// Copies the libraries that a binary loads into a root directory; a static one loads none.
fn add_libraries(binary: &Path, root: &Path) {
    let loaded = Command::new("ldd").arg(binary).output().unwrap();
    let text = String::from_utf8_lossy(&loaded.stdout).into_owned();
    for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let target = root.join(library.trim_start_matches('/'));
        create_dir_all(target.parent().unwrap()).unwrap();
        copy(library, target).unwrap();
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: the tests do not run as root, so that no root directory can be changed");
    }
    is_root
}

/// Starts a server as the user of the image in a root directory, and asks it there for a sign of life.
fn serve_in(root: &Path, program: &str) {
    // Statically linked programs read random numbers there; every container has them.
    create_dir_all(root.join("dev")).unwrap();
    for (name, minor) in [("random", "8"), ("urandom", "9")] {
        let path = root.join("dev").join(name);
        let made = Command::new("mknod").args(["-m", "666"]).arg(path).args(["c", "1", minor]).output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("SKIPPED: no device can be made here, so {program} is not run in its root directory");
            return;
        }
    }
    let address = free_address().to_string();
    let mut server = Command::new("chroot");
    server.arg(format!("--userspec={USER}:{USER}")).arg(root).args([
        program,
        "serve",
        "--dir",
        "/data/store",
    ]);
    server.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("ESKER_MEMORY", "128m");
    let mut process = server.args(["--resp", &address]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ping = Command::new("chroot").arg(root).args([program, "ping", &address]).output().unwrap();
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    let status = process.wait().unwrap();
    assert!(ready.starts_with("ready resp=") && status.success(), "{ready}");
    assert!(String::from_utf8_lossy(&ping.stdout).starts_with("PONG"), "{ping:?}");
}

/// Returns the blob of a descriptor, after a comparison with its digest and length.
fn blob(image: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let path = image.join("blobs/sha256").join(digest);
    assert_eq!(descriptor["size"].as_u64(), Some(path.metadata().unwrap().len()));
    assert_eq!(digest_of(&path), digest);
    path
}

fn digest_of(path: &Path) -> String {
    done(Command::new("sha256sum").arg(path)).split(' ').next().unwrap().to_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&read(path).unwrap()).unwrap()
}

fn check_tarball(tarball: &Path, at: &Path, is_given: bool) {
    let root = at.join("tarball");
    create_dir_all(&root).unwrap();
    done(Command::new("tar").arg("xzf").arg(tarball).arg("-C").arg(&root).arg("--strip-components=1"));
    for name in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "esker.service",
        "esker.toml",
        "man/esker-serve.1",
        "completions/esker.bash",
    ] {
        assert!(root.join(name).metadata().is_ok_and(|file| file.len() > 0), "{name}");
    }
    let notices = read_to_string(root.join("THIRD-PARTY")).unwrap();
    for part in ["tokio 1.", "Lua 5.1\nCopyright (C) 1994", "Permission is hereby granted", "zstd-sys 2."] {
        assert!(notices.contains(part), "{part} is not in THIRD-PARTY");
    }
    let binary = root.join("esker");
    assert!(done(Command::new(&binary).arg("--version")).starts_with("esker "));
    if is_given {
        let ldd = Command::new("ldd").arg(&binary).output().unwrap();
        let said = String::from_utf8_lossy(&[ldd.stdout, ldd.stderr].concat()).into_owned();
        assert!(said.contains("statically linked") || said.contains("not a dynamic"), "{said}");
        assert!(binary.metadata().unwrap().len() <= BINARY_BYTES_MAX);
    }
}

fn check_debian(package: &Path, at: &Path) {
    let listed = done(Command::new("dpkg-deb").arg("--contents").arg(package));
    for path in [
        "drwxr-xr-x root/root         0 ",
        "-rwxr-xr-x root/root",
        "./usr/bin/esker\n",
        "./lib/systemd/system/esker.service\n",
        "./etc/esker/esker.toml\n",
        "./usr/share/doc/esker/copyright\n",
        "./usr/share/doc/esker/THIRD-PARTY.gz\n",
        "./usr/share/man/man1/esker-serve.1.gz\n",
        "./usr/share/bash-completion/completions/esker\n",
    ] {
        assert!(listed.contains(path), "{path} in {listed}");
    }
    let root = at.join("debian");
    done(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&root));
    if is_root() {
        add_libraries(&root.join("usr/bin/esker"), &root);
        create_dir_all(root.join("data")).unwrap();
        std::os::unix::fs::chown(root.join("data"), Some(USER as u32), Some(USER as u32)).unwrap();
        serve_in(&root, "/usr/bin/esker");
    }
}

fn check_image(archive: &Path, at: &Path) {
    let (image, root) = (at.join("image"), at.join("root"));
    tar::Archive::new(std::fs::File::open(archive).unwrap()).unpack(&image).unwrap();
    assert_eq!(json(&image.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let manifest = json(&blob(&image, &json(&image.join("index.json"))["manifests"][0]));
    let config = json(&blob(&image, &manifest["config"]));
    let layer = blob(&image, &manifest["layers"][0]);
    let of_config = &config["config"];
    assert_eq!((&of_config["User"], &of_config["Entrypoint"][0]), (&"65532:65532".into(), &"/esker".into()));
    assert_eq!(of_config["Healthcheck"]["Test"][2], "ping");
    let plain = at.join("layer");
    std::io::copy(
        &mut GzDecoder::new(std::fs::File::open(&layer).unwrap()),
        &mut std::fs::File::create(&plain).unwrap(),
    )
    .unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", digest_of(&plain)));
    let listed = done(Command::new("tar").arg("tvf").arg(&plain).arg("--numeric-owner"));
    assert!(
        listed.lines().any(|line| line.starts_with("drwx------ 65532/65532") && line.ends_with(" data/")),
        "{listed}"
    );
    if is_root() {
        create_dir_all(&root).unwrap();
        done(
            Command::new("tar")
                .arg("xpf")
                .arg(&plain)
                .arg("-C")
                .arg(&root)
                .arg("--same-owner")
                .arg("--numeric-owner"),
        );
        assert_eq!(u64::from(root.join("data").metadata().unwrap().uid()), USER);
        add_libraries(&root.join("esker"), &root);
        serve_in(&root, "/esker");
    }
}

fn check_sbom(document: &Path) {
    let document = json(document);
    let components = document["components"].as_array().unwrap();
    let refs: BTreeSet<_> = components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
    assert!(refs.len() == components.len() && refs.len() > 100, "{}", refs.len());
    for name in ["esker-server", "tokio", "lua-src", "zstd-sys"] {
        assert!(components.iter().any(|one| one["name"] == name), "{name}");
    }
    // Crates that only tests or builds use are not linked.
    for name in ["tempfile", "proptest", "syn", "cc"] {
        assert!(!components.iter().any(|one| one["name"] == name), "{name}");
    }
    assert!(components.iter().all(|one| one["licenses"][0]["expression"].as_str() != Some("NOASSERTION")));
    for row in document["dependencies"].as_array().unwrap() {
        let all = row["dependsOn"].as_array().unwrap();
        assert!(all.iter().all(|one| refs.contains(one.as_str().unwrap())), "{row}");
    }
}

#[test]
fn packages_are_unpacked_and_run() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3, so that no packages are made");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (packages, is_given) = packages(directory.path());
    let sums = packages.join("SHA256SUMS");
    done(Command::new("sha256sum").arg("--check").arg("--strict").arg(&sums).current_dir(&packages));
    if !is_given {
        // It was kept, and is not listed.
        std::fs::remove_file(packages.join(OTHER_FILE)).unwrap();
    }
    assert_eq!(read_to_string(&sums).unwrap().lines().count(), read_dir(&packages).unwrap().count() - 1);
    check_tarball(&file(&packages, ".tar.gz").unwrap(), directory.path(), is_given);
    check_image(&file(&packages, ".oci.tar").unwrap(), directory.path());
    check_sbom(&file(&packages, ".cdx.json").unwrap());
    match file(&packages, ".deb") {
        Some(package) => check_debian(&package, directory.path()),
        None => eprintln!("SKIPPED: there is no dpkg-deb, so that no Debian package is made"),
    }
}
