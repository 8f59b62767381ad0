//! `esker-compare chart`: draws a long run over time as SVG, from the CSV of `--report_file` or of
//! `endurance --csv`.
//!
//! One panel per column, one line per phase.

use std::path::{Path, PathBuf};

use esker_bench::{Failure, Result, println};
use plotters::prelude::*;

use crate::results::number;

/// Options of `esker-compare chart`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The CSV: of `--report_file`, or of `endurance --csv`.
    file: PathBuf,
    /// Columns that are drawn [default: the most informative ones, or all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// File of the chart [default: the CSV's name with .svg].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The most informative columns of `endurance`.
const MOST: [&str; 8] = [
    "operations_per_s",
    "get_p99_us",
    "get_p999_us",
    "put_p999_us",
    "wa_per_user_byte",
    "free_segments",
    "resident_bytes",
    "stall_us",
];
const WIDTH: u32 = 900;
const PANEL: u32 = 180;
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 119, 14), RGBColor(44, 140, 44), RGBColor(148, 103, 189)];

/// The points of a column by phase.
struct Panel {
    name: String,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Draws the chart.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let name = arguments.file.display();
    let text = std::fs::read_to_string(&arguments.file)
        .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let panels =
        panels(&text, &arguments.columns).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let out = arguments.out.clone().unwrap_or_else(|| arguments.file.with_extension("svg"));
    draw(&out, &panels).map_err(|error| Failure::failed(&format!("drawing {}", out.display()), error))?;
    println!("{}", out.display());
    Ok(())
}

fn panels(text: &str, wanted: &[String]) -> std::result::Result<Vec<Panel>, String> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or("").split(',').map(str::trim).collect();
    let at = |name: &str| header.iter().position(|column| *column == name);
    let time = at("at_s").or_else(|| at("secs_elapsed"));
    let time = time
        .ok_or("there is no column at_s or secs_elapsed; it has to be a CSV of --report_file or endurance")?;
    let phase = at("phase");
    let columns: Vec<usize> = if wanted.is_empty() {
        let most: Vec<usize> = MOST.iter().filter_map(|name| at(name)).collect();
        let others =
            || (0..header.len()).filter(|column| *column != time && Some(*column) != phase).collect();
        if most.is_empty() { others() } else { most }
    } else {
        let find = |name: &String| {
            at(name).ok_or(format!("there is no column {name}; there are {}", header.join(", ")))
        };
        wanted.iter().map(find).collect::<std::result::Result<_, _>>()?
    };
    let mut panels: Vec<Panel> =
        columns.iter().map(|column| Panel { name: header[*column].to_owned(), lines: Vec::new() }).collect();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        // The last line of a run in progress may be incomplete.
        if fields.len() != header.len() {
            continue;
        }
        let value = |column: usize| {
            let field = fields[column];
            field
                .parse::<f64>()
                .map_err(|_| format!("line {}: {} is '{field}', no number", number + 2, header[column]))
        };
        let (x, phase) = (value(time)?, phase.map_or("", |column| fields[column]));
        for (panel, column) in panels.iter_mut().zip(&columns) {
            let point = (x, value(*column)?);
            match panel.lines.iter_mut().find(|(name, _)| name == phase) {
                Some((_, points)) => points.push(point),
                None => panel.lines.push((phase.to_owned(), vec![point])),
            }
        }
    }
    if panels.iter().all(|panel| panel.lines.is_empty()) {
        return Err("there is nothing in it".into());
    }
    Ok(panels)
}

fn draw(out: &Path, panels: &[Panel]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(out, (WIDTH, PANEL * panels.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    for (panel, area) in panels.iter().zip(root.split_evenly((panels.len(), 1))) {
        let points = || panel.lines.iter().flat_map(|(_, points)| points);
        let end = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let top = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .caption(&panel.name, ("sans-serif", 15))
            .x_label_area_size(24)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..end, 0.0..top.max(1e-9))?;
        let short = |value: &f64| number::short(*value);
        chart.configure_mesh().light_line_style(WHITE).x_desc("s").y_label_formatter(&short).draw()?;
        for ((phase, points), colour) in panel.lines.iter().zip(COLOURS.iter().cycle()) {
            chart.draw_series(std::iter::once(PathElement::new(points.clone(), colour)))?;
            if let (Some(last), false) = (points.last(), phase.is_empty()) {
                let style = ("sans-serif", 12).into_font().color(colour);
                let near = (last.0 - end * 0.07).max(0.0);
                chart.draw_series(std::iter::once(Text::new(phase.clone(), (near, last.1), style)))?;
            }
        }
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(file: &Path, columns: &[&str]) -> Arguments {
        Arguments {
            file: file.to_owned(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            out: None,
        }
    }

    #[test]
    fn both_csv_kinds_are_drawn() {
        let dir = tempfile::tempdir().expect("a directory");
        let report = dir.path().join("report.csv");
        std::fs::write(&report, "secs_elapsed,interval_qps\n1,5000\n2,7000\n3,60").expect("written");
        run(&arguments(&report, &[])).expect("it is drawn");
        let text = std::fs::read_to_string(dir.path().join("report.svg")).expect("a chart");
        assert!(text.contains("interval_qps") && text.contains("polyline"), "{text}");

        let long = "phase,at_s,operations_per_s,get_p99_us,refused\nload,1,10,3,0\nload,2,20,4,0\nbase,1,7,9,0\nbase,2";
        let drawn = panels(long, &[]).expect("it is read");
        let names: Vec<_> = drawn.iter().map(|panel| panel.name.as_str()).collect();
        assert_eq!(names, ["operations_per_s", "get_p99_us"]);
        let [(load, first), (base, second)] = &drawn[1].lines[..] else { panic!("two phases") };
        assert_eq!((load.as_str(), base.as_str()), ("load", "base"));
        assert_eq!((first, second), (&vec![(1.0, 3.0), (2.0, 4.0)], &vec![(1.0, 9.0)]));
    }

    #[test]
    fn undrawable_csv_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.csv");
        assert!(matches!(run(&arguments(&file, &[])), Err(Failure::Usage(_))));
        for (text, columns, said) in [
            ("a,b\n1,2\n", &[][..], "no column at_s"),
            ("at_s,b\n1,2\n", &["c"], "there are at_s, b"),
            ("at_s,b\n1,x\n", &[], "line 2: b is 'x'"),
            ("at_s,b\n", &[], "nothing in it"),
        ] {
            std::fs::write(&file, text).expect("written");
            let Err(Failure::Usage(error)) = run(&arguments(&file, columns)) else { panic!("{text}") };
            assert!(error.contains(said), "{error}");
        }
    }
}
