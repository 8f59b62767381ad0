//! Checks the directories, the programs, and the machine before any measurement.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use esker_bench::{Failure, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::arguments::Arguments;
use crate::contest::command_line::Programs;
use crate::contest::engine::Engine;
use crate::contest::plan::{self, Sizes};
use crate::run::cgroup::Group as Limit;
use crate::run::comparison::Comparison;
use crate::run::machine::{self, Machine};
use crate::run::rivals;

/// Prepares the comparison of the arguments. An engine that cannot run is left out, with a note.
pub(crate) fn prepare(arguments: &Arguments) -> Result<Comparison> {
    let quick = arguments.preset == "quick";
    let sizes = sizes(arguments, quick)?;
    let engines = arguments.with.iter().map(|name| Engine::parse(name).map_err(Failure::Usage));
    let mut engines = engines.collect::<Result<Vec<_>>>()?;
    check_names(&arguments.only)?;
    let out = absolute(&arguments.out)?;
    // Below a directory of our own, because it is emptied.
    let parent = absolute(arguments.dir.as_ref().unwrap_or(&arguments.out))?;
    let dir = parent.join("esker-compare-data");
    let lock = lock(&parent)?;
    make_directories(&out, &dir)?;
    check_room(&dir, &sizes)?;
    let mut machine = Machine::look(&dir);
    let programs = programs(arguments, &mut engines, &mut machine)?;
    leave_out(&programs, &mut engines, &mut machine);
    look_at_limit(&sizes, &mut machine);
    Ok(Comparison {
        sizes,
        repetitions: arguments.repetitions.unwrap_or(if quick { 1 } else { 3 }),
        engines,
        only: arguments.only.clone(),
        programs,
        dir,
        out,
        machine,
        _lock: lock,
        began: Instant::now(),
    })
}

fn sizes(arguments: &Arguments, quick: bool) -> Result<Sizes> {
    // The last step is compared with db_bench's only one, for which 0 means no limit.
    let pressure_mb: BTreeSet<u64> = arguments.pressure_mb.iter().copied().collect();
    if pressure_mb.last() == Some(&0) {
        return Err(Failure::usage("--pressure-mb: one of the rates has to be more than 0"));
    }
    Ok(Sizes {
        data_bytes: arguments.data_bytes.unwrap_or(if quick { 128 << 20 } else { 8 << 30 }),
        memory_bytes: arguments.memory,
        seconds: arguments.duration.unwrap_or(if quick { 2 } else { 30 }),
        pressure_mb: pressure_mb.into_iter().collect(),
        fill_percent: arguments.fill,
        compression: arguments.compression.clone(),
    })
}

/// Checks the names of `--only`.
fn check_names(only: &[String]) -> Result<()> {
    let known: Vec<&str> = plan::GROUPS.into_iter().chain(["network"]).collect();
    match only.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(Failure::usage(format!("--only: '{name}' is not measured; there are {}", known.join(", "))))
        }
    }
}

fn make_directories(out: &Path, dir: &Path) -> Result<()> {
    // Remains of an interrupted run.
    machine::remove(dir)?;
    for made in [out, &out.join("logs"), dir] {
        std::fs::create_dir_all(made)
            .map_err(|error| Failure::usage(format!("making {}: {error}", made.display())))?;
    }
    Ok(())
}

fn check_room(dir: &Path, sizes: &Sizes) -> Result<()> {
    let free =
        rustix::fs::statvfs(dir).map_err(|error| Failure::failed(&dir.display().to_string(), error))?;
    let (free, needed) = (free.f_bavail * free.f_frsize, sizes.disk_bytes());
    if free >= needed {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} has {} MiB free, and engines may need {} at once; give --dir or smaller --data-bytes",
        dir.display(),
        free >> 20,
        needed >> 20
    )))
}

fn programs(arguments: &Arguments, engines: &mut Vec<Engine>, machine: &mut Machine) -> Result<Programs> {
    let this = std::env::current_exe().map_err(|error| Failure::failed("finding this program", error))?;
    Ok(Programs {
        server: arguments.esker.clone().unwrap_or_else(|| this.with_file_name("esker")),
        this,
        db_bench: arguments.db_bench.clone(),
        rivals: rivals::build(&arguments.rivals, engines, machine)?,
    })
}

/// Leaves out the engines whose programs cannot be run.
fn leave_out(programs: &Programs, engines: &mut Vec<Engine>, machine: &mut Machine) {
    if engines.iter().any(|engine| engine.is_rocksdb()) {
        match machine::db_bench_version(&programs.db_bench) {
            Some(version) => machine.versions.push(version),
            None => {
                machine.note(format!(
                    "LEFT OUT: rocksdb and blobdb, since {} cannot be run (Debian has it in rocksdb-tools)",
                    programs.db_bench.display()
                ));
                engines.retain(|engine| !engine.is_rocksdb());
            }
        }
    }
    if engines.contains(&Engine::Redis) {
        match machine::said("redis-server", &["--version"]) {
            Some(version) => machine.versions.push(version),
            None => {
                machine.note("LEFT OUT: redis, since redis-server cannot be run".into());
                engines.retain(|engine| *engine != Engine::Redis);
            }
        }
    }
}

fn look_at_limit(sizes: &Sizes, machine: &mut Machine) {
    match Limit::of_this_process(sizes.memory_bytes) {
        Ok(limit) => machine.limit = Some(limit.describe()),
        Err(why) => machine.note(format!(
            "MEMORY IS NOT LIMITED: {why}. Engines that lean on the page cache have all of the machine's memory, and \
             these figures do not compare at equal memory. Run as root, or in a group that may make others"
        )),
    }
}

/// Locks the directory of the data, so that no other run removes it. The lock ends with the process.
fn lock(parent: &Path) -> Result<File> {
    let named = |error: &dyn Display| Failure::usage(format!("{}: {error}", parent.display()));
    std::fs::create_dir_all(parent).map_err(|error| named(&error))?;
    let dir = File::open(parent).map_err(|error| named(&error))?;
    match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(dir),
        Err(error) if error == Errno::WOULDBLOCK => {
            Err(named(&"another comparison keeps its data here; give another --dir"))
        }
        Err(error) => Err(named(&error)),
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Failure::failed(&path.display().to_string(), error))
}
