//! What the help says of db_bench's command lines, from the lists of flags and benchmarks.

use std::fmt::Write;

use super::benchmark::{BENCHMARKS, CHORES};
use super::known::{FLAGS, Kind, Meaning};

/// Words as lines that are not longer than a terminal is wide.
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

/// The flags with what they do, the names of those without effect, and the names of the benchmarks.
pub(crate) fn text() -> String {
    let (mut used, mut own) = (String::new(), String::new());
    for flag in FLAGS.iter() {
        let (part, help) = match flag.meaning {
            Meaning::Used(help) => (&mut used, help),
            Meaning::Own(help) => (&mut own, help),
            Meaning::None(_) => continue,
        };
        let value = match flag.kind {
            Kind::Bool => "",
            Kind::Int(..) => "=N",
            Kind::Float => "=X",
            Kind::Text => "=TEXT",
        };
        let _ = writeln!(part, "  {:<44} {help}", format!("--{}{value}", flag.name));
    }
    let idle = FLAGS.iter().filter(|flag| matches!(flag.meaning, Meaning::None(_)));
    format!(
        "Benchmarks, for --benchmarks; name[X3-W1] for three runs after one that does not count:\n{}\n\
         Between them:\n{}\n\
         Flags of db_bench, with their defaults:\n{used}\n\
         Flags of the harness; sizes are written 4096, 512m, 16g:\n{own}\n\
         Accepted without effect, with a note that says why:\n{}",
        wrapped(BENCHMARKS.iter().map(|benchmark| benchmark.name)),
        wrapped(CHORES.iter().map(|(name, _)| *name)),
        wrapped(idle.map(|flag| flag.name)),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_names_every_flag_and_benchmark() {
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
            "write_buffer_size",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 140));
    }
}
