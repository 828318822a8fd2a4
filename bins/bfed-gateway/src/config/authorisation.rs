//! `[authorisation]` and its rules.

use std::cell::Cell;

use bfed::authorise::{Action, DEFAULT, MAX_RULES, NamePattern, PeerPattern, Right, Rule, Rules};
use bfed::{BnNum, NameError, Prefix};
use daemon_kit::reader::{At, Section};
use daemon_kit::value::text;
use toml::de::DeValue;

use crate::native::NetworkConfig;

/// Longest name of a rule in bytes.
const MAX_NAME: usize = 64;
const ACTIONS: [(&str, Action); 2] = [("allow", Action::Allow), ("deny", Action::Deny)];
const WANTS_SESSIONS: &str = "patterns such as [\"bfed://7\", \"bfed://7/239.1.*\"]";
const WANTS_PEERS: &str = "networks or gateways such as [\"7\", \"7.1\"]";
const WANTS_PREFIXES: &str = "prefixes such as [\"239.1.0.0/16\"]";
const WANTS_RIGHTS: &str = "some of [\"publish\", \"join\", \"carry\"]";

pub(super) fn authorisation(section: Section<'_, '_>, network: &NetworkConfig) -> Rules {
    let otherwise = section.choice("default", &ACTIONS, Action::Allow);
    let mut rules: Vec<Rule> = Vec::new();
    for section in section.sections("rule") {
        let offset = section.offset_of("name");
        let rule = rule(&section, network);
        if rules.iter().any(|other| other.name == rule.name) && !rule.name.is_empty() {
            let wrong = format!("there are two rules {:?}", rule.name);
            section.complain(
                offset,
                "name",
                wrong,
                "denials are counted by name; write another",
            );
        }
        if rules.len() == MAX_RULES {
            let wrong = format!("is one of more than {MAX_RULES} rules");
            section.complain_whole(&wrong, "write fewer; a rule may list many sessions");
        }
        section.finish();
        rules.push(rule);
    }
    section.finish();
    Rules {
        rules,
        otherwise: otherwise.unwrap_or_default(),
    }
}

fn rule(section: &Section<'_, '_>, network: &NetworkConfig) -> Rule {
    let name = section.require("name", "a name for counters and the log", |value| {
        let name = text(value)?;
        match name.as_str() {
            DEFAULT => Err(format!(
                "{name:?} is the name of requests that match no rule"
            )),
            _ if name.len() > MAX_NAME || name.chars().any(char::is_control) => Err(format!(
                "is longer than {MAX_NAME} bytes, or has control characters"
            )),
            _ => Ok(name),
        }
    });
    let action = section.require("action", "\"allow\" or \"deny\"", |value| {
        let word = text(value)?;
        let found = ACTIONS.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, action)| *action)
            .ok_or_else(|| format!("{word:?} is no action"))
    });
    let bound = |key| {
        Some(section.number(key, 0..=u32::MAX - 1, u32::MAX - 1)).filter(|_| section.has(key))
    };
    let rule = Rule {
        name: name.map(|at| at.value).unwrap_or_default(),
        action: action.map(|at| at.value).unwrap_or_default(),
        rights: list(section, "rights", WANTS_RIGHTS, right),
        sessions: list(section, "sessions", WANTS_SESSIONS, pattern),
        groups: list(section, "groups", WANTS_PREFIXES, prefix),
        clients: list(section, "clients", WANTS_PREFIXES, prefix),
        peers: list(section, "peers", WANTS_PEERS, peer),
        max_sessions: bound("max-sessions"),
        new_per_second: bound("new-per-second"),
    };
    check(section, &rule, network);
    rule
}

/// Reports conditions that never hold, and bounds that bound nothing.
fn check(section: &Section<'_, '_>, rule: &Rule, network: &NetworkConfig) {
    let complain = |key: &str, wrong: &str, instead: &str| {
        section.complain(section.offset_of(key), key, wrong, instead);
    };
    if rule.action == Action::Deny {
        for key in ["max-sessions", "new-per-second"] {
            if section.has(key) {
                complain(
                    key,
                    "bounds what a rule admits, and this one denies",
                    "leave it out, or write action = \"allow\"",
                );
            }
        }
    }
    if rule.clients.is_empty() {
        return;
    }
    if !rule.peers.is_empty() {
        complain(
            "clients",
            "stands beside peers, and no request comes from both",
            "write two rules",
        );
    }
    let kind = match network {
        NetworkConfig::Ip(_) => Some("an IP multicast network"),
        // Of its sources the addresses are known.
        NetworkConfig::Ltp(_) if rule.rights != [Right::Publish] => Some("an LTP network"),
        NetworkConfig::External(_) => Some("an external network"),
        _ => None,
    };
    if let Some(kind) = kind {
        let wrong = format!("is unknown in {kind}, where one request serves all clients");
        complain("clients", &wrong, "leave it out");
    }
    if rule.rights == [Right::Carry] {
        complain(
            "clients",
            "never ask to carry a session",
            "write peers, or rights = [\"join\"]",
        );
    }
}

/// Reads a list; an empty one is an error, because it would be no condition.
fn list<T>(
    section: &Section<'_, '_>,
    key: &'static str,
    wants: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Vec<T> {
    let named = Cell::new(false);
    let listed = section.list(key, wants, |value: &DeValue<'_>| {
        named.set(true);
        read(&text(value)?)
    });
    let Some(At { value, offset }) = listed else {
        return Vec::new();
    };
    if !named.get() {
        section.complain(
            offset,
            key,
            "names none, so the rule would match all",
            format!("write {wants}, or leave it out"),
        );
    }
    value.into_iter().map(|at| at.value).collect()
}

fn right(word: &str) -> Result<Right, String> {
    let found = Right::ALL.into_iter().find(|right| right.name() == word);
    found.ok_or_else(|| format!("{word:?} is no right"))
}

fn pattern(text: &str) -> Result<NamePattern, String> {
    let wrong = |error: NameError| format!("{text:?} is no pattern: {error}");
    text.parse().map_err(wrong)
}

fn prefix(text: &str) -> Result<Prefix, String> {
    text.parse::<Prefix>()
        .map_err(|wrong| format!("{text:?} is {wrong}"))
}

fn peer(text: &str) -> Result<PeerPattern, String> {
    let wrong = || format!("{text:?} is neither a network nor a gateway");
    let (network, number) = match text.split_once('.') {
        Some((network, number)) => (network, Some(number.parse().map_err(|_| wrong())?)),
        None => (text, None),
    };
    let network = network
        .parse()
        .ok()
        .and_then(BnNum::new)
        .ok_or_else(wrong)?;
    Ok(PeerPattern { network, number })
}
