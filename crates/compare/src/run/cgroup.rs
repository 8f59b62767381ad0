//! Limits the memory of each engine, page cache included, by a control group: below this process's own
//! (version 1), or below the nearest ancestor that can delegate memory (version 2).

use std::fs;
use std::path::{Path, PathBuf};

/// The version of the control groups that limit memory here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A group that is removed on drop.
#[derive(Debug)]
pub(crate) struct Group {
    dir: PathBuf,
    version: Version,
}

/// Returns the groups in which a child can be made, from the text of `/proc/self/cgroup`: the best first.
fn places(text: &str, root: &Path) -> Vec<(PathBuf, Version)> {
    let mut places = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.split(',').any(|name| name == "memory") {
            places.push((root.join("memory").join(path), Version::One));
        }
        if controllers.is_empty() {
            // A group that contains processes cannot delegate, so the new group is a sibling or further
            // up.
            let own = root.join(path);
            places.extend(
                own.ancestors()
                    .take_while(|dir| dir.starts_with(root))
                    .map(|dir| (dir.to_owned(), Version::Two)),
            );
        }
    }
    places
}

/// Prefix of group names, followed by the ID of the process that made the group.
const PREFIX: &str = "esker-compare-";

/// Removes the groups of killed runs, whose processes have ended. A group in which a process still runs
/// stays.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker.to_string()).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Group {
    /// Makes the group of this process.
    pub(crate) fn of_this_process(bytes: u64) -> Result<Group, String> {
        Group::make(&format!("{PREFIX}{}", std::process::id()), bytes)
    }

    /// Makes a group with a memory limit of `bytes` bytes. The error explains why it is impossible.
    pub(crate) fn make(name: &str, bytes: u64) -> Result<Group, String> {
        let text =
            fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let mut why = Vec::new();
        for (parent, version) in places(&text, Path::new("/sys/fs/cgroup")) {
            match Group::below(&parent, name, version, bytes) {
                Ok(group) => return Ok(group),
                Err(error) => why.push(format!("{}: {error}", parent.display())),
            }
        }
        Err(if why.is_empty() { "there is no memory controller".into() } else { why.join("; ") })
    }

    fn below(parent: &Path, name: &str, version: Version, bytes: u64) -> std::io::Result<Group> {
        sweep(parent);
        let dir = parent.join(name);
        fs::create_dir(&dir)?;
        let group = Group { dir, version };
        let limit = match version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        // If setting the limit fails, the drop of the group removes it.
        fs::OpenOptions::new()
            .write(true)
            .open(group.dir.join(limit))
            .and_then(|mut file| std::io::Write::write_all(&mut file, bytes.to_string().as_bytes()))?;
        if version == Version::Two {
            // Swap would extend the memory.
            let _ = fs::write(group.dir.join("memory.swap.max"), "0");
        }
        Ok(group)
    }

    /// Returns the file to which a process writes its ID to enter the group.
    pub(crate) fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Returns a description for the report.
    pub(crate) fn describe(&self) -> String {
        let version = if self.version == Version::One { 1 } else { 2 };
        format!("control group version {version}")
    }

    /// Returns the peak memory usage in bytes, page cache included.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let name = if self.version == Version::One { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.dir.join(name)).ok()?.trim().parse().ok()
    }

    /// Returns the number of processes killed by the kernel because of the limit.
    pub(crate) fn kills(&self) -> u64 {
        let name = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group may stay busy for a moment after its last process has ended.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_killed_run_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (gone, here) = (format!("{PREFIX}4194305"), format!("{PREFIX}{}", std::process::id()));
        for name in [&gone, &here, "other-4194305"] {
            fs::create_dir(dir.path().join(name)).expect("made");
        }
        sweep(dir.path());
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!((left(&gone), left(&here), left("other-4194305")), (false, true, true));
    }

    #[test]
    fn cgroup_is_chosen_where_memory_can_be_limited() {
        let root = Path::new("/sys/fs/cgroup");
        let one = places("4:memory:/a/b\n3:cpu:/\n1:name=systemd:/x\n", root);
        assert_eq!(one, [(root.join("memory/a/b"), Version::One)]);
        let two = places("0::/user.slice/mine.scope\n", root);
        let dirs: Vec<_> = two.iter().map(|(dir, _)| dir.clone()).collect();
        assert_eq!(dirs, [root.join("user.slice/mine.scope"), root.join("user.slice"), root.to_owned()]);
        assert!(places("nonsense\n", root).is_empty());
    }
}
