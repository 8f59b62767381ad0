//! Packages as cargo sees them: dependencies among our own packages, the use of declared dependencies,
//! and licences.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::licences::is_allowed;
use crate::modules::{Modules, files_below};
use crate::source::Source;

/// The packages of ours that each of our packages may use, the lowest first.
#[rustfmt::skip]
const ARROWS: &[(&str, &[&str])] = &[
    ("esker-seeded-bugs", &[]),
    ("esker-device", &["esker-seeded-bugs"]),
    ("esker-index", &["esker-seeded-bugs"]),
    ("esker-log", &["esker-device", "esker-index", "esker-seeded-bugs"]),
    ("esker-gc", &["esker-device", "esker-log"]),
    ("esker-simulated", &["esker-device"]),
    ("esker-engine", &["esker-device", "esker-index", "esker-log", "esker-gc", "esker-seeded-bugs"]),
    ("esker-simulator", &["esker-device", "esker-engine", "esker-simulated"]),
    ("esker-inspect", &["esker-device", "esker-log", "esker-engine", "esker-seeded-bugs"]),
    ("esker-cluster", &["esker-device", "esker-engine", "esker-seeded-bugs"]),
    ("esker", &["esker-engine"]),
    ("esker-backup", &["esker-device", "esker-log", "esker-engine", "esker-seeded-bugs"]),
    ("esker-rdb", &[]),
    ("esker-nvme", &[]),
    ("esker-server", &["esker-engine", "esker-cluster", "esker-backup", "esker-nvme", "esker-rdb", "esker-seeded-bugs"]),
    ("esker-command", &[]),
    ("esker-ssd-model", &["esker-command"]),
    ("esker-ssd-bench", &["esker-device", "esker-log", "esker-engine", "esker-ssd-model", "esker-simulated"]),
    ("esker-bench", &["esker-device", "esker-log", "esker-engine", "esker-command"]),
    ("esker-compare", &["esker-bench", "esker-command"]),
    ("esker-cli", &[
        "esker-device", "esker-log", "esker-engine", "esker-backup", "esker-inspect", "esker-rdb", "esker-server", "esker-bench", "esker-command",
        "esker-nvme", "esker-cluster",
    ]),
    ("esker-ssd", &["esker-command", "esker-engine", "esker-ssd-model", "esker-ssd-bench"]),
    ("esker-fuzz-entry", &["esker-cli", "esker-cluster", "esker-engine", "esker-log", "esker-nvme", "esker-rdb", "esker-server"]),
];

/// Additional packages that tests may use.
#[rustfmt::skip]
const TEST_ARROWS: &[(&str, &[&str])] = &[
    ("esker-engine", &["esker-simulated"]),
    ("esker-inspect", &["esker-simulated"]),
    ("esker-backup", &["esker-inspect"]),
    ("esker-cluster", &["esker-simulated"]),
    ("esker-cli", &["esker-seeded-bugs", "esker-ssd-model"]),
    ("esker", &["esker-device", "esker-log", "esker-seeded-bugs", "esker-simulator", "esker-simulated"]),
    ("esker-server", &["esker-device"]),
];

/// Dependencies that no source names: package, dependency, reason.
const KEPT: &[(&str, &str, &str)] = &[];

/// Packages of which the shipped command has two versions, and why that cannot be changed here.
const TWICE: &[(&str, &str)] = &[
    (
        "block-buffer",
        "openraft's quorum-set has sha2 0.10 and argon2 has digest 0.11; the same for the next three",
    ),
    ("cpufeatures", "see block-buffer"),
    ("crypto-common", "see block-buffer"),
    ("digest", "see block-buffer"),
    ("getrandom", "ring has 0.2 and rand 0.9 has 0.3"),
    ("itertools", "openraft has 0.15, others 0.14"),
    ("rand", "openraft's runtime has 0.10, and rand_distr and others 0.9"),
    ("rand_core", "rand 0.9 has 0.9 and getrandom 0.4 has 0.10"),
    ("syn", "derive macros are between 2 and 3; none of it is in the command"),
];

/// A dependency of one of our packages.
#[derive(Debug)]
struct Dependency {
    /// The package.
    of: String,
    /// Name of the dependency in the package's sources.
    name: String,
    /// The dependency's package.
    package: String,
    /// True if only tests, examples and measurements use it.
    is_for_tests: bool,
}

