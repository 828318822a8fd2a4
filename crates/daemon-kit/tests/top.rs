//! The view of a running daemon, on a terminal of 80 columns and 24 lines.
#![cfg(feature = "top")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use daemon_kit::client::QueryError;
use daemon_kit::top::{Answer, Column, Kind, Table, Top, Verdict, View, ask, draw, handle};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

const VIEW: View = View {
    program: "some-router",
    head: &[
        Column::new("up", "/overview/uptime_s", Kind::Seconds),
        Column::new("groups", "/overview/groups", Kind::Number),
        Column::new("drops/s", "/counters/drops", Kind::Rate),
    ],
    tables: &[
        Table::list(
            "interfaces",
            &[
                Column::new("name", "/name", Kind::Name),
                Column::new("address", "/address", Kind::State),
                Column::new("in/s", "/received", Kind::Rate),
                Column::new("bit/s", "/rate_bps", Kind::Bits),
            ],
        ),
        Table::COUNTERS,
    ],
};

/// Interfaces `eth0` and so on, each of which has received 100 more than the one before.
fn answer(received: u64, rows: u64) -> Answer {
    let interface = |n: u64| json!({"name": format!("eth{n}"), "address": "192.0.2.1", "received": received + 100 * n, "rate_bps": 20_000_000 * n});
    let interfaces: Vec<Value> = (0..rows).map(interface).collect();
    Ok(BTreeMap::from([
        ("overview", json!({"uptime_s": 3723, "groups": 12})),
        ("interfaces", json!({ "interfaces": interfaces })),
        (
            "counters",
            json!({"drops": {"no_entry": received, "ttl": 0}, "packets": {"up": 3}}),
        ),
    ]))
}

