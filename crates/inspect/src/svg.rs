//! Draws the map of a store's segments: one cell per slot, coloured by class and shaded by live share.

use std::fmt::Write;

use esker_log::SegmentClass;

use crate::segments::{Segments, SlotRow, SlotState};

const CELL: usize = 14;
const STEP: usize = CELL + 2;
const COLUMNS: usize = 64;
const MARGIN: usize = 16;
const LINE: usize = 20;

/// Returns the colour of a class for SVG and terminals: red, green, blue.
pub fn colour(class: SegmentClass) -> [u8; 3] {
    match class {
        SegmentClass::Lane => [31, 119, 180],
        SegmentClass::Large => [148, 103, 189],
        SegmentClass::LongLived => [23, 190, 207],
        SegmentClass::Destaged => [44, 160, 44],
        SegmentClass::CollectedShortLived => [255, 152, 20],
        SegmentClass::CollectedYoung => [214, 148, 39],
        SegmentClass::CollectedMiddle => [190, 104, 40],
        SegmentClass::CollectedOld => [150, 70, 50],
        _ => [127, 127, 127],
    }
}

/// Returns a picture of all slots, tier by tier.
pub fn svg(segments: &Segments) -> String {
    let mut body = String::new();
    let mut y = MARGIN;
    for tier in ["fast", "capacity"] {
        let rows: Vec<&SlotRow> = segments.slots.iter().filter(|row| row.tier == tier).collect();
        if rows.is_empty() {
            continue;
        }
        let sealed = rows.iter().filter(|row| row.state == SlotState::Sealed).count();
        let free = rows.iter().filter(|row| row.state == SlotState::Free).count();
        let text = format!("{tier} tier: {} slots, {sealed} sealed, {free} free", rows.len());
        y += LINE;
        let _ = writeln!(body, r#"<text x="{MARGIN}" y="{}">{text}</text>"#, y - 6);
        for (number, row) in rows.iter().enumerate() {
            let (x, y) = (MARGIN + number % COLUMNS * STEP, y + number / COLUMNS * STEP);
            cell(&mut body, row, x, y);
        }
        y += rows.len().div_ceil(COLUMNS) * STEP + LINE / 2;
    }
    legend(&mut body, segments, &mut y);
    let (width, height) = (2 * MARGIN + COLUMNS * STEP, y + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

/// Draws a slot: a frame, filled from the bottom up to the live share.
fn cell(body: &mut String, row: &SlotRow, x: usize, y: usize) {
    let Some(class) = row.class.filter(|_| row.state != SlotState::Free) else {
        let stroke = if row.state == SlotState::Free { "#d8d8d8" } else { "#d62728" };
        let name = row.state.name();
        let _ = writeln!(
            body,
            r##"<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="#fafafa" stroke="{stroke}"><title>slot {}: {name}</title></rect>"##,
            row.slot
        );
        return;
    };
    let [r, g, b] = colour(class);
    let share = row.live_share.clamp(0.0, 1.0);
    // A minimum opacity keeps segments with few live bytes visible.
    let opacity = 0.12 + 0.88 * share;
    let dashes = if row.state == SlotState::Sealed { "" } else { r#" stroke-dasharray="2 1""# };
    let _ = writeln!(
        body,
        r#"<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="rgb({r},{g},{b})" fill-opacity="{opacity:.2}" stroke="rgb({r},{g},{b})"{dashes}><title>slot {}: segment {}, {}, {}, {:.0} % live, {} records</title></rect>"#,
        row.slot,
        row.segment.unwrap_or(0),
        row.state.name(),
        class.name(),
        share * 100.0,
        row.records
    );
}

fn legend(body: &mut String, segments: &Segments, y: &mut usize) {
    *y += LINE;
    let mut x = MARGIN;
    let there = |class: &SegmentClass| segments.slots.iter().any(|row| row.class == Some(*class));
    for class in SegmentClass::ALL.into_iter().filter(there) {
        let [r, g, b] = colour(class);
        let _ = writeln!(
            body,
            r#"<rect x="{x}" y="{}" width="{CELL}" height="{CELL}" fill="rgb({r},{g},{b})"/><text x="{}" y="{}">{}</text>"#,
            *y - 12,
            x + STEP + 2,
            *y,
            class.name()
        );
        x += STEP + 16 + 8 * class.name().len();
    }
    *y += LINE;
    let about = "The fuller the colour, the more of the segment is live. Dashed: open. Grey frame: free. Red frame: unclear.";
    let _ = writeln!(body, r##"<text x="{MARGIN}" y="{y}" fill="#555555">{about}</text>"##);
}
