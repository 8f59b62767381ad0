//! The segments of a tier in however many signs there is room for.

use esker_server::status::{Cell, KINDS, Map};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

/// From little that is live to all of it.
const SHADES: [&str; 4] = ["░", "▒", "▓", "█"];

const FREE: &str = "·";

/// Colours of the kinds, in their order.
const COLOURS: [Color; KINDS.len()] = [
    Color::DarkGray,
    Color::Blue,
    Color::Magenta,
    Color::Cyan,
    Color::LightCyan,
    Color::LightGreen,
    Color::Green,
    Color::Green,
    Color::Gray,
    Color::Gray,
    Color::Yellow,
    Color::LightRed,
    Color::Red,
];

/// The kind that is shown of a few cells is the first of these that is among them; else that of the fullest.
const RARE: [u8; 3] = [12, 11, 10];

/// Lines of so many columns, at most so many of them.
pub(super) fn lines(map: &Map, columns: usize, rows: usize) -> Vec<Line<'static>> {
    let cells = map.decoded();
    let room = columns * rows;
    if cells.is_empty() || room == 0 {
        return Vec::new();
    }
    let each = cells.len().div_ceil(room);
    let signs: Vec<_> = cells.chunks(each).map(sign).collect();
    signs.chunks(columns).map(|row| Line::from(row.to_vec())).collect()
}

/// How many cells a sign stands for at least, and how many rows of so many columns all of them take then.
pub(super) fn rows(map: &Map, columns: usize, rows_most: usize) -> usize {
    let cells = map.decoded().len();
    cells.div_ceil(columns.max(1)).min(rows_most)
}

fn sign(cells: &[Cell]) -> Span<'static> {
    let rare = RARE.into_iter().find(|&kind| cells.iter().any(|cell| cell.kind == kind));
    let fullest = cells.iter().filter(|cell| cell.kind != 0).max_by_key(|cell| cell.live);
    let kind = usize::from(rare.unwrap_or(fullest.map_or(0, |cell| cell.kind))).min(KINDS.len() - 1);
    if kind == 0 {
        return Span::styled(FREE, Style::new().fg(COLOURS[0]));
    }
    let live = cells.iter().map(|cell| usize::from(cell.live)).sum::<usize>() / cells.len();
    Span::styled(SHADES[live / 4 % SHADES.len()], Style::new().fg(COLOURS[kind]))
}

/// What the colours mean that are in a map.
pub(super) fn legend<'m>(maps: impl Iterator<Item = &'m Map>) -> Line<'static> {
    let mut seen = [false; KINDS.len()];
    for cell in maps.flat_map(|map| map.decoded()) {
        seen[usize::from(cell.kind).min(KINDS.len() - 1)] = true;
    }
    let kinds = (1..KINDS.len()).filter(|&kind| seen[kind]);
    let named = kinds.flat_map(|kind| {
        let name = KINDS[kind].replace('_', " ");
        [Span::styled("█ ", Style::new().fg(COLOURS[kind])), Span::raw(format!("{name}  "))]
    });
    Line::from(named.collect::<Vec<_>>())
}
