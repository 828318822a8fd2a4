//! `top`: a running daemon's tables, refreshed every second, with what changed since.
//!
//! A program describes its tables by a [`View`]. Counters are shown as their change per second. When the daemon does not
//! answer, the last tables stay, with the reason above them.
//!
//! A daemon is asked for its overview, its counters and the selected table once a second, or less often when answers take
//! long: at most a fifth of the time.

mod draw;
mod page;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use linux_net::poll::{self, Watch};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::{Value, json};

use crate::client::{self, QueryError};

pub use crate::view::{Column, Kind, Rows, Table, View};
pub use draw::draw;
pub use page::{Top, Verdict};

/// How often a daemon is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time until an answer, a signal or the loss of the terminal is noticed.
const POLL: Duration = Duration::from_millis(100);

/// The answers of a daemon: documents by name. A refused one has the reason under `error`.
pub type Answer = Result<BTreeMap<&'static str, Value>, QueryError>;

/// Asks for the overview, the counters and `tables`.
///
/// # Errors
/// The overview does not come, or the daemon goes before the last answer.
pub fn ask(view: &View, tables: &[Table], socket: &Path) -> Answer {
    let mut documents = BTreeMap::new();
    let names = tables.iter().map(|table| table.name);
    for name in ["overview", "counters"].into_iter().chain(names) {
        if documents.contains_key(name) {
            continue;
        }
        let document = match client::query(socket, view.program, &json!({"show": name})) {
            // Of several processes of a gateway one has the routes, another the data.
            Err(QueryError::Refused(_, reason)) if name != "overview" => json!({"error": reason}),
            answer => answer?,
        };
        documents.insert(name, document);
    }
    Ok(documents)
}

/// How [`run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user or `stop` ended it; the terminal is restored.
    Asked,
    /// The terminal is gone: nothing can be restored or reported there. Exit the process at once.
    TerminalGone,
}

/// Shows the daemon at `socket` on the terminal until the user presses q, Escape or Ctrl-C, or until `stop` returns
/// `true`.
///
/// # Errors
/// The terminal cannot be used.
pub fn run(view: &'static View, socket: PathBuf, stop: impl Fn() -> bool) -> io::Result<End> {
    let shown = ratatui::try_init().and_then(|mut terminal| {
        let shown = show(view, socket, &mut terminal, stop);
        if terminal_is_gone() {
            // Its destructor would report that it cannot show the cursor, and panic.
            std::mem::forget(terminal);
            return Ok(End::TerminalGone);
        }
        shown.map(|()| End::Asked)
    });
    if !matches!(shown, Ok(End::TerminalGone)) {
        ratatui::restore();
    }
    shown
}

/// Returns every table of the daemon at `socket` as plain text, with rates over one second.
///
/// # Errors
/// The daemon does not answer.
pub fn once(view: &'static View, socket: &Path) -> Result<String, QueryError> {
    let mut top = Top::new(view);
    top.take(Instant::now(), Ok(ask(view, view.tables, socket)?));
    thread::sleep(INTERVAL);
    top.take(Instant::now(), Ok(ask(view, view.tables, socket)?));
    Ok(top.plain())
}

fn show(
    view: &'static View,
    socket: PathBuf,
    terminal: &mut ratatui::DefaultTerminal,
    stop: impl Fn() -> bool,
) -> io::Result<()> {
    let (wanted, answers) = asking(view, socket);
    let events = terminal_events();
    let mut top = Top::new(view);
    let mut changed = true;
    while !stop() && !terminal_is_gone() {
        if changed {
            terminal.draw(|frame| draw(&mut top, frame))?;
        }
        let event = match events.recv_timeout(POLL) {
            Ok(event) => Some(event?),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // A resize changes the screen, as any key may.
        changed = event.is_some();
        if let Some(Event::Key(key)) = event {
            let table = top.table();
            if handle(&mut top, key) == Verdict::End {
                return Ok(());
            }
            if top.table() != table {
                let _ = wanted.send(top.table());
            }
        }
        for answer in answers.try_iter() {
            top.take(Instant::now(), answer);
            changed = true;
        }
    }
    Ok(())
}

/// Returns whether the terminal was closed: an ssh connection or a window has ended.
fn terminal_is_gone() -> bool {
    let stdin = io::stdin();
    let mut watch = [Watch::failed(stdin.as_fd())];
    poll::wait(&mut watch, Some(Duration::ZERO)).is_ok() && watch[0].has_failed()
}

/// Reads keys and resizes on a thread of its own: crossterm's reader never returns once the terminal is gone, so the
/// thread that decides to end must not be the one that reads. The process ends without it.
fn terminal_events() -> Receiver<io::Result<Event>> {
    let (sender, events) = mpsc::sync_channel(16);
    thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                return;
            }
        }
    });
    events
}

/// Asks from a thread of its own, so that keys are handled while an answer is late. It ends with the other ends of its
/// channels.
fn asking(view: &'static View, socket: PathBuf) -> (Sender<usize>, Receiver<Answer>) {
    let (sender, answers) = mpsc::sync_channel(1);
    let (wanted, selected) = mpsc::channel();
    thread::spawn(move || {
        let mut table = 0;
        loop {
            let start = Instant::now();
            if sender
                .send(ask(view, &view.tables[table..=table], &socket))
                .is_err()
            {
                return;
            }
            match selected.recv_timeout(INTERVAL.max(4 * start.elapsed())) {
                Ok(next) => table = selected.try_iter().last().unwrap_or(next),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    (wanted, answers)
}

/// Handles a key.
pub fn handle(top: &mut Top, key: KeyEvent) -> Verdict {
    if key.kind == KeyEventKind::Release {
        return Verdict::Continue;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Verdict::End,
        KeyCode::Char('c') if control => return Verdict::End,
        KeyCode::Tab | KeyCode::Right => top.next_table(1),
        KeyCode::BackTab | KeyCode::Left => top.next_table(-1),
        KeyCode::Down | KeyCode::Char('j') => top.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => top.scroll(-1),
        KeyCode::PageDown => top.scroll_pages(1),
        KeyCode::PageUp => top.scroll_pages(-1),
        KeyCode::Home => top.scroll(isize::MIN),
        KeyCode::End => top.scroll(isize::MAX),
        KeyCode::Char('>') => top.next_sort(1),
        KeyCode::Char('<') => top.next_sort(-1),
        KeyCode::Char('r') => top.reverse(),
        _ => {}
    }
    Verdict::Continue
}
