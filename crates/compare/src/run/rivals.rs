//! The Rust engines, which are in a separate package that the default build does not compile.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use esker_bench::{Failure, Result};

use super::machine::Machine;
use crate::contest::engine::Engine;

/// Builds the package if one of its engines takes part. If it is missing or cannot be built, they are
/// left out, with a note.
pub(crate) fn build(package: &Path, engines: &mut Vec<Engine>, machine: &mut Machine) -> Result<PathBuf> {
    let names: Vec<_> =
        engines.iter().filter(|e| matches!(e, Engine::Rival(_))).map(|engine| engine.name()).collect();
    let target = package.join("target");
    let program = target.join("release").join("esker-rivals");
    if names.is_empty() {
        return Ok(program);
    }
    let mut leave_out = |why: String| {
        machine.note(format!("LEFT OUT: {}, since {why}", names.join(", ")));
        engines.retain(|engine| !matches!(engine, Engine::Rival(_)));
    };
    let manifest = package.join("Cargo.toml");
    if !manifest.exists() {
        leave_out(format!("{} is not there; --rivals says where the package is", manifest.display()));
        return Ok(program);
    }
    eprintln!("building {}", manifest.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(&manifest);
    cargo.arg("--target-dir").arg(&target).stdin(Stdio::null());
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => leave_out(format!("{} could not be built ({status})", manifest.display())),
        Err(error) => leave_out(format!("cargo cannot be run: {error}")),
    }
    let version = Command::new(&program).arg("--version").output();
    if let Ok(output) = version {
        let text = String::from_utf8_lossy(&output.stdout);
        machine.versions.extend(text.lines().map(str::to_owned));
    }
    std::path::absolute(&program).map_err(|error| Failure::failed(&program.display().to_string(), error))
}
