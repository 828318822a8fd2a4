//! Drawing; 80 columns and 24 lines are enough.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table as Grid, Wrap};

use super::page::{self, Page};
use super::{Column, Top};

const KEYS: &str = " q quit   Tab next table   ↑↓ PgUp PgDn scroll   < > sort   r reverse";

/// Draws everything.
pub fn draw(top: &mut Top, frame: &mut Frame<'_>) {
    let head = head(top);
    let head_lines = lines_of(&head, frame.area().width);
    let areas = Layout::vertical([
        Constraint::Length(head_lines),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [above, state, tabs, table, keys] = areas.areas(frame.area());
    frame.render_widget(Paragraph::new(head).wrap(Wrap { trim: false }), above);
    frame.render_widget(Paragraph::new(standing(top)), state);
    draw_tabs(top, frame, tabs);
    top.lines = usize::from(table.height.saturating_sub(1));
    top.scroll(0);
    draw_table(top, frame, table);
    frame.render_widget(Paragraph::new(KEYS).style(dim()), keys);
}

fn dim() -> Style {
    Style::default().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn head(top: &Top) -> Line<'static> {
    let mut spans = vec![Span::styled(format!(" {} ", top.view.program), bold())];
    for (column, value) in top.view.head.iter().zip(&top.head) {
        spans.push(Span::styled(format!("  {} ", column.name), dim()));
        spans.push(Span::raw(value.clone()));
    }
    Line::from(spans)
}

/// One line, or the few that a narrow terminal needs; words are not broken.
fn lines_of(head: &Line<'_>, width: u16) -> u16 {
    match usize::from(width) {
        width if head.width() <= width => 1,
        width if head.width() <= 2 * width.saturating_sub(10) => 2,
        _ => 3,
    }
}

fn standing(top: &Top) -> Line<'static> {
    match (&top.trouble, top.answered) {
        (Some(trouble), _) => Line::styled(
            format!(" {trouble}; asking again"),
            Style::default().fg(Color::White).bg(Color::Red),
        ),
        (None, false) => Line::styled(" asking ...", dim()),
        (None, true) => Line::default(),
    }
}

fn draw_tabs(top: &Top, frame: &mut Frame<'_>, area: Rect) {
    let mut spans = Vec::new();
    for (number, table) in top.view.tables.iter().enumerate() {
        let (label, style) = if number == top.table() {
            let label = format!(" {} ({}) ", table.name, top.page().1.rows.len());
            (label, Style::default().add_modifier(Modifier::REVERSED))
        } else {
            (format!(" {} ", table.name), Style::default())
        };
        spans.extend([Span::raw(" "), Span::styled(label, style)]);
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn draw_table(top: &Top, frame: &mut Frame<'_>, area: Rect) {
    let (table, page) = top.page();
    if let Some(note) = &page.note {
        frame.render_widget(Paragraph::new(format!(" {note}")), area);
        return;
    }
    let shown = page.rows.iter().skip(page.first).take(top.lines);
    let shown: Vec<&Vec<page::Cell>> = shown.collect();
    let titles: Vec<String> = (0..)
        .zip(table.columns)
        .map(|(at, c)| title(page, at, c))
        .collect();
    let widths = widths(table.columns, &titles, &shown, usize::from(area.width));
    let cell = |column: &Column, text: &str| {
        let alignment = match column.kind.is_text() {
            true => Alignment::Left,
            false => Alignment::Right,
        };
        Cell::from(Line::from(text.to_owned()).alignment(alignment))
    };
    let header = table.columns.iter().zip(&titles).map(|(c, t)| cell(c, t));
    let rows = shown.iter().map(|row| {
        let cells = table.columns.iter().zip(row.iter());
        Row::new(cells.map(|(column, value)| cell(column, &value.text)))
    });
    let style = match top.trouble {
        Some(_) => dim(),
        None => Style::default(),
    };
    let grid = Grid::new(rows, widths)
        .header(Row::new(header).style(bold()))
        .column_spacing(2)
        .style(style);
    frame.render_widget(grid, area);
}

/// A column's title, with an arrow where rows are sorted by it: ▼ from the greatest down.
fn title(page: &Page, at: usize, column: &Column) -> String {
    match page.sort {
        Some((sorted, reversed)) if sorted == at => {
            let down = column.kind.is_text() == reversed;
            let arrow = if down { '▼' } else { '▲' };
            format!("{}{arrow}", column.name)
        }
        _ => column.name.to_owned(),
    }
}

/// Widths of the columns: those of their contents; if they exceed the screen, the widest text column shrinks.
fn widths(
    columns: &[Column],
    titles: &[String],
    rows: &[&Vec<page::Cell>],
    room: usize,
) -> Vec<Constraint> {
    let widest = |(at, title): (usize, &String)| {
        let texts = rows.iter().map(|row| row[at].text.chars().count());
        texts.max().unwrap_or(0).max(title.chars().count())
    };
    let mut widths: Vec<usize> = titles.iter().enumerate().map(widest).collect();
    let room = room.saturating_sub(2 * columns.len().saturating_sub(1));
    let mut too_much = widths.iter().sum::<usize>().saturating_sub(room);
    while too_much > 0 {
        let texts = (0..columns.len()).filter(|&at| columns[at].kind.is_text() && widths[at] > 8);
        let Some(widest) = texts.max_by_key(|&at| widths[at]) else {
            break;
        };
        widths[widest] -= 1;
        too_much -= 1;
    }
    let constraint = |width: usize| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX));
    widths.into_iter().map(constraint).collect()
}
