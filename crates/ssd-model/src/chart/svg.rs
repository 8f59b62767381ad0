//! Charts of a sweep, as SVG.

use std::path::Path;

use plotters::prelude::*;

use super::sweep::Sweep;
use crate::Error;

const SIZE: (u32, u32) = (760, 440);
const COLOURS: [RGBColor; 3] = [RGBColor(31, 119, 180), RGBColor(214, 119, 14), RGBColor(44, 140, 44)];

/// Draws a sweep into a file. Both axes are logarithmic.
pub fn draw(path: &Path, sweep: &Sweep) -> Result<(), Error> {
    let drawn = svg(sweep).map_err(|error| error.to_string());
    let svg = drawn.map_err(|what| Error::Chart { path: path.to_owned(), what })?;
    std::fs::write(path, svg).map_err(Error::file(path))
}

fn svg(sweep: &Sweep) -> Result<String, Box<dyn std::error::Error>> {
    let points = || sweep.lines.iter().flat_map(|line| &line.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)))
    };
    let ((left, right), (_, top)) = (range(|point| point.0), range(|point| point.1));
    let top = top * 1.2;
    let amplifications =
        [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].into_iter().filter(|waf| *waf < top).collect();
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(32)
        .caption(sweep.over.caption(), ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (left..right * 1.02).log_scale().with_key_points(sweep.over.key_points()),
            (1.0..top).log_scale().with_key_points(amplifications),
        )?;
    let shown = |x: &f64| sweep.over.shown(*x);
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(sweep.over.name())
        .y_desc("WAF")
        .x_label_formatter(&shown)
        .y_label_formatter(&|y: &f64| format!("{y:.0}"))
        .draw()?;
    for (line, colour) in sweep.lines.iter().zip(COLOURS) {
        let path = std::iter::once(PathElement::new(line.points.clone(), colour.stroke_width(2)));
        let sample = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2));
        chart.draw_series(path)?.label(&line.name).legend(sample);
        chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    let mut legend = chart.configure_series_labels();
    legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE).border_style(BLACK).draw()?;
    area.present()?;
    drop(chart);
    drop(area);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChartKind, Line};

    #[test]
    fn sweep_chart_has_lines_and_labels() {
        let points = vec![(4096.0, 70.0), (65_536.0, 4.4)];
        let line = Line { name: "IU of 64 KiB".to_owned(), points };
        let sweep = Sweep { over: ChartKind::WriteSize, lines: vec![line] };
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("chart.svg");
        draw(&path, &sweep).expect("it is drawn");
        let text = std::fs::read_to_string(&path).expect("it is there");
        for shown in ["<polyline", "IU of 64 KiB", "64 KiB", "size of random writes"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        let error = draw(&dir.path().join("none/chart.svg"), &sweep).expect_err("there is no such directory");
        assert!(matches!(error, Error::File { .. }) && error.to_string().contains("none/chart.svg"));
        assert!(sweep.table().to_string().contains("| 64 KiB                |         4.40 |"));
    }
}
