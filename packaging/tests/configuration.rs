//! The commented configurations have every key that the programs know. The programs tell them: an unknown
//! key is answered with the known ones.

use std::collections::{BTreeMap, BTreeSet};

use daemon_kit::daemon::Configuration;
use packaging::PROGRAMS;

/// No known key is near it, so that none is proposed instead of all.
const UNKNOWN: &str = "zzzzzzzzzzzzzzzz";

/// Sections whose keys depend on what one of them says.
const KINDS: &[&str] = &[
    "",
    "kind = \"static\"",
    "kind = \"igmp-proxy\"",
    "kind = \"ip\"",
    "kind = \"ssm\"",
    "kind = \"http\"",
    "kind = \"external\"",
];

fn problems(program: &str, text: &str) -> Vec<String> {
    let strings = |problems: Vec<daemon_kit::reader::Problem>| {
        problems.iter().map(ToString::to_string).collect()
    };
    match program {
        "lms-router" => lms_router::config::Config::parse(text).map_or_else(strings, |_| vec![]),
        "dyram-relay" => dyram_relay::config::Config::parse(text).map_or_else(strings, |_| vec![]),
        "mcpd" => mcpd::config::Config::parse(text).map_or_else(strings, |_| vec![]),
        _ => bfed_gateway::config::Config::parse(text).map_or_else(strings, |_| vec![]),
    }
}

/// The keys known where `text` ends.
fn known(program: &str, text: &str) -> Option<BTreeSet<String>> {
    let problems = problems(program, &format!("{text}\n{UNKNOWN} = 1\n"));
    let (_, keys) = problems
        .iter()
        .find(|problem| problem.contains(UNKNOWN))?
        .split_once("; known ")?;
    let (_, keys) = keys.split_once(": ")?;
    Some(keys.split(", ").map(str::to_owned).collect())
}

/// Every section below `path`, with its keys.
fn sections(
    program: &str,
    above: &str,
    path: &str,
    found: &mut BTreeMap<String, BTreeSet<String>>,
) {
    for kind in KINDS {
        let text = format!("{above}\n{kind}");
        let Some(keys) = known(program, &text) else {
            continue;
        };
        let new: Vec<String> = {
            let all = found.entry(path.to_owned()).or_default();
            keys.into_iter()
                .filter(|key| all.insert(key.clone()))
                .collect()
        };
        for key in new {
            let below = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            for header in [format!("[{below}]"), format!("[[{below}]]")] {
                let text = format!("{text}\n{header}");
                if known(program, &text).is_some() {
                    sections(program, &text, &below, found);
                }
            }
        }
    }
}

/// What an example says of each section, comments too.
fn shown(example: &str) -> BTreeMap<String, String> {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    let mut section = String::new();
    for line in example.lines() {
        let bare = line.trim_start_matches(['#', ' ']);
        if let Some(header) = bare.strip_prefix('[') {
            let name = header.trim_start_matches('[').split(']').next();
            section = name.unwrap_or_default().to_owned();
        }
        let text = shown.entry(section.clone()).or_default();
        text.push_str(&format!("{line}\n"));
    }
    shown
}

/// `key = `, after a blank or what makes a comment of it.
fn has(text: &str, key: &str) -> bool {
    let key = format!("{key} = ");
    text.match_indices(&key)
        .any(|(at, _)| at == 0 || text[..at].ends_with([' ', '#', '\n']))
}

#[test]
fn examples_have_every_key() {
    let mut missing = Vec::new();
    for program in PROGRAMS {
        let Some(example) = program.configuration else {
            continue;
        };
        let mut all = BTreeMap::new();
        sections(program.name, "", "", &mut all);
        assert!(all.len() >= 5, "{}: {all:?}", program.name);
        let shown = shown(example);
        for (section, keys) in &all {
            for key in keys {
                let path = if section.is_empty() {
                    key.clone()
                } else {
                    format!("{section}.{key}")
                };
                // Rules for export have the keys of those for import, which stand before them.
                let like = section.replace("export", "import");
                let is_there = [section, &like]
                    .iter()
                    .any(|name| shown.get(*name).is_some_and(|text| has(text, key)));
                if !is_there && !shown.contains_key(&path) {
                    missing.push(format!("{}: {path}", program.name));
                }
            }
        }
    }
    assert!(
        missing.is_empty(),
        "not in the examples:\n{}",
        missing.join("\n")
    );
}
