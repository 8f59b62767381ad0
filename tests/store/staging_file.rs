//! The staging file and all other files of a store: for one store at a time, and for its user alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use esker::{Blocking, Durability, Error, ErrorKind, Options, WriteOptions};
use esker_device::MemoryDevice;

use crate::support::block::{Loop, skipped};
use crate::support::opening::{make, opens_with_its_key, small, temp, two_tiers};

fn in_memory() -> Options {
    small(Options::devices(None, Some(Arc::new(MemoryDevice::new(64 << 20)))))
}

#[track_caller]
fn refusal(options: Options) -> Error {
    match Blocking::open(options) {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}

#[test]
fn a_staging_file_serves_one_store_at_a_time() {
    let dir = temp();
    let path = dir.path().join("staging");
    let first = Blocking::open(in_memory().staging(&path)).expect("the store opens");
    first.put("k", "v").expect("the put succeeds");
    let other = in_memory();
    let error = refusal(other.clone().staging(&path));
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    let message = error.to_string();
    assert!(message.contains(&path.display().to_string()) && message.contains("this process"), "{message}");
    let new = dir.path().join("new");
    assert_eq!(refusal(small(Options::directory(&new)).staging(&path)).kind(), ErrorKind::Locked);
    assert!(!new.exists(), "what is refused makes nothing");
    assert_eq!(first.get("k").expect("the get succeeds").as_deref(), Some(&b"v"[..]));
    first.close().expect("the store closes");
    // A handle of a closed store keeps no other store out.
    let second = Blocking::open(other.staging(&path)).expect("the store opens");
    second.close().expect("the store closes");
    drop(first);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o777
}

#[test]
fn files_of_store_are_accessible_to_its_user_only() {
    let dir = temp();
    let store = dir.path().join("store");
    make(small(Options::directory(&store)));
    assert_eq!(mode(&store), 0o700, "the directory");
    make(two_tiers(dir.path()));
    let named = dir.path().join("named");
    make(in_memory().staging(&named));
    let made = [store.join("data.esker"), store.join("staging.esker"), named];
    let tiers = ["fast", "capacity", "fast.staging"].map(|name| dir.path().join(name));
    for path in made.iter().chain(&tiers) {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
}

#[test]
fn data_file_keeps_its_mode_on_reopen() {
    let dir = temp();
    let store = dir.path().join("store");
    make(small(Options::directory(&store)));
    fs::set_permissions(store.join("data.esker"), fs::Permissions::from_mode(0o640)).expect("it can be set");
    opens_with_its_key(small(Options::directory(&store)));
    assert_eq!(mode(&store.join("data.esker")), 0o640);
}

#[test]
fn a_staging_file_is_not_looked_for_behind_a_symbolic_link() {
    let dir = temp();
    let (victim, link) = (dir.path().join("victim"), dir.path().join("link"));
    for bytes in [&b"something else"[..], b""] {
        fs::write(&victim, bytes).expect("a file");
        fs::remove_file(&link).ok();
        symlink(&victim, &link).expect("a link");
        let error = refusal(in_memory().staging(&link));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(
            error.to_string().contains("/link") && error.to_string().contains("symbolic link"),
            "{error}"
        );
        assert_eq!(fs::read(&victim).expect("it is there"), bytes);
    }
    // The same if the store chose the name.
    let store = dir.path().join("store");
    make(small(Options::directory(&store)));
    fs::remove_file(store.join("staging.esker")).expect("it was there");
    symlink(&victim, store.join("staging.esker")).expect("a link");
    let error = refusal(small(Options::directory(&store)));
    assert!(error.to_string().contains("staging.esker"), "{error}");
    assert_eq!(fs::read(&victim).expect("it is there"), b"");
}

#[test]
fn no_tier_is_made_behind_a_dangling_link() {
    let dir = temp();
    symlink(dir.path().join("elsewhere"), dir.path().join("fast")).expect("a link");
    let error = refusal(small(Options::fast_only(dir.path().join("fast"))));
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(!dir.path().join("elsewhere").exists());
}

#[test]
fn a_staging_file_of_another_user_is_refused() {
    let dir = temp();
    let path = dir.path().join("staging");
    fs::write(&path, "").expect("a file");
    if let Err(error) = std::os::unix::fs::chown(&path, Some(65_534), None) {
        return skipped(&format!("a file cannot be given away: {error}"));
    }
    let error = refusal(in_memory().staging(&path));
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("/staging") && error.to_string().contains("65534"), "{error}");
    // A staging file in a directory of the same user cannot have been put there by another user.
    let owned = dir.path().join("owned");
    fs::create_dir(&owned).expect("a directory");
    fs::rename(&path, owned.join("staging")).expect("it is moved");
    std::os::unix::fs::chown(&owned, Some(65_534), None).expect("it is given away");
    make(in_memory().staging(owned.join("staging")));
}

#[test]
fn a_staging_path_that_holds_something_else_is_refused() {
    let dir = temp();
    let path = dir.path().join("notes");
    let mut late = vec![0; 3 << 20];
    late[2 << 20] = 1;
    for bytes in [b"something else".to_vec(), vec![7; 9 << 20], late] {
        fs::write(&path, &bytes).expect("a file");
        let new = dir.path().join("new");
        for options in [in_memory(), in_memory().force_format(true), small(Options::directory(&new))] {
            let error = refusal(options.staging(&path));
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("/notes") && error.to_string().contains("holds"), "{error}");
        }
        assert!(!new.exists(), "what is refused makes nothing");
        assert!(fs::read(&path).expect("it is there") == bytes, "it is as it was");
        // The same if the store chose the name.
        let store = dir.path().join("store");
        make(small(Options::directory(&store)));
        fs::write(store.join("staging.esker"), &bytes).expect("a file");
        assert_eq!(refusal(small(Options::directory(&store))).kind(), ErrorKind::Invalid);
        assert!(fs::read(store.join("staging.esker")).expect("it is there") == bytes, "it is as it was");
        fs::remove_dir_all(&store).expect("it was there");
    }
    for bytes in [vec![], vec![0; 9 << 20]] {
        fs::write(&path, &bytes).expect("a file");
        make(in_memory().staging(&path));
    }
}

