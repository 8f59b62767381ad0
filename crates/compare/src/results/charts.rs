//! Draws the comparison as SVG: one bar per engine.

use std::path::Path;

use esker_bench::{Failure, Result};
use plotters::prelude::*;

use super::goals::{self, ROWS, Row, Spread};
use super::number::short;
use super::record::Record;
use crate::contest::engine::Engine;

const WIDTH: u32 = 720;
const BAR: i32 = 26;
const TOP: i32 = 44;
const LEFT: i32 = 130;
const RIGHT: i32 = 190;

/// Returns the file name of a row's chart.
fn file(row: &Row) -> String {
    let words =
        row.what.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    let words: String = words.collect();
    format!("{}.svg", words.split_whitespace().collect::<Vec<_>>().join("-"))
}

/// Returns the names of the charts for the measured rows.
pub(crate) fn names(records: &[Record]) -> Vec<String> {
    let measured = |row: &&Row| records.iter().any(|r| r.step == row.step && row.metric.of(r).is_some());
    ROWS.iter().filter(measured).map(file).collect()
}

/// Rewrites all charts.
pub(crate) fn write(dir: &Path, records: &[Record], engines: &[Engine]) -> Result<()> {
    for row in ROWS {
        let bars: Vec<_> = engines
            .iter()
            .filter_map(|engine| {
                Some((engine.name(), engine.is_esker(), goals::figures(records, row, *engine)?))
            })
            .collect();
        if bars.is_empty() {
            continue;
        }
        let path = dir.join(file(row));
        draw(&path, row, &bars)
            .map_err(|error| Failure::failed(&format!("drawing {}", path.display()), error))?;
    }
    Ok(())
}

/// Draws one bar per engine: its median, with a line from the minimum to the maximum.
fn draw(
    path: &Path,
    row: &Row,
    bars: &[(&str, bool, Spread)],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let height = TOP + BAR * bars.len() as i32 + 12;
    let root = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let better = if row.metric.less_is_better() { "less is better" } else { "more is better" };
    let title = format!("{} ({}; {better})", row.what, row.metric.unit());
    root.draw(&Text::new(title, (12, 12), ("sans-serif", 17).into_font()))?;
    let most = bars.iter().map(|(.., spread)| spread.most).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LEFT + (value / most * f64::from(WIDTH as i32 - LEFT - RIGHT)) as i32;
    for (at, (name, ours, spread)) in bars.iter().enumerate() {
        let y = TOP + BAR * at as i32;
        let colour = if *ours { RGBColor(31, 119, 180) } else { RGBColor(150, 150, 150) };
        root.draw(&Text::new((*name).to_owned(), (12, y + 3), ("sans-serif", 14).into_font()))?;
        root.draw(&Rectangle::new(
            [(LEFT, y), (x(spread.median).max(LEFT + 1), y + BAR - 7)],
            colour.filled(),
        ))?;
        let middle = y + (BAR - 7) / 2;
        root.draw(&PathElement::new([(x(spread.least), middle), (x(spread.most), middle)], BLACK))?;
        let label = if spread.count == 1 {
            short(spread.median)
        } else {
            format!("{} ({}–{})", short(spread.median), short(spread.least), short(spread.most))
        };
        root.draw(&Text::new(label, (x(spread.most) + 8, y + 3), ("sans-serif", 14).into_font()))?;
    }
    root.present()?;
    Ok(())
}
