//! Draws the segments of a tier in a given number of characters.

use esker_server::status::{Cell, KINDS, Map};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

/// Characters by live share, from little to all.
const SHADES: [&str; 4] = ["░", "▒", "▓", "█"];

const FREE: &str = "·";

/// Colours of the kinds, in the order of `KINDS`.
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

/// Kinds shown with precedence: a character for several cells has the first of these kinds among them,
/// otherwise the kind of the fullest cell.
const RARE: [u8; 3] = [12, 11, 10];

/// Returns at most `rows` lines of `columns` characters.
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

/// Returns the number of lines for all cells, at most `rows_most`.
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

/// Returns the legend of the colours in the maps.
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