#[test]
fn staging_file_of_another_store_is_not_overwritten() {
    let dir = temp();
    let (path, kept) = (dir.path().join("staging"), dir.path().join("kept"));
    let process = |options: Options| options.durability(Durability::Process).staging(&path);
    let other = in_memory();
    make(other.clone().staging(&path));
    let store = Blocking::open(process(in_memory())).expect("the store opens");
    store.put("k", "acknowledged").expect("the put succeeds");
    fs::copy(&path, &kept).expect("it is copied");
    store.close().expect("the store closes");
    // The remains of a closed store block no other store.
    make(other.clone().staging(&path));
    fs::copy(&kept, &path).expect("it is as a kill leaves it");
    let before = fs::read(&path).expect("it is there");
    let new = || in_memory().segment_bytes(512 << 10);
    for options in [other.clone(), other.accept_loss(true), new(), new().accept_loss(true)] {
        let error = refusal(options.staging(&path));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("another store"), "{error}");
        assert!(fs::read(&path).expect("it is there") == before, "it is as it was");
    }
}

/// A store has one staging file, whatever the path of the opening is.
#[test]
fn store_finds_staged_write_under_another_path() {
    let dir = temp();
    let path = |name: &str| dir.path().join(name);
    let options = |name| small(Options::fast_only(path(name))).durability(Durability::Process);
    for (real, first, second) in [("a", "a", "a-link"), ("b", "b-link", "b")] {
        make(options(real));
        symlink(path(real), path(&format!("{real}-link"))).expect("a link");
        let store = Blocking::open(options(first)).expect("the store opens");
        store.put("k", "acknowledged").expect("the put succeeds");
        for file in fs::read_dir(dir.path()).expect("it is read").flatten() {
            if file.file_type().is_ok_and(|kind| kind.is_file()) {
                let kept = format!("kept {}", file.file_name().display());
                fs::copy(file.path(), path(&kept)).expect("it is copied");
            }
        }
        store.close().expect("the store closes");
        // The state after a kill.
        for file in fs::read_dir(dir.path()).expect("it is read").flatten() {
            if let Some(name) = file.file_name().to_string_lossy().strip_prefix("kept ") {
                fs::rename(file.path(), path(name)).expect("it is put back");
            }
        }
        let store = Blocking::open(options(second)).expect("the store opens");
        assert_eq!(
            store.get("k").expect("the get succeeds").as_deref(),
            Some(&b"acknowledged"[..]),
            "{second}"
        );
        store.close().expect("the store closes");
    }
}

/// New staging files of stores on block devices; removed when dropped.
struct SharedMemory(Vec<PathBuf>);

impl SharedMemory {
    fn watch() -> SharedMemory {
        SharedMemory(SharedMemory::files())
    }

