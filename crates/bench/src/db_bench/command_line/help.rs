//! The help about db_bench's command lines, generated from the lists of flags and benchmarks.

use std::fmt::Write;

use super::benchmark::{BENCHMARKS, CHORES};
use super::known::{FLAGS, Kind, Meaning};

/// Wraps words to the width of a terminal.
fn wrapped<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let (mut text, mut width) = (String::from(" "), 1);
    for word in words {
        if width + 1 + word.len() > 100 {
            text += "\n ";
            width = 1;
        }
        let _ = write!(text, " {word}");
        width += 1 + word.len();
    }
    text + "\n"
}

/// Returns the flags with their meanings, and the names of the benchmarks.
pub(crate) fn text() -> String {
    let (mut used, mut own) = (String::new(), String::new());
    for flag in FLAGS.iter() {
        let (part, help) = match flag.meaning {
            Meaning::Used(help) => (&mut used, help),
            Meaning::Own(help) => (&mut own, help),
            Meaning::Ignored => continue,
        };
        let value = match flag.kind {
            Kind::Bool => "",
            Kind::Int(..) => "=N",
            Kind::Float => "=X",
            Kind::Text => "=TEXT",
        };
        let _ = writeln!(part, "  {:<44} {help}", format!("--{}{value}", flag.name));
    }
    format!(
        "Benchmarks, for --benchmarks; name[X3-W1] for three runs after one that does not count:\n{}\n\
         Between them:\n{}\n\
         Flags of db_bench, with their defaults:\n{used}\n\
         Flags of the harness; sizes are written 4096, 512m, 16g:\n{own}\n\
         All other flags of db_bench are checked and ignored; --help=ignored lists them.\n",
        wrapped(BENCHMARKS.iter().map(|benchmark| benchmark.name)),
        wrapped(CHORES.iter().map(|(name, _)| *name)),
    )
}

/// Returns the flags of db_bench that have no effect here.
pub(crate) fn ignored() -> String {
    let ignored = || FLAGS.iter().filter(|flag| flag.meaning == Meaning::Ignored);
    format!(
        "Flags of db_bench that have no meaning here. Their values are checked and ignored:\n{}\n\
         Of these, the following would change what db_bench does; here THE WORKLOAD IS NOT CHANGED by them:\n{}",
        wrapped(ignored().map(|flag| flag.name)),
        wrapped(ignored().filter(|flag| flag.changes_workload()).map(|flag| flag.name)),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn help_names_every_flag_and_benchmark() {
        let text = super::text();
        for part in [
            "fillseq",
            "writepressure",
            "waitforcompaction",
            "--queue_depth=N",
            "--fast_limit=TEXT",
            "--pressure_seconds=N",
            "--raw_bytes=TEXT",
            "--sync ",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 140));
    }

    #[test]
    fn ignored_flags_are_listed_separately() {
        let (text, ignored) = (super::text(), super::ignored());
        for name in ["write_buffer_size", "bloom_bits", "compaction_style", "readonly"] {
            assert!(ignored.contains(name) && !text.contains(name), "{name}:\n{ignored}\n{text}");
        }
        assert!(
            !ignored.contains(" num ") && text.trim_end().ends_with("--help=ignored lists them."),
            "{text}"
        );
        assert!(ignored.lines().all(|line| line.chars().count() <= 110));
    }
}