fn shown_at(top: &mut Top, columns: u16, lines: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    terminal.draw(|frame| draw(top, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    (0..lines)
        .map(|y| {
            let line: String = (0..columns).map(|x| buffer[(x, y)].symbol()).collect();
            line.trim_end().to_owned()
        })
        .collect()
}

fn shown(top: &mut Top) -> Vec<String> {
    shown_at(top, 80, 24)
}

fn press(top: &mut Top, keys: &[KeyCode]) -> Verdict {
    let mut verdict = Verdict::Continue;
    for &code in keys {
        verdict = handle(top, KeyEvent::new(code, KeyModifiers::NONE));
    }
    verdict
}

fn gone() -> Answer {
    Err(QueryError::NotRunning(
        PathBuf::from("/run/x.sock"),
        "some-router",
    ))
}

#[test]
fn counters_are_shown_as_rates() {
    let mut top = Top::new(&VIEW);
    let start = Instant::now();
    assert!(shown(&mut top)[1].contains("asking"));
    top.take(start, answer(1000, 2));
    let lines = shown(&mut top);
    assert!(lines[4].ends_with("-      0"), "no rate yet: {lines:?}");
    top.take(start + Duration::from_secs(2), answer(1500, 2));
    let lines = shown(&mut top);
    assert_eq!(lines[0], " some-router   up 1h 2m  groups 12  drops/s 250");
    assert_eq!(lines[2], "  interfaces (2)   counters");
    assert_eq!(lines[3], "name  address    in/s  bit/s");
    assert_eq!(lines[4], "eth0  192.0.2.1   250      0");
    assert_eq!(lines[5], "eth1  192.0.2.1   250    20M");
    assert!(lines[23].starts_with(" q quit   Tab next table"));
    // The daemon was started again: its counters begin at 0.
    top.take(start + Duration::from_secs(3), answer(7, 2));
    assert_eq!(shown(&mut top)[4], "eth0  192.0.2.1     0      0");
    // As text, both tables.
    let text = top.plain();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "some-router  up 1h 2m  groups 12  drops/s 0");
    assert_eq!(lines[2], "interfaces (2)");
    assert_eq!(lines[3], "NAME  ADDRESS    IN/S  BIT/S");
    assert_eq!(lines[7], "counters (2)");
    assert_eq!(lines[9], "drops no_entry      7           0");
}

#[test]
fn a_daemon_that_is_gone_is_said_to_be_and_comes_back() {
    let mut top = Top::new(&VIEW);
    let start = Instant::now();
    top.take(start, gone());
    assert!(shown(&mut top)[1].contains("/run/x.sock: no some-router answers here"));
    top.take(start, answer(1, 1));
    assert_eq!(shown(&mut top)[1], "");
    top.take(start + Duration::from_secs(1), gone());
    let lines = shown(&mut top);
    assert!(lines[1].contains("no some-router answers here"));
    assert!(lines[4].starts_with("eth0"), "what was known stays");
    top.take(start + Duration::from_secs(2), answer(21, 1));
    let lines = shown(&mut top);
    assert_eq!(lines[1], "");
    assert_eq!(lines[4], "eth0  192.0.2.1    10      0");
}

#[test]
fn keys_change_tables_scroll_and_end() {
    use KeyCode::{Char, Down, End, Home, PageDown, Tab};
    let mut top = Top::new(&VIEW);
    top.take(Instant::now(), answer(5, 100));
    assert!(shown(&mut top)[22].starts_with("eth18"));
    assert_eq!(press(&mut top, &[Down]), Verdict::Continue);
    assert!(shown(&mut top)[4].starts_with("eth1 "));
    press(&mut top, &[PageDown]);
    assert!(shown(&mut top)[4].starts_with("eth20"));
    press(&mut top, &[PageDown; 10]);
    assert!(
        shown(&mut top)[22].starts_with("eth99"),
        "as far as it goes"
    );
    press(&mut top, &[Home]);
    assert!(shown(&mut top)[4].starts_with("eth0"));
    press(&mut top, &[End]);
    assert!(shown(&mut top)[22].starts_with("eth99"));
    press(&mut top, &[Tab]);
    assert_eq!(top.table(), 1);
    let lines = shown(&mut top);
    assert!(lines[4].starts_with("drops no_entry      5"), "{lines:?}");
    assert_eq!(lines[6], "", "counters that are 0 are left out");
    press(&mut top, &[Tab]);
    assert!(
        shown(&mut top)[22].starts_with("eth99"),
        "each table where it was"
    );
    assert_eq!(press(&mut top, &[Char('q')]), Verdict::End);
    assert_eq!(press(&mut top, &[KeyCode::Esc]), Verdict::End);
    let interrupt = KeyEvent::new(Char('c'), KeyModifiers::CONTROL);
    assert_eq!(handle(&mut top, interrupt), Verdict::End);
}

#[test]
fn rows_are_sorted_by_any_column() {
    use KeyCode::Char;
    let mut top = Top::new(&VIEW);
    top.take(Instant::now(), answer(5, 12));
    let first = |top: &mut Top| {
        let lines = shown(top);
        (lines[3].clone(), lines[4].clone())
    };
    press(&mut top, &[Char('>')]);
    let (titles, row) = first(&mut top);
    assert!(titles.starts_with("name▲"), "{titles}");
    assert!(row.starts_with("eth0 "));
    press(&mut top, &[Char('<'), Char('<')]);
    let (titles, row) = first(&mut top);
    assert!(titles.ends_with("bit/s▼"), "{titles}");
    assert!(row.starts_with("eth11 "), "the greatest first: {row}");
    // New rows keep the order.
    top.take(Instant::now(), answer(6, 13));
    assert!(first(&mut top).1.starts_with("eth12 "));
    press(&mut top, &[Char('r')]);
    let (titles, row) = first(&mut top);
    assert!(titles.ends_with("bit/s▲"), "{titles}");
    assert!(row.starts_with("eth0 "));
}

/// Names come from the network: they neither move the cursor nor push numbers out of sight.
#[test]
fn long_names_and_control_characters_are_tamed() {
    let mut top = Top::new(&VIEW);
    let start = Instant::now();
    let documents = |received: u64| {
        let name = format!("{}\u{1b}[2J\n", "n".repeat(200));
        let row = json!({"name": name, "address": "a".repeat(90), "received": received});
        Ok(BTreeMap::from([(
            "interfaces",
            json!({"interfaces": [row]}),
        )]))
    };
    top.take(start, documents(0));
    top.take(start + Duration::from_secs(1), documents(77));
    let lines = shown(&mut top);
    assert!(lines[4].ends_with("77      -"), "{lines:?}");
    assert!(!lines[4].contains('\u{1b}'));
    assert!(!top.plain().contains('\u{1b}'));
}

/// Whatever the answer is: nothing, or of another version; however small the terminal.
#[test]
fn answers_of_any_shape_are_shown_at_any_size() {
    let mut top = Top::new(&VIEW);
    for document in [
        json!(null),
        json!([]),
        json!({"interfaces": 3}),
        json!({"interfaces": [1]}),
    ] {
        top.take(
            Instant::now(),
            Ok(BTreeMap::from([("interfaces", document)])),
        );
        for (columns, lines) in [(80, 24), (1, 1), (3, 2), (20, 5), (500, 200)] {
            shown_at(&mut top, columns, lines);
        }
    }
    top.take(Instant::now(), answer(5, 100));
    shown_at(&mut top, 80, 8);
    press(&mut top, &[KeyCode::End]);
    assert!(shown_at(&mut top, 80, 8)[6].starts_with("eth99"));
    // A larger terminal is used completely.
    assert!(shown_at(&mut top, 80, 120)[4].starts_with("eth0"));
    let narrow = shown_at(&mut top, 40, 12);
    assert!(
        narrow[1].contains("drops/s"),
        "the head in two lines: {narrow:?}"
    );
}

/// A daemon that answers `questions` questions, the one for interfaces by refusing it.
fn daemon(socket: &Path, questions: usize) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for _ in 0..questions {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).unwrap();
            let answer = if question.contains("interfaces") {
                r#"{"error": "ask the other process"}"#
            } else {
                r#"{"uptime_s": 5, "drops": {"ttl": 1}}"#
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    })
}

#[test]
fn a_table_that_a_daemon_has_not_is_said_to_be_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("status.sock");
    let answering = daemon(&socket, 3);
    let mut top = Top::new(&VIEW);
    top.take(Instant::now(), ask(&VIEW, VIEW.tables, &socket));
    answering.join().unwrap();
    let lines = shown(&mut top);
    assert_eq!(lines[0], " some-router   up 5s  groups -  drops/s -");
    assert_eq!(lines[3], " ask the other process");
    assert!(
        top.plain()
            .contains("interfaces (0)\nask the other process\n")
    );
}
