//! The page itself. All text is escaped: reports contain names and errors of other programs.

use super::Entry;
use super::papers::{FINDINGS, Finding, Ours};
use crate::prelude::*;
use crate::scenarios;
use sims::report::Verdict;

const STYLE: &str = include_str!("style.css");

/// A part of the page: the scenarios whose names have this prefix.
struct Part {
    prefix: &'static str,
    title: &'static str,
    about: &'static str,
}

const PARTS: &[Part] = &[
    Part {
        prefix: "lms",
        title: "LMS and LTP",
        about: "Reliable multicast with a little help from routers: a request is steered to a nearby receiver \
                that has the packet, its answer goes only where it was lost.",
    },
    Part {
        prefix: "ltp",
        title: "LTP beside its peers",
        about: "The transport above LMS, and other tools that bring one file to many hosts.",
    },
    Part {
        prefix: "dyram",
        title: "DyRAM",
        about: "Recovery by a tree of relays, where no router speaks multicast.",
    },
    Part {
        prefix: "tcpxm",
        title: "TCP-XM",
        about: "A TCP whose sender has many receivers: by multicast where it works, by unicast where not.",
    },
    Part {
        prefix: "ldc",
        title: "Late data choice",
        about: "A ring whose sender can change its mind about what it has sent.",
    },
    Part {
        prefix: "bfed",
        title: "Broadcast Federation",
        about: "Gateways that join islands of multicast.",
    },
    Part {
        prefix: "",
        title: "The lab",
        about: "Checks of the lab itself.",
    },
];

pub(super) fn page(entries: &[Entry], machine: &[(&str, String)]) -> String {
    let machine = machine
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", text(name), text(value)));
    let warning = match entries.iter().any(|entry| flag(entry, "quick")) {
        true => {
            "<p class=\"warn\">Scenarios marked <em>quick</em> ran with smaller sizes: the same story, but their \
             figures are not those of a full run (<code>lab report --full</code>).</p>\n"
        }
        false => "",
    };
    let mut shown = vec![false; entries.len()];
    let mut parts = String::new();
    for part in PARTS {
        let mine = entries.iter().zip(&mut shown);
        let mine =
            mine.filter(|(entry, shown)| !**shown && entry.ran.name.starts_with(part.prefix));
        let scenarios: String = mine
            .map(|(entry, shown)| {
                *shown = true;
                scenario(entry)
            })
            .collect();
        if !scenarios.is_empty() {
            parts += &format!(
                "<section class=\"part\"><h2>{}</h2><p>{}</p>\n{scenarios}</section>\n",
                text(part.title),
                text(part.about)
            );
        }
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>polycast: what was measured</title>\n<style>{STYLE}</style></head><body>\n\
         <header><h1>polycast</h1><p class=\"lead\">One-to-many delivery: the papers' figures, ours beside them, \
         and other tools beside both.</p><dl class=\"machine\">\n{}</dl>\n{warning}</header><main>\n{}{parts}\
         </main><footer>Made by <code>lab report</code>. Each scenario alone: <code>lab run NAME</code>; \
         what it needs and does: <code>lab list</code>.</footer></body></html>\n",
        machine.collect::<String>(),
        glance(entries)
    )
}

/// One line a scenario.
fn glance(entries: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let name = text(&entry.ran.name);
        format!(
            "<tr><td><a href=\"#{name}\">{name}</a><div class=\"about\">{}</div></td><td>{}</td><td>{}</td>\
             <td class=\"n\">{:.0}</td></tr>\n",
            text(&about(&entry.ran.name)),
            text(word(entry, "figure")),
            badge(entry),
            entry.ran.seconds
        )
    };
    format!(
        "<section><h2>At a glance</h2><div class=\"wide\"><table class=\"glance\"><thead><tr><th>experiment</th>\
         <th>repeats</th><th>targets</th><th class=\"n\">seconds</th></tr></thead><tbody>\n{}\
         </tbody></table></div></section>\n",
        entries.iter().map(line).collect::<String>()
    )
}

fn about(name: &str) -> String {
    scenarios::find(name).map_or(String::new(), |scenario| scenario.about())
}

/// The scenario's verdict, as a coloured label.
fn badge(entry: &Entry) -> String {
    let class = match entry.verdict(false) {
        None => "none",
        Some(Verdict::NoTarget) => "plain",
        Some(Verdict::Skipped) => "skipped",
        Some(Verdict::Met) => "ok",
        // Only targets that depend on the machine's speed.
        Some(Verdict::Missed) if entry.verdict(true) != Some(Verdict::Missed) => "slow",
        Some(Verdict::Missed) => "missed",
    };
    let words = text(&entry.words(false));
    format!("<span class=\"badge {class}\">{words}</span>")
}

