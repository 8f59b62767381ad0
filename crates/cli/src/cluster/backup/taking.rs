//! Takes a backup: each group is copied from its leader, in steps of `CLUSTER ESKER COPY`.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::at::{At, PATIENCE};
use super::super::state::{Group, State};
use super::file::{self, Identity, Writer};
use super::manifest::{CONSISTENCY, FORMAT, GroupFile, MANIFEST, Manifest};
use crate::client::{Answer, Client};
use crate::terminal::Failure;
use crate::time::now_ms;

/// Attempts to copy a group, each from its leader of then, and the pause between.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_secs(1);

/// A directory that is removed unless it is kept.
struct Partial(Option<PathBuf>);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// An answer to a step.
struct Part {
    copy: Vec<u8>,
    index: u64,
    last_index: u64,
    next: Option<Vec<u8>>,
    is_cleared: bool,
    count: u64,
    changes: Vec<u8>,
}

/// Reason for the end of an attempt to copy a group.
enum Ended {
    /// Another attempt may succeed.
    Again(String),
    Failed(Failure),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Executes a step.
fn step(client: &mut Client, group: &str, words: &[&[u8]]) -> Result<Part, Ended> {
    let words = [&[&b"CLUSTER"[..], b"ESKER", b"COPY", group.as_bytes()], words].concat();
    let answer = match client.ask(&words) {
        Ok(answer) => answer,
        Err(trouble) => {
            return Err(match Failure::from(trouble) {
                Failure::Failed(why) => Ended::Again(why),
                usage => Ended::Failed(usage),
            });
        }
    };
    let unexpected = || Ended::Failed(client.unexpected("CLUSTER ESKER COPY").into());
    let Answer::Parts(parts) = answer else { return Err(unexpected()) };
    let parts: [Answer; 7] = parts.try_into().map_err(|_| unexpected())?;
    match parts {
        [
            Answer::Text(copy),
            Answer::Text(index),
            Answer::Text(last_index),
            next @ (Answer::Text(_) | Answer::Nothing),
            Answer::Integer(is_cleared),
            Answer::Text(count),
            Answer::Text(changes),
        ] => {
            let numbers = number(&index).zip(number(&last_index)).zip(number(&count));
            let ((index, last_index), count) = numbers.ok_or_else(unexpected)?;
            let next = if let Answer::Text(next) = next { Some(next) } else { None };
            Ok(Part { copy, index, last_index, next, is_cleared: is_cleared != 0, count, changes })
        }
        _ => Err(unexpected()),
    }
}

/// A copy of a group in progress.
struct Copying<'c> {
    client: &'c mut Client,
    group: String,
    copy: Vec<u8>,
    writer: Writer,
    index: u64,
    changes: u64,
}

