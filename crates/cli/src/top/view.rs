//! Draws the screen. If the terminal is too small, the lower parts are omitted, except the map, which
//! gets the remaining lines.

use esker_server::status::{State, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Wrap};

use super::screen::Screen;
use super::text::{bytes, causes, count, duration, percent, ratio};
use super::{cluster, map, text};

/// Width in columns from which latencies are beside the rates.
const WIDE: u16 = 115;

const DIM: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Smallest width of a fact in columns.
const FACT: usize = 20;

/// Widths in columns of the name of a latency, and of each number.
const NAME: usize = 14;
const NUMBER: usize = 8;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame, screen: &Screen) {
    let of_cluster = screen.status.as_ref().and_then(|status| status.cluster.as_ref());
    let of_cluster = of_cluster.map_or(Vec::new(), |of| cluster::lines(of, frame.area().width.into()));
    let heights = [Constraint::Length(1), Constraint::Length(of_cluster.len() as u16), Constraint::Fill(1)];
    let [title, nodes, body] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(heading(screen)), title);
    frame.render_widget(Paragraph::new(of_cluster), nodes);
    let Some(status) = &screen.status else { return };
    let is_wide = body.width >= WIDE;
    let (left, right) = if is_wide {
        (3 * FACT, usize::from(body.width) - 3 * FACT)
    } else {
        (body.width.into(), body.width.into())
    };
    let (rates, latencies) = (flow(rates(status), left), latencies(status, right));
    let heights = [rates.len() as u16, latencies.len() as u16];
    let (above, halves) = if is_wide {
        (
            heights[0].max(heights[1]),
            Layout::horizontal([Constraint::Length(left as u16), Constraint::Fill(1)]),
        )
    } else {
        (heights[0] + heights[1], Layout::vertical([Constraint::Length(heights[0]), Constraint::Fill(1)]))
    };
    let [above, spark, below] =
        Layout::vertical([Constraint::Length(above + 1), Constraint::Length(2), Constraint::Fill(1)])
            .areas(body);
    let [first, second] = halves.areas(above);
    frame.render_widget(Paragraph::new(rates), first);
    frame.render_widget(Paragraph::new(latencies), second);
    operations(frame, spark, screen);
    tiers(frame, below, status);
}

/// Returns the server's address, and whether the sample is current.
fn heading(screen: &Screen) -> Line<'static> {
    let mut line = vec![Span::styled(format!("esker {}  ", screen.address), BOLD)];
    let (word, colour) = match (&screen.trouble, &screen.status) {
        (Some(trouble), _) => (trouble.clone(), Color::Red),
        (None, None) => ("connecting".to_owned(), Color::Yellow),
        (None, Some(status)) => match status.state {
            State::Serving => ("serving".to_owned(), Color::Green),
            State::ReadOnly => (format!("read only: {}", status.reason), Color::Yellow),
            _ => (format!("stopping: {}", status.reason), Color::Red),
        },
    };
    line.push(Span::styled(word, Style::new().fg(colour)));
    if let (None, Some(status)) = (&screen.trouble, &screen.status) {
        let (version, up) = (&status.version, duration(status.uptime_s));
        line.push(Span::styled(format!("  version {version}, up {up}"), DIM));
    }
    Line::from(line)
}

/// Lays out facts side by side, as many as fit: names dim, values bright.
fn flow(facts: Vec<(&str, String)>, columns: usize) -> Vec<Line<'static>> {
    let side_by_side = (columns / FACT).max(1);
    let width = columns / side_by_side;
    let row = |facts: &[(&str, String)]| {
        let each = facts.iter().flat_map(|(name, value)| {
            let left = width.saturating_sub(name.len() + 2);
            [Span::styled(format!("{name} "), DIM), Span::raw(format!("{value:<left$} "))]
        });
        Line::from(each.collect::<Vec<_>>())
    };
    facts.chunks(side_by_side).map(row).collect()
}