fn scenario(entry: &Entry) -> String {
    let name = text(&entry.ran.name);
    let quick = match flag(entry, "quick") {
        true => " <em class=\"quick\">quick</em>",
        false => "",
    };
    let content = match &entry.report {
        Some(report) => result(entry, report),
        None => {
            let code = entry.ran.code.map(|code| format!("exit code {code}. "));
            let (code, words) = (code.unwrap_or_default(), text(&entry.ran.words));
            format!("<pre class=\"words\">{code}{words}</pre>")
        }
    };
    format!(
        "<article id=\"{name}\"><h3>{name}{quick}{}</h3><p>{}</p>\n{content}</article>\n",
        badge(entry),
        text(&about(&entry.ran.name))
    )
}

/// The papers' figures beside ours, the plots, the tables, the targets, and how it was measured.
fn result(entry: &Entry, report: &Value) -> String {
    let mut out = String::new();
    let findings = FINDINGS.iter();
    let findings: String = findings
        .filter(|finding| finding.scenario == entry.ran.name)
        .map(
            |Finding {
                 what,
                 paper,
                 ours: at,
                 ..
             }| {
                let (what, paper, ours) = (text(what), text(paper), ours(report, at));
                format!("<tr><td>{what}</td><td>{paper}</td><td>{ours}</td></tr>\n")
            },
        )
        .collect();
    if !findings.is_empty() {
        out += &format!(
            "<div class=\"wide\"><table class=\"paper\"><thead><tr><th>figure</th><th>in the paper</th>\
             <th>here</th></tr></thead><tbody>\n{findings}</tbody></table></div>\n"
        );
    }
    if let Some(svg) = &entry.svg {
        out += &format!("<figure>{}</figure>\n", without_size(svg));
    }
    out += &tables(list(report, "tables"));
    out += &checks(list(report, "checks"), list(report, "skipped"));
    let note = |note: &Value| format!("<li>{}</li>\n", text(note.as_str().unwrap_or_default()));
    let notes: String = list(report, "notes").iter().map(note).collect();
    if !notes.is_empty() {
        out += &format!(
            "<details><summary>how it was measured</summary><ul class=\"notes\">\n{notes}</ul></details>\n"
        );
    }
    out
}

/// The figure of ours beside the paper's.
fn ours(report: &Value, at: &Ours) -> String {
    let Ours::Cell(row, column) = at else {
        return "below".to_owned();
    };
    let find = || {
        let first = list(report, "tables").first()?;
        let mut columns = list(first, "columns").iter();
        let column = columns.position(|name| name == column)?;
        let starts = |cells: &&Value| {
            let cells = cells.as_array().map_or(&[][..], Vec::as_slice);
            let mut pairs = row.iter().zip(cells);
            cells.len() >= row.len() && pairs.all(|(want, cell)| value(cell) == *want)
        };
        let row = list(first, "rows").iter().find(starts)?;
        Some(value(row.get(column)?))
    };
    match find() {
        Some(shown) => format!("<b>{}</b>", text(&shown)),
        None => "not measured".to_owned(),
    }
}

fn table(table: &Value) -> String {
    let rows = list(table, "rows");
    let class = |at: usize| {
        let is_number = |row: &Value| row.get(at).is_some_and(Value::is_number);
        if rows.iter().any(is_number) {
            " class=\"n\""
        } else {
            ""
        }
    };
    let line = |cells: &[Value], tag: &str| -> String {
        let cells = cells.iter().enumerate();
        cells
            .map(|(at, cell)| format!("<{tag}{}>{}</{tag}>", class(at), text(&value(cell))))
            .collect()
    };
    let row = |row: &Value| {
        let cells = row.as_array().map_or(&[][..], Vec::as_slice);
        format!("<tr>{}</tr>\n", line(cells, "td"))
    };
    format!(
        "<div class=\"wide\"><table><caption>{}</caption><thead><tr>\n{}</tr></thead><tbody>\n{}\
         </tbody></table></div>\n",
        text(word_of(table, "title")),
        line(list(table, "columns"), "th"),
        rows.iter().map(row).collect::<String>()
    )
}

/// The first table shows the scenario's main result; the others are folded.
fn tables(tables: &[Value]) -> String {
    let Some((first, others)) = tables.split_first() else {
        return String::new();
    };
    if others.is_empty() {
        return table(first);
    }
    let titles = others.iter().filter_map(|one| one["title"].as_str());
    format!(
        "{}<details><summary>{}</summary>\n{}</details>\n",
        table(first),
        text(&titles.collect::<Vec<_>>().join("; ")),
        others.iter().map(table).collect::<String>()
    )
}

fn checks(checks: &[Value], skipped: &[Value]) -> String {
    if checks.is_empty() && skipped.is_empty() {
        return String::new();
    }
    let missed = checks.iter().any(|check| !truth(check, "passed"));
    let open = if missed { " open" } else { "" };
    let skipped = skipped.iter().map(|part| {
        let (name, reason) = (text(word_of(part, "name")), text(word_of(part, "reason")));
        format!("<li class=\"skipped\">skipped: {name}: {reason}</li>\n")
    });
    format!(
        "<details{open}><summary>targets</summary><ul class=\"checks\">\n{}</ul></details>\n",
        checks.iter().map(check).chain(skipped).collect::<String>()
    )
}