impl Copying<'_> {
    /// Writes the changes of entries until the copy has those up to `wanted`, or up to the end of the log if that is earlier, as after
    /// a change of the leader. Once for `None`.
    fn follow(&mut self, wanted: Option<u64>) -> Result<(), Ended> {
        loop {
            let after = self.index.to_string();
            let part = step(self.client, &self.group, &[b"LOG", &self.copy, after.as_bytes()])?;
            if part.is_cleared {
                return Err(Ended::Again("all keys were deleted meanwhile".into()));
            }
            self.writer.part(part.count, &part.changes)?;
            let has_advanced = part.index > self.index;
            (self.index, self.changes) = (part.index, self.changes + part.count);
            let Some(wanted) = wanted else { return Ok(()) };
            if self.index >= wanted.min(part.last_index) {
                return Ok(());
            }
            if !has_advanced {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Copies a group from a node into a file.
fn copy_from(
    client: &mut Client,
    directory: &Path,
    identity: Identity,
    slots: [u16; 2],
) -> Result<GroupFile, Ended> {
    let group = identity.group.to_string();
    let begun = step(client, &group, &[b"BEGIN"])?;
    let writer = Writer::create(directory, identity)?;
    let mut copying = Copying { client, group, copy: begun.copy, writer, index: begun.index, changes: 0 };
    let (mut cursor, mut keys) = (b"0".to_vec(), 0);
    let last_index = loop {
        let part = step(copying.client, &copying.group, &[b"KEYS", &copying.copy, &cursor])?;
        copying.writer.part(part.count, &part.changes)?;
        keys += part.count;
        // Beside the keys, so that little of the log is kept for the copy.
        copying.follow(None)?;
        match part.next {
            Some(next) => cursor = next,
            None => break part.last_index,
        }
    };
    copying.follow(Some(last_index))?;
    let Copying { writer, index, changes, .. } = copying;
    let (parts, bytes) = writer.end()?;
    let (group, file) = (identity.group, file::name(identity.group));
    Ok(GroupFile { group, file, index, slots, keys, changes, parts, bytes, at_ms: now_ms() })
}

/// Copies a group from its leader, another one if it changes.
fn copy(at: &At, directory: &Path, identity: Identity, slots: [u16; 2]) -> Result<GroupFile, Failure> {
    let mut why = String::new();
    for _ in 0..TRIES {
        let copied = leader(at, identity.group).and_then(|leader| {
            let mut client = at.login.connect(&leader, PATIENCE).map_err(|failure| match failure {
                Failure::Failed(why) => Ended::Again(why),
                usage => Ended::Failed(usage),
            })?;
            copy_from(&mut client, directory, identity, slots)
        });
        match copied {
            Ok(of) => return Ok(of),
            Err(Ended::Failed(failure)) => return Err(failure),
            Err(Ended::Again(again)) => why = again,
        }
        std::thread::sleep(PAUSE);
    }
    let group = identity.group;
    Err(Failure::Failed(format!(
        "group {group} was not copied in {TRIES} attempts; there is no backup: {why}"
    )))
}

/// Returns the address of a group's leader.
fn leader(at: &At, group: u8) -> Result<String, Ended> {
    let state = match at.state() {
        Ok(state) => state,
        Err(Failure::Failed(why)) => return Err(Ended::Again(why)),
        Err(usage) => return Err(Ended::Failed(usage)),
    };
    let leader = state.groups.iter().find(|one| one.group == group).and_then(|one| one.leader.clone());
    let address = leader.and_then(|leader| state.nodes.into_iter().find(|node| node.id == leader));
    address.map(|node| node.resp).ok_or_else(|| Ended::Again(format!("group {group} has no leader")))
}

/// Returns a random number: the standard library seeds its hashers with random bytes of the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn data(state: &State) -> impl Iterator<Item = (&Group, [u16; 2])> {
    state.groups.iter().filter_map(|group| Some((group, group.slots?)))
}

/// Takes a backup into a new directory.
pub(super) fn take(at: &At, directory: &Path) -> Result<Manifest, Failure> {
    if directory.symlink_metadata().is_ok() {
        return Err(Failure::Usage(format!(
            "{} exists; a backup gets a directory of its own: name a new one",
            directory.display()
        )));
    }
    let state = at.state()?;
    let mut name = directory.as_os_str().to_owned();
    name.push(".partial");
    let path = PathBuf::from(name);
    std::fs::create_dir(&path).map_err(|error| {
        let shown = path.display();
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                "; another backup writes there, or one was killed: then remove it"
            }
            _ => "",
        };
        Failure::Usage(format!("cannot make {shown}: {error}{hint}"))
    })?;
    let mut partial = Partial(Some(path.clone()));
    let began_ms = now_ms();
    let mut manifest = Manifest {
        format: FORMAT,
        backup: random(),
        consistency: CONSISTENCY.to_owned(),
        began_ms,
        groups: Vec::new(),
    };
    for (group, slots) in data(&state) {
        let identity = Identity { backup: manifest.backup, group: group.group };
        manifest.groups.push(copy(at, &path, identity, slots)?);
    }
    let failed =
        |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", directory.display()));
    let written = || {
        let to = path.join(MANIFEST);
        std::fs::write(&to, manifest.encode())?;
        File::open(&to)?.sync_all()?;
        File::open(&path)?.sync_all()?;
        // The name was free, and a directory that is not empty is never replaced.
        std::fs::rename(&path, directory)?;
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    written().map_err(failed)?;
    partial.0 = None;
    Ok(manifest)
}
