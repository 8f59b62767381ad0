//! The modules of a crate, and the dependencies between them.
//!
//! A re-exported name (`pub use`) is resolved to its definition: `crate::Error` is an arrow to the file
//! of the error, and not to `lib.rs`. A declaration of a child module is not an arrow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::source::{Source, Use};

/// The path of a module in its crate; empty for the root.
pub(crate) type Module = Vec<String>;

/// Arrows from modules to others.
pub(crate) type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// The sources of a crate without its tests.
pub(crate) struct Modules(BTreeMap<Module, Source>);

/// Formats a module's path as in code.
pub(crate) fn shown(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

/// Returns all Rust files below a directory.
pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.expect("the directory can be listed").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

impl Modules {
    /// Reads the files below the `src` of a crate.
    pub(crate) fn below(src: &Path) -> Modules {
        let read = |path: PathBuf| {
            let text = std::fs::read_to_string(&path).expect("a source can be read");
            (path.strip_prefix(src).expect("it lies below").to_owned(), text)
        };
        let files: Vec<_> = files_below(src).into_iter().map(read).collect();
        Modules::of(files.iter().map(|(path, text)| (path.to_str().expect("names are UTF-8"), text.as_str())))
    }

    /// As `below`, from texts by their paths in `src`.
    pub(crate) fn of<'t>(files: impl IntoIterator<Item = (&'t str, &'t str)>) -> Modules {
        let mut modules = BTreeMap::new();
        for (path, text) in files {
            let module = module_of(path);
            let of_tests = |name: &String| name == "tests" || name.ends_with("_tests");
            if !module.last().is_some_and(of_tests) {
                modules.insert(module, Source::of(text));
            }
        }
        let tests = |(module, source): (&Module, &Source)| -> Vec<Module> {
            source.test_modules.iter().map(|name| joined(module, [name.clone()])).collect()
        };
        let for_tests: Vec<_> = modules.iter().flat_map(tests).collect();
        modules.retain(|module: &Module, _| !for_tests.iter().any(|test| module.starts_with(test)));
        Modules(modules)
    }

    /// Returns the modules right below the root, and whether they are folders.
    pub(crate) fn rooms(&self) -> BTreeMap<String, bool> {
        let mut rooms = BTreeMap::new();
        for module in self.0.keys().filter(|module| !module.is_empty()) {
            *rooms.entry(module[0].clone()).or_default() |= module.len() > 1;
        }
        rooms
    }

    /// Returns the first components of all paths, without those of tests.
    pub(crate) fn firsts(&self) -> BTreeSet<&str> {
        self.0.values().flat_map(Source::firsts).collect()
    }

    /// Returns the arrows between files.
    pub(crate) fn arrows(&self) -> Arrows {
        let of = |module: &Module, source: &Source| -> BTreeSet<Module> {
            // A re-exported name is used only if the code contains it too.
            let is_used = |one: &&Use| !one.is_public || source.identifiers.contains(&one.name);
            let uses = source.uses.iter().filter(is_used);
            let named = uses.filter_map(|one| self.absolute(module, &one.path));
            let paths = source.paths.iter().filter_map(|path| {
                let aliased =
                    || self.alias(module, &path[0]).map(|of| joined(&of, path[1..].iter().cloned()));
                self.absolute(module, path).or_else(aliased)
            });
            let all = named.chain(paths).map(|path| self.holder(&path, 0));
            all.filter(|other| other != module).collect()
        };
        self.0.iter().map(|(module, source)| (module.clone(), of(module, source))).collect()
    }

    /// Returns a path from the root of the crate, if it leads into the crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let supers = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some(joined(module, path[1..].iter().cloned())),
            "super" => {
                let above = &module[..module.len().saturating_sub(supers)];
                Some(joined(above, path[supers..].iter().cloned()))
            }
            _ => {
                let below = joined(module, path.iter().cloned());
                self.0.contains_key(&below[..module.len() + 1]).then_some(below)
            }
        }
    }

    /// Returns the path that a name of a module stands for by one of its `use`s.
    fn alias(&self, module: &Module, name: &str) -> Option<Module> {
        let found = self.0.get(module)?.uses.iter().find(|one| one.name == name)?;
        self.absolute(module, &found.path)
    }

    /// Returns the module that defines the last component of a path.
    fn holder(&self, path: &[String], depth: usize) -> Module {
        let longest = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length]));
        let module = path[..longest.unwrap_or(0)].to_vec();
        let Some(name) = path.get(module.len()) else { return module };
        match self.alias(&module, name) {
            Some(of) if of != path[..=module.len()] && depth < 8 => {
                self.holder(&joined(&of, path[module.len() + 1..].iter().cloned()), depth + 1)
            }
            _ => module,
        }
    }
}