/// Returns the facts, the most important first.
fn rates(status: &Status) -> Vec<(&'static str, String)> {
    let (rates, memory, space) = (&status.rates, &status.memory, &status.space);
    let a_key = if status.keys == 0 { 0.0 } else { memory.index_bytes as f64 / status.keys as f64 };
    let size = |number: u64| bytes(number as f64);
    let mut facts = vec![
        ("gets/s", count(rates.gets)),
        ("puts/s", count(rates.puts)),
        ("deletes/s", count(rates.deletes)),
        ("waits/s", count(rates.stalls)),
        ("from memory", percent(status.hit_rate)),
        ("found", percent(status.key_hit_rate)),
        ("write amplif.", ratio(status.amplification.now)),
        ("since open", ratio(status.amplification.since_open)),
        ("put/s", bytes(rates.user_bytes)),
        ("written/s", bytes(rates.written_bytes)),
        ("destage/s", bytes(rates.destaged_bytes)),
        ("collect/s", bytes(rates.collected_bytes)),
        ("keys", count(status.keys as f64)),
        ("clients", count(status.clients.connected as f64)),
        ("live", size(space.live_bytes)),
        ("may be", size(space.user_limit_bytes)),
        ("memory", size(memory.resident_bytes)),
        ("cache", size(memory.cache_bytes)),
        ("index", size(memory.index_bytes)),
        ("index/key", format!("{a_key:.1} B")),
        ("on disk", size(space.disk_bytes)),
    ];
    if let Some(drive) = &status.drive {
        facts.push(("flash/put", ratio(drive.flash_bytes_per_user_byte)));
        facts.push(("device WAF", ratio(drive.amplification)));
    }
    facts
}

/// Returns one line per kind of operation, with as many numbers as fit.
fn latencies(status: &Status, columns: usize) -> Vec<Line<'static>> {
    let shown = columns.saturating_sub(NAME) / NUMBER;
    let row = |name: &str, numbers: [String; 5]| {
        let numbers = numbers.iter().take(shown).map(|number| format!("{number:>NUMBER$}"));
        format!("{name:<NAME$}{}", numbers.collect::<String>())
    };
    let head = ["/s", "p50", "p99", "p99.9", "max"].map(str::to_owned);
    let mut lines = vec![Line::styled(row("microseconds", head), DIM)];
    lines.extend(status.latencies.iter().map(|of| {
        let numbers = [of.per_s, of.p50_us, of.p99_us, of.p999_us, of.max_us].map(count);
        Line::raw(row(&of.name.replace('_', " "), numbers))
    }));
    lines
}

/// Draws the recent operations, the newest on the right.
fn operations(frame: &mut Frame, area: Rect, screen: &Screen) {
    let all = &screen.operations;
    let shown: Vec<u64> = all.iter().skip(all.len().saturating_sub(area.width.into())).copied().collect();
    frame.render_widget(Sparkline::default().data(shown).style(Style::new().fg(Color::Blue)), area);
}

/// Draws per tier a line of facts, a line of write causes, and the segments; the legend comes last.
fn tiers(frame: &mut Frame, area: Rect, status: &Status) {
    let count = status.tiers.len().max(1);
    let room = usize::from(area.height).saturating_sub(1 + 2 * count) / count;
    let columns = usize::from(area.width);
    let mut lines = Vec::new();
    for tier in &status.tiers {
        let (free, total) = (tier.segments_free, tier.segments_total);
        let [live, dead] = [tier.live_bytes, tier.dead_bytes].map(|part| text::bytes(part as f64));
        let [reads, writes] = [tier.reads_per_s, tier.writes_per_s].map(text::count);
        lines.push(Line::from(vec![
            Span::styled(format!("{} ", tier.name), BOLD),
            Span::raw(format!(
                "{free} of {total} segments free, {live} live, {dead} dead, {reads} reads/s, {writes} writes/s"
            )),
        ]));
        let all = causes(tier, status.rates.user_bytes);
        let each = all.iter().map(|(name, ratio)| format!("{name} {ratio:.3}"));
        let written = match all.is_empty() {
            true => "nothing is written".to_owned(),
            false => format!("written for each byte put: {}", each.collect::<Vec<_>>().join(", ")),
        };
        lines.push(Line::styled(written, DIM));
        lines.extend(map::lines(&tier.map, columns, map::rows(&tier.map, columns, room)));
    }
    lines.push(map::legend(status.tiers.iter().map(|tier| &tier.map)));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}
