//! `docs/manual/log-events.md` lists what daemons log.

use std::fs;
use std::path::{Path, PathBuf};

const MANUAL: &str = include_str!("../../docs/manual/log-events.md");

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The arguments of a macro that was just opened: up to the bracket that closes it.
fn arguments(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Level, message and identifier of each event that a source file logs at `info` or above. The message is the last
/// text among the arguments.
fn events(source: &str) -> Vec<(&'static str, String, Option<String>)> {
    let mut found = Vec::new();
    for level in ["info", "warn", "error"] {
        for (at, mark) in source.match_indices(&format!("tracing::{level}!(")) {
            let arguments = arguments(&source[at + mark.len()..]);
            let message = arguments.rsplit('"').nth(1);
            let identifier = arguments.split_once("event = \"");
            let identifier = identifier.and_then(|(_, rest)| rest.split('"').next());
            let message = message.unwrap_or(arguments).to_owned();
            found.push((level, message, identifier.map(str::to_owned)));
        }
    }
    found
}

#[test]
fn every_event_of_the_daemons_is_in_the_manual() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut count = 0;
    let mut missing = Vec::new();
    let programs = ["lms-router", "dyram-relay", "bfed-gateway", "mcpd", "cli"];
    let shared = ["daemon-kit", "control-stream"].map(|name| format!("crates/{name}"));
    for folder in programs
        .map(|name| format!("bins/{name}"))
        .into_iter()
        .chain(shared)
    {
        let mut files = Vec::new();
        sources(&root.join(folder).join("src"), &mut files);
        for file in files {
            for (level, message, identifier) in events(&fs::read_to_string(&file).unwrap()) {
                count += 1;
                let event = format!("| `{message}` |");
                let row = MANUAL.lines().find(|line| line.contains(&event));
                let levels = row.and_then(|row| row.split(" | ").next());
                let identifier = identifier.map(|name| format!("event = `{name}`"));
                let named =
                    identifier.is_some_and(|name| row.is_some_and(|row| row.contains(&name)));
                if !named || !levels.is_some_and(|levels| levels.contains(level)) {
                    missing.push(format!("{}: {level}: {message}", file.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "not listed:\n{}", missing.join("\n"));
    assert!(count >= 60, "only {count} events were found");
}

#[test]
fn events_are_found() {
    let source = r#"tracing::warn!(why = f("a) \" b"), "it \"says\" so"); x; tracing::info!(
        peer = %p,
        event = "up_again",
        "up",
    ); tracing::debug!("no");"#;
    let found = events(source);
    assert_eq!(
        found[0],
        ("info", "up".to_owned(), Some("up_again".to_owned()))
    );
    assert_eq!(found[1].2, None);
    assert_eq!(found.len(), 2);
}