fn joined(module: &[String], names: impl IntoIterator<Item = String>) -> Module {
    module.iter().cloned().chain(names).collect()
}

fn module_of(path: &str) -> Module {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Module = stem.split('/').map(str::to_owned).collect();
    let last = module.last().map(String::as_str);
    if last == Some("mod") || module.len() == 1 && matches!(last, Some("lib" | "main")) {
        module.pop();
    }
    module
}

/// Returns the arrows between rooms of the first level, without the root.
pub(crate) fn between_rooms(arrows: &Arrows) -> Arrows {
    let mut rooms = Arrows::new();
    for (module, others) in arrows {
        let Some(room) = module.first() else { continue };
        let others = others.iter().filter_map(|other| other.first()).filter(|other| *other != room);
        rooms.entry(vec![room.clone()]).or_default().extend(others.map(|other| vec![other.clone()]));
    }
    rooms
}

/// Returns the cycles: sets of two or more modules that lead to each other, the largest first.
pub(crate) fn knots(arrows: &Arrows) -> Vec<BTreeSet<Module>> {
    let reach: BTreeMap<_, _> = arrows.keys().map(|from| (from, reached(arrows, from))).collect();
    let knot = |from: &&Module| -> BTreeSet<Module> {
        let back = |to: &&Module| reach.get(to).is_some_and(|back| back.contains(*from));
        reach[from].iter().filter(back).cloned().collect()
    };
    let mut knots: Vec<_> = arrows.keys().collect::<Vec<_>>().iter().map(knot).collect();
    knots.retain(|knot| knot.len() > 1);
    knots.sort_by(|a, b| (b.len(), a).cmp(&(a.len(), b)));
    knots.dedup();
    knots
}

fn reached(arrows: &Arrows, from: &Module) -> BTreeSet<Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        next.extend(arrows.get(at).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(arrows: &Arrows) -> Vec<String> {
        let line = |(module, others): (&Module, &BTreeSet<Module>)| {
            let others: Vec<_> = others.iter().map(shown).collect();
            (!others.is_empty()).then(|| format!("{} > {}", shown(module), others.join(" ")))
        };
        arrows.iter().filter_map(line).collect()
    }

    #[test]
    fn names_lead_to_the_file_that_has_them() {
        let modules = Modules::of([
            ("lib.rs", "mod a; mod b; mod error; pub use error::Error; pub use b::deep::Deep;"),
            ("error.rs", "pub enum Error {}"),
            (
                "a.rs",
                "use crate::{Error, b}; fn f() { b::deep::g(); } #[cfg(test)] mod t { use crate::Deep; }",
            ),
            ("b/mod.rs", "mod deep; pub(crate) use deep::Deep; const B: u8 = 1;"),
            ("b/deep.rs", "use super::B; pub(crate) struct Deep;"),
            ("b/deep_tests.rs", "use crate::a::A;"),
        ]);
        let expected = ["a > b b::deep error", "b::deep > b"];
        assert_eq!(lines(&modules.arrows()), expected);
        assert_eq!(knots(&modules.arrows()), []);
        assert_eq!(modules.rooms().into_iter().filter(|(_, is_folder)| *is_folder).count(), 1);
    }

    #[test]
    fn knots_are_found_between_files_and_between_rooms() {
        let modules = Modules::of([
            ("low/mod.rs", "pub(crate) mod one; pub(crate) mod two;"),
            ("low/one.rs", "use super::two::Two;"),
            ("low/two.rs", "fn f(of: crate::high::High) {}"),
            ("high/mod.rs", "mod face; pub(crate) use face::High;"),
            ("high/face.rs", "pub(crate) struct High(crate::low::one::One);"),
        ]);
        let knots_shown = |arrows: &Arrows| -> Vec<String> {
            let knot = |knot: &BTreeSet<Module>| knot.iter().map(shown).collect::<Vec<_>>().join(" ");
            knots(arrows).iter().map(knot).collect()
        };
        assert_eq!(knots_shown(&modules.arrows()), ["high::face low::one low::two"]);
        assert_eq!(knots_shown(&between_rooms(&modules.arrows())), ["high low"]);
    }
}