/// The output of `cargo metadata` for the current platform, because only its packages have been
/// downloaded.
struct Metadata(Value);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().expect("the toolchain is there");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Metadata {
    fn read() -> Metadata {
        let versions = output(Command::new("rustc").arg("-vV"));
        let host = versions.lines().find_map(|line| line.strip_prefix("host: ")).expect("it tells the host");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version=1", "--locked", "--filter-platform", host]);
        Metadata(serde_json::from_str(&output(&mut command)).expect("it is JSON"))
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        let nodes: BTreeSet<_> = list(&self.0["resolve"]["nodes"]).map(|node| text(node, "id")).collect();
        list(&self.0["packages"]).filter(move |package| nodes.contains(text(package, "id")))
    }

    fn package(&self, id: &str) -> &Value {
        list(&self.0["packages"]).find(|package| text(package, "id") == id).expect("each is described")
    }

    /// Returns our packages with their directories.
    fn members(&self) -> BTreeMap<String, PathBuf> {
        let ids = list(&self.0["workspace_members"]).filter_map(Value::as_str);
        let named = ids.map(|id| {
            let package = self.package(id);
            let manifest = Path::new(text(package, "manifest_path"));
            (text(package, "name").to_owned(), manifest.parent().expect("it lies somewhere").to_owned())
        });
        named.collect()
    }

    fn node(&self, id: &str) -> &Value {
        list(&self.0["resolve"]["nodes"]).find(|node| text(node, "id") == id).expect("each is resolved")
    }

    /// Returns the dependencies of our packages.
    fn dependencies(&self) -> Vec<Dependency> {
        let mut dependencies = Vec::new();
        for id in list(&self.0["workspace_members"]).filter_map(Value::as_str) {
            for dependency in list(&self.node(id)["deps"]) {
                for kind in list(&dependency["dep_kinds"]) {
                    dependencies.push(Dependency {
                        of: text(self.package(id), "name").to_owned(),
                        name: text(dependency, "name").to_owned(),
                        package: text(self.package(text(dependency, "pkg")), "name").to_owned(),
                        is_for_tests: text(kind, "kind") == "dev",
                    });
                }
            }
        }
        dependencies
    }

    /// Returns names and versions of the packages that one of our packages is built from.
    fn built_into(&self, name: &str) -> BTreeMap<&str, BTreeSet<&str>> {
        let is_it = |package: &&Value| text(package, "name") == name;
        let mut next = vec![text(self.packages().find(is_it).expect("it is there"), "id")];
        let (mut seen, mut versions) = (BTreeSet::new(), BTreeMap::<_, BTreeSet<_>>::new());
        while let Some(id) = next.pop() {
            if seen.insert(id) {
                let package = self.package(id);
                versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
                let in_it = |of: &&Value| list(&of["dep_kinds"]).any(|kind| kind["kind"].is_null());
                next.extend(list(&self.node(id)["deps"]).filter(in_it).map(|of| text(of, "pkg")));
            }
        }
        versions
    }
}