fn check(check: &Value) -> String {
    let class = match (truth(check, "passed"), truth(check, "timed")) {
        (true, _) => "ok",
        (false, true) => "slow",
        (false, false) => "missed",
    };
    let name = text(word_of(check, "name"));
    let unit = match word_of(check, "unit") {
        "yes/no" => return format!("<li class=\"{class}\">{name}</li>\n"),
        "" => String::new(),
        unit => format!(" {}", text(unit)),
    };
    let target = check["bound"]
        .as_object()
        .and_then(|bound| bound.iter().next());
    let target = target.map_or_else(String::new, |(kind, bound)| {
        format!("{} {}{unit}", kind.replace('_', " "), value(bound))
    });
    let measured = value(&check["measured"]);
    format!("<li class=\"{class}\">{name}: <b>{measured}{unit}</b>, target {target}</li>\n")
}

/// A picture that scales with the page.
fn without_size(svg: &str) -> String {
    let Some(end) = svg.find("viewBox") else {
        return svg.to_owned();
    };
    format!("<svg {}", &svg[end..])
}

/// A cell as text: up to four significant digits.
fn value(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_u64() => number.to_string(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            match number.abs() {
                0.0 => "0".to_owned(),
                large if large >= 1_000.0 => format!("{number:.0}"),
                large if large >= 100.0 => format!("{number:.1}"),
                middle if middle >= 1.0 => format!("{number:.2}"),
                small if small >= 0.001 => format!("{number:.3}"),
                _ => format!("{number:.1e}"),
            }
        }
        _ => String::new(),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn word_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn word<'a>(entry: &'a Entry, key: &str) -> &'a str {
    entry
        .report
        .as_ref()
        .map_or("", |report| word_of(report, key))
}

fn truth(value: &Value, key: &str) -> bool {
    value[key].as_bool().unwrap_or_default()
}

fn flag(entry: &Entry, key: &str) -> bool {
    entry
        .report
        .as_ref()
        .is_some_and(|report| truth(report, key))
}

/// Text inside an element or a quoted attribute.
fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for letter in raw.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::collect::Ran;
    use super::*;

    fn entry(name: &str, report: Option<Value>) -> Entry {
        let ran = Ran {
            name: name.to_owned(),
            seconds: 1.0,
            code: Some(1),
            words: "it <broke>".to_owned(),
        };
        Entry {
            ran,
            report,
            svg: None,
        }
    }

    #[test]
    fn the_paper_s_figure_stands_beside_ours() {
        let report = json!({
            "tables": [{"title": "t", "columns": ["flow", "Mbit/s", "share %"],
                        "rows": [["kernel TCP", 4.0, 60.0], ["TCP-XM, C to A and B", 3.0, 40.25]]}],
            "checks": [{"name": "share", "measured": 40.25, "unit": "%", "passed": true,
                        "bound": {"at_least": 40.0}}],
        });
        let page = page(
            &[entry("tcpxm-vs-tcp", Some(report))],
            &[("processor", "x".into())],
        );
        assert!(
            page.contains("<td>about 50 %</td><td><b>40.25</b></td>"),
            "{page}"
        );
        assert!(page.contains("met: 1 of 1"), "{page}");
        assert!(
            page.contains("share: <b>40.25 %</b>, target at least 40.00 %"),
            "{page}"
        );
    }

    #[test]
    fn the_picture_comes_first_and_further_tables_are_folded() {
        let one = |title: &str| json!({"title": title, "columns": ["n"], "rows": [[1]]});
        let report = json!({"tables": [one("chief"), one("more"), one("yet more")]});
        let mut entry = entry("lab-links", Some(report));
        entry.svg = Some("<svg></svg>".to_owned());
        let page = page(&[entry], &[]);
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}: {page}"));
        let order = [
            "<figure>",
            "chief",
            "<details><summary>more; yet more</summary>",
        ]
        .map(at);
        assert!(order.is_sorted(), "{page}");
    }

    #[test]
    fn a_skipped_scenario_meets_no_target() {
        let skipped = json!({"checks": [], "skipped": [{"name": "all", "reason": "no etcd here"}]});
        let entries = [
            entry("bfed-control-failover", Some(skipped)),
            entry("lab-links", Some(json!({"checks": []}))),
        ];
        let page = page(&entries, &[]);
        assert!(page.contains("skipped: no etcd here"), "{page}");
        assert!(page.contains("no target"), "{page}");
        assert!(!page.contains(">met"), "{page}");
    }

    #[test]
    fn words_from_outside_stay_words() {
        let page = page(&[entry("lab-links", None)], &[]);
        assert!(
            page.contains("it &lt;broke&gt;") && !page.contains("<broke>"),
            "{page}"
        );
        assert!(page.contains("no result"));
    }
}