    fn files() -> Vec<PathBuf> {
        let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|path| path.to_string_lossy().contains("/esker-")).collect()
    }

    /// Returns those of one device, because other tests may make some too.
    fn of(&self, disk: &Loop) -> Vec<PathBuf> {
        let number = fs::metadata(&disk.0).expect("the device is there").rdev();
        let end = format!("-{}-{}.staging", libc::major(number), libc::minor(number));
        let new = SharedMemory::files().into_iter().filter(|path| !self.0.contains(path));
        new.filter(|path| path.to_string_lossy().ends_with(&end)).collect()
    }
}

/// Makes loop devices with a store on the first and a copy of it on the second.
fn store_and_copy(dir: &Path) -> Result<[Loop; 2], String> {
    let attach = |name: &str| Loop::attach(&dir.join(name), 64 << 20);
    let (one, two) = (attach("one")?, attach("two")?);
    make(on(&one));
    copy(&one, &two);
    Ok([one, two])
}

fn copy(from: &Loop, to: &Loop) {
    fs::write(&to.0, fs::read(&from.0).expect("the device is read")).expect("the copy is written");
}

fn on(disk: &Loop) -> Options {
    small(Options::fast_only(&disk.0)).durability(Durability::Process)
}

#[test]
fn a_block_device_and_its_copy_have_staging_files_of_their_own() {
    let dir = temp();
    let shared = SharedMemory::watch();
    let disks = match store_and_copy(dir.path()) {
        Ok(disks) => disks,
        Err(why) => return skipped(&why),
    };
    let stores = disks.each_ref().map(|disk| Blocking::open(on(disk)).expect("it opens beside its copy"));
    for (store, value) in stores.iter().zip(["first", "second"]) {
        store.put("k", value).expect("the put succeeds");
    }
    for (disk, store) in disks.iter().zip(stores) {
        let files = shared.of(disk);
        store.close().expect("the store closes");
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(mode(&files[0]), 0o600);
        fs::remove_file(&files[0]).expect("it is removed");
    }
}

/// Writes acknowledged before a kill are in the staging file. The device has another number when it is
/// attached again.
#[test]
fn staging_file_under_other_device_number_is_not_ignored() {
    let dir = temp();
    let shared = SharedMemory::watch();
    let [one, two] = match store_and_copy(dir.path()) {
        Ok(disks) => disks,
        Err(why) => return skipped(&why),
    };
    let store = Blocking::open(on(&one)).expect("the store opens");
    store.put("k", "acknowledged").expect("the put succeeds");
    let [file] = &shared.of(&one)[..] else { panic!("one staging file") };
    let kept = dir.path().join("kept");
    fs::copy(file, &kept).expect("it is copied");
    // The state after a kill: the device without the put, the staging file with it.
    copy(&one, &two);
    drop(store);
    Blocking::open(on(&one)).expect("the store opens").close().expect("the store closes");
    fs::copy(&kept, file).expect("it is copied back");
    let error = refusal(on(&two));
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    let own = error.to_string();
    let own = own.split(' ').find(|word| word.starts_with("/dev/shm/") && *word != file.to_string_lossy());
    let own = PathBuf::from(own.expect("it tells the name to take"));
    fs::rename(file, &own).expect("it is renamed");
    let store = Blocking::open(on(&two)).expect("the store opens");
    assert_eq!(store.get("k").expect("the get succeeds").as_deref(), Some(&b"acknowledged"[..]));
    store.close().expect("the store closes");
    fs::remove_file(own).expect("it is removed");
}

/// Run by the test below without a readable boot id of the kernel.
#[test]
#[ignore = "needs a world without a boot id"]
fn without_a_boot_id() {
    let dir = temp();
    let options = || small(Options::directory(dir.path().join("store")));
    for options in [options(), options().staging(dir.path().join("staging"))] {
        let store = Blocking::open(options).expect("the store opens");
        store.put("k", "v").expect("other levels work");
        let process = WriteOptions { durability: Some(Durability::Process), ..WriteOptions::default() };
        let error = store.put_with("k", "v", process).expect_err("nobody could tell whether it survived");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        store.close().expect("the store closes");
    }
}

#[test]
fn without_a_boot_id_the_level_process_is_refused() {
    let test = std::env::current_exe().expect("this test has a path");
    let hide = "mount --bind /dev/null /proc/sys/kernel/random/boot_id || exit 77; \
                exec \"$0\" --exact staging_file::without_a_boot_id --ignored --nocapture";
    let mut command = Command::new("unshare");
    let ran = match command.args(["--mount", "sh", "-c", hide]).arg(test).output() {
        Ok(ran) => ran,
        Err(error) => return skipped(&format!("unshare: {error}")),
    };
    let output = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(77) || output.starts_with("unshare:") {
        return skipped(&output);
    }
    assert!(ran.status.success() && output.contains("1 passed"), "{output}");
}