/// Returns the row of a package in a table.
fn row<'t>(table: &'t [(&str, &[&'t str])], name: &str) -> Option<&'t [&'t str]> {
    table.iter().find(|(of, _)| *of == name).map(|(_, may)| *may)
}

/// Returns the arrows that the tables do not allow.
fn strangers(dependencies: &[Dependency], ours: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for Dependency { of, package, is_for_tests, .. } in dependencies {
        let may = row(ARROWS, of).is_some_and(|may| may.contains(&package.as_str()));
        let may_in_tests = row(TEST_ARROWS, of).is_some_and(|may| may.contains(&package.as_str()));
        if ours.contains(package) && !may && !(*is_for_tests && may_in_tests) {
            let where_to = if *is_for_tests { " in its tests" } else { "" };
            found.push(format!("{of} uses {package}{where_to}, which the table of arrows does not have"));
        }
    }
    found
}

/// Returns the names used in the sources of a package: in the package itself, and together with tests,
/// examples and measurements.
fn named(directory: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let itself = Modules::below(&directory.join("src"));
    let itself: BTreeSet<_> = itself.firsts().into_iter().map(str::to_owned).collect();
    let mut with_tests = itself.clone();
    for room in ["src", "tests", "benches", "examples"] {
        for file in files_below(&directory.join(room)) {
            let source = Source::with_tests(&read(&file));
            with_tests.extend(source.firsts().into_iter().map(str::to_owned));
        }
    }
    (itself, with_tests)
}

/// Returns the dependencies that no source names.
fn unused(
    dependencies: &[Dependency],
    named: &BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>,
) -> Vec<String> {
    let mut found = Vec::new();
    for Dependency { of, name, package, is_for_tests } in dependencies {
        let (itself, with_tests) = &named[of];
        let is_kept = KEPT.iter().any(|(by, kept, _)| by == of && kept == package);
        match (itself.contains(name), with_tests.contains(name), is_for_tests) {
            _ if is_kept => {}
            (false, true, false) => {
                found.push(format!("only tests of {of} use {package}: make it a dev-dependency"))
            }
            (_, false, _) => {
                found.push(format!("nothing in {of} uses {package}: take it out of its Cargo.toml"))
            }
            _ => {}
        }
    }
    found
}

/// Returns the names in `workspace.dependencies` that no package uses.
fn untaken(workspace: &toml::Table, members: &[toml::Table]) -> Vec<String> {
    let declared = workspace["workspace"]["dependencies"].as_table().expect("a table");
    let mut taken = BTreeSet::new();
    for member in members {
        let targets = member.get("target").and_then(toml::Value::as_table);
        let targets =
            targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
        for table in targets.chain([member]) {
            for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
                let these = table.get(kind).and_then(toml::Value::as_table);
                taken.extend(these.into_iter().flat_map(toml::Table::keys).map(String::as_str));
            }
        }
    }
    let untaken = declared.keys().filter(|name| !taken.contains(name.as_str()));
    untaken.map(|name| format!("no package takes {name} of workspace.dependencies: take it out")).collect()
}

/// Returns the packages without a licence, or whose licence is not allowed.
fn unlicensed<'p>(packages: impl Iterator<Item = &'p Value>) -> Vec<String> {
    let judge = |package: &Value| {
        let (name, version) = (text(package, "name"), text(package, "version"));
        match package["license"].as_str() {
            None => Some(format!("{name} {version} tells no licence")),
            Some(licence) => match is_allowed(licence) {
                Ok(true) => None,
                Ok(false) => Some(format!("{name} {version} is under {licence}, which is not in the list")),
                Err(error) => Some(format!("{name} {version}: {error}")),
            },
        }
    };
    packages.filter_map(judge).collect()
}

/// Returns the packages that would contain planted bugs in a user's build.
fn planted<'p>(packages: impl Iterator<Item = &'p Value>) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let name = text(package, "name");
        for dependency in list(&package["dependencies"]).filter(|of| text(of, "name") == "esker-seeded-bugs")
        {
            let is_for_tests = text(dependency, "kind") == "dev";
            if !is_for_tests && list(&dependency["features"]).next().is_some() {
                found.push(format!("{name} asks for planted bugs; only development dependencies may"));
            }
        }
        let features = package["features"].as_object().into_iter().flatten();
        for (feature, _) in
            features.filter(|(_, of)| list(of).any(|of| text_of(of).contains("esker-seeded-bugs")))
        {
            found.push(format!("the feature {feature} of {name} asks for planted bugs"));
        }
    }
    found
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn refuse(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn packages_use_those_that_the_table_says() {
    let metadata = Metadata::read();
    let ours: BTreeSet<_> = metadata.members().into_keys().collect();
    let rows: BTreeSet<_> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(ours, rows, "every package has a row in {}", file!());
    for (at, (name, may)) in ARROWS.iter().enumerate() {
        let lower: Vec<_> = ARROWS[..at].iter().map(|(name, _)| name).collect();
        assert!(may.iter().all(|other| lower.contains(&other)), "{name} may use only what stands before it");
    }
    refuse(strangers(&metadata.dependencies(), &ours));
}

#[test]
fn dependencies_are_used() {
    let metadata = Metadata::read();
    let members = metadata.members();
    let named = members.iter().map(|(name, directory)| (name.clone(), named(directory))).collect();
    let mut found = unused(&metadata.dependencies(), &named);
    let manifest = |directory: &Path| -> toml::Table {
        read(&directory.join("Cargo.toml")).parse().expect("cargo has read it too")
    };
    let manifests: Vec<_> = members.values().map(|directory| manifest(directory)).collect();
    found.extend(untaken(&manifest(root()), &manifests));
    refuse(found);
}

#[test]
fn licences_are_those_of_the_list() {
    refuse(unlicensed(Metadata::read().packages()));
}

#[test]
fn packages_for_users_contain_no_planted_bugs() {
    refuse(planted(Metadata::read().packages()));
}

#[test]
fn the_command_has_no_package_twice() {
    let metadata = Metadata::read();
    let built = metadata.built_into("esker-cli");
    let twice: BTreeMap<_, _> = built.iter().filter(|(_, versions)| versions.len() > 1).collect();
    let known: BTreeSet<_> = TWICE.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<_> = twice.keys().map(|name| **name).collect();
    assert_eq!(found, known, "packages that `esker` has twice, and those that {} lists: {twice:?}", file!());
}

#[test]
fn every_rule_is_seen_to_refuse() {
    let dependency = |of: &str, package: &str, is_for_tests| Dependency {
        of: of.to_owned(),
        name: package.replace('-', "_"),
        package: package.to_owned(),
        is_for_tests,
    };
    let ours = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let arrows = [
        dependency("esker-log", "esker-engine", false),
        dependency("esker-index", "esker-device", true),
        dependency("esker-server", "esker-device", false),
        dependency("esker-server", "esker-device", true),
        dependency("esker-log", "esker-device", false),
        dependency("esker-log", "bytes", false),
    ];
    let found = strangers(&arrows, &ours);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[1].contains("esker-index uses esker-device in its tests"), "{found:?}");

    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let named = [("a".to_owned(), (names(&["used"]), names(&["used", "in_tests"])))].into();
    let declared = [
        dependency("a", "used", false),
        dependency("a", "in-tests", false),
        dependency("a", "in-tests", true),
        dependency("a", "never", false),
        dependency("a", "never-2", true),
    ];
    let found = unused(&declared, &named);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("only tests of a use in-tests"), "{found:?}");

    let workspace =
        "[workspace.dependencies]\na = \"1\"\nb = \"1\"\nc = \"1\"\nd = \"1\"".parse().expect("TOML");
    let member =
        "[dependencies]\na.workspace = true\n[target.'cfg(unix)'.dev-dependencies]\nb.workspace = true";
    let other = "[build-dependencies]\nc = { workspace = true }";
    let members = [member, other].map(|text| text.parse().expect("TOML"));
    assert_eq!(untaken(&workspace, &members), ["no package takes d of workspace.dependencies: take it out"]);

    let asks = |kind: Value, features: &[&str]| {
        serde_json::json!({ "name": "a", "features": { "all": ["b/c"] },
            "dependencies": [{ "name": "esker-seeded-bugs", "kind": kind, "features": features }] })
    };
    let mut through_a_feature = asks(Value::Null, &[]);
    through_a_feature["features"]["bugs"] = serde_json::json!(["esker-seeded-bugs/planted"]);
    let packages = [asks("dev".into(), &["planted"]), asks(Value::Null, &["planted"]), through_a_feature];
    assert_eq!(planted(packages.iter()).len(), 2);

    let packages = serde_json::json!([
        { "name": "a", "version": "1.0.0", "license": "MIT" },
        { "name": "b", "version": "1.0.0", "license": "GPL-3.0-only" },
        { "name": "c", "version": "1.0.0", "license": null },
        { "name": "d", "version": "1.0.0", "license": "MIT OR" },
    ]);
    let found = unlicensed(list(&packages));
    assert_eq!(found.len(), 3, "{found:?}");
}

