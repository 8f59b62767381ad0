//! Charts of a sweep, as SVG.

use std::path::Path;

use plotters::prelude::*;
use serde::Serialize;

use super::{Sweep, size};
use crate::Error;

const SIZE: (u32, u32) = (760, 440);
const COLOURS: [RGBColor; 3] = [RGBColor(31, 119, 180), RGBColor(214, 119, 14), RGBColor(44, 140, 44)];

/// What a chart's horizontal axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartKind {
    /// The size of random writes.
    WriteSize,
    /// The drive's over-provisioning.
    OverProvisioning,
}

impl ChartKind {
    /// What the axis is called.
    pub fn name(self) -> &'static str {
        match self {
            ChartKind::WriteSize => "size of random writes",
            ChartKind::OverProvisioning => "over-provisioning",
        }
    }

    /// A value on the axis.
    pub(super) fn shown(self, x: f64) -> String {
        match self {
            ChartKind::WriteSize => size(x as u64),
            ChartKind::OverProvisioning => format!("{x:.0} %"),
        }
    }

    fn key_points(self) -> Vec<f64> {
        match self {
            ChartKind::WriteSize => [12, 14, 16, 18, 20].map(|bits| f64::from(1 << bits)).to_vec(),
            ChartKind::OverProvisioning => vec![7.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0],
        }
    }

    fn caption(self) -> &'static str {
        match self {
            ChartKind::WriteSize => {
                "Device WAF of random writes in the steady state, 12.4 % over-provisioning"
            }
            ChartKind::OverProvisioning => "Device WAF of random writes in the steady state, IU of 64 KiB",
        }
    }
}

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
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .caption(sweep.over.caption(), ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(
            (left..right * 1.02).log_scale().with_key_points(sweep.over.key_points()),
            (1.0..top * 1.2).log_scale().with_key_points(vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]),
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