/// Returns the defects for which a registry or its users would refuse a package.
fn unpublishable(package: &Value) -> Vec<String> {
    let name = text(package, "name");
    let mut found = Vec::new();
    for field in ["description", "license", "readme"] {
        if text(package, field).is_empty() {
            found.push(format!("{name} has no {field}"));
        }
    }
    for field in ["keywords", "categories", "authors"] {
        if !(1..=5).contains(&list(&package[field]).count()) {
            found.push(format!("{name} needs one to five {field}"));
        }
    }
    if package["metadata"]["docs"]["rs"].is_null() {
        found.push(format!("{name} has no settings for its documentation (package.metadata.docs.rs)"));
    }
    for dependency in list(&package["dependencies"]).filter(|of| of["path"].is_string()) {
        if text(dependency, "req") == "*" {
            let of = text(dependency, "name");
            found.push(format!("{name} uses {of} by its path, without a version"));
        }
    }
    found
}

/// `.ci/run` packs them too.
#[test]
fn every_package_can_be_published() {
    let metadata = Metadata::read();
    let members = metadata.members();
    let ours = metadata.packages().filter(|package| members.contains_key(text(package, "name")));
    let mut found: Vec<_> = ours.flat_map(unpublishable).collect();
    for (name, directory) in &members {
        let readme = read(&directory.join("README.md"));
        if name != "esker" && !readme.starts_with(&format!("# {name}\n")) {
            found.push(format!("the README of {name} does not begin with its name"));
        }
    }
    refuse(found);
    let bare = serde_json::json!({ "name": "a", "description": "x", "license": "MIT", "readme": null,
        "keywords": ["k"], "categories": [], "authors": ["a"], "metadata": null,
        "dependencies": [{ "name": "b", "path": "/b", "req": "*" }, { "name": "c", "req": "*" }] });
    assert_eq!(unpublishable(&bare).len(), 4, "{:?}", unpublishable(&bare));
}
