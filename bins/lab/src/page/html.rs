//! The page itself. Every word is escaped: reports carry names and errors that came from outside.

use std::fmt::{self, Write as _};

use super::Entry;
use super::papers::{FINDINGS, Finding, Ours};
use crate::prelude::*;
use crate::scenarios;
use sims::report::Verdict;

const STYLE: &str = include_str!("style.css");

/// A part of the page: the scenarios whose names start so.
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
        title: "The house",
        about: "What the experiments themselves stand on.",
    },
];

pub(super) fn page(entries: &[Entry], machine: &[(&str, String)]) -> String {
    let mut out = String::with_capacity(1 << 20);
    // Writing into a string does not fail.
    let _ = whole(&mut out, entries, machine);
    out
}

fn whole(out: &mut String, entries: &[Entry], machine: &[(&str, String)]) -> fmt::Result {
    let quick = entries.iter().any(|entry| flag(entry, "quick"));
    writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>polycast: what was measured</title>\n<style>{STYLE}</style></head><body>"
    )?;
    writeln!(
        out,
        "<header><h1>polycast</h1><p class=\"lead\">One-to-many delivery: the papers' figures, ours beside them, \
         and other tools beside both.</p><dl class=\"machine\">"
    )?;
    for (name, value) in machine {
        writeln!(out, "<dt>{}</dt><dd>{}</dd>", text(name), text(value))?;
    }
    writeln!(out, "</dl>")?;
    if quick {
        writeln!(
            out,
            "<p class=\"warn\">Scenarios marked <em>quick</em> ran with smaller sizes: the same story, but their \
             figures are not those of a full run (<code>lab report --full</code>).</p>"
        )?;
    }
    writeln!(out, "</header><main>")?;
    glance(out, entries)?;
    let mut told = vec![false; entries.len()];
    for part in PARTS {
        let mine: Vec<usize> = (0..entries.len())
            .filter(|at| !told[*at] && entries[*at].ran.name.starts_with(part.prefix))
            .collect();
        if mine.is_empty() {
            continue;
        }
        writeln!(
            out,
            "<section class=\"part\"><h2>{}</h2><p>{}</p>",
            text(part.title),
            text(part.about)
        )?;
        for at in mine {
            told[at] = true;
            scenario(out, &entries[at])?;
        }
        writeln!(out, "</section>")?;
    }
    writeln!(
        out,
        "</main><footer>Made by <code>lab report</code>. Each scenario alone: <code>lab run NAME</code>; \
         what it needs and does: <code>lab list</code>.</footer></body></html>"
    )
}

/// One line a scenario.
fn glance(out: &mut String, entries: &[Entry]) -> fmt::Result {
    writeln!(
        out,
        "<section><h2>At a glance</h2><div class=\"wide\"><table class=\"glance\"><thead><tr><th>experiment</th>\
         <th>repeats</th><th>targets</th><th class=\"n\">seconds</th></tr></thead><tbody>"
    )?;
    for entry in entries {
        let name = text(&entry.ran.name);
        writeln!(
            out,
            "<tr><td><a href=\"#{name}\">{name}</a><div class=\"about\">{}</div></td><td>{}</td><td>{}</td>\
             <td class=\"n\">{:.0}</td></tr>",
            text(&about(&entry.ran.name)),
            text(word(entry, "figure")),
            badge(entry),
            entry.ran.seconds
        )?;
    }
    writeln!(out, "</tbody></table></div></section>")
}

fn about(name: &str) -> String {
    scenarios::find(name).map_or(String::new(), |scenario| scenario.about())
}

/// The scenario's verdict, as coloured words.
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
    format!(
        "<span class=\"badge {class}\">{}</span>",
        text(&entry.words(false))
    )
}

fn scenario(out: &mut String, entry: &Entry) -> fmt::Result {
    let name = text(&entry.ran.name);
    let quick = if flag(entry, "quick") {
        " <em class=\"quick\">quick</em>"
    } else {
        ""
    };
    writeln!(
        out,
        "<article id=\"{name}\"><h3>{name}{quick}{}</h3><p>{}</p>",
        badge(entry),
        text(&about(&entry.ran.name))
    )?;
    let Some(report) = &entry.report else {
        let code = entry
            .ran
            .code
            .map_or_else(String::new, |code| format!("exit code {code}. "));
        writeln!(
            out,
            "<pre class=\"words\">{code}{}</pre></article>",
            text(&entry.ran.words)
        )?;
        return Ok(());
    };
    let finding: Vec<&Finding> = FINDINGS
        .iter()
        .filter(|finding| finding.scenario == entry.ran.name)
        .collect();
    if !finding.is_empty() {
        writeln!(
            out,
            "<div class=\"wide\"><table class=\"paper\"><thead><tr><th>figure</th><th>in the paper</th><th>here</th>\
             </tr></thead><tbody>"
        )?;
        for finding in finding {
            writeln!(
                out,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                text(finding.what),
                text(finding.paper),
                ours(report, &finding.ours)
            )?;
        }
        writeln!(out, "</tbody></table></div>")?;
    }
    if let Some(svg) = &entry.svg {
        writeln!(out, "<figure>{}</figure>", without_size(svg))?;
    }
    tables(out, list(report, "tables"))?;
    checks(out, list(report, "checks"), list(report, "skipped"))?;
    let notes = list(report, "notes");
    if !notes.is_empty() {
        writeln!(
            out,
            "<details><summary>how it was measured</summary><ul class=\"notes\">"
        )?;
        for note in notes {
            writeln!(out, "<li>{}</li>", text(note.as_str().unwrap_or_default()))?;
        }
        writeln!(out, "</ul></details>")?;
    }
    writeln!(out, "</article>")
}

/// The figure of ours beside the paper's.
fn ours(report: &Value, at: &Ours) -> String {
    let Ours::Cell(row, column) = at else {
        return "below".to_owned();
    };
    let find = || {
        let first = list(report, "tables").first()?;
        let column = list(first, "columns")
            .iter()
            .position(|name| name == column)?;
        let starts = |cells: &&Value| {
            let cells = cells.as_array().map_or(&[][..], Vec::as_slice);
            cells.len() >= row.len()
                && row
                    .iter()
                    .zip(cells)
                    .all(|(want, cell)| value(cell) == *want)
        };
        let row = list(first, "rows").iter().find(starts)?;
        Some(value(row.get(column)?))
    };
    find().map_or_else(
        || "not measured".to_owned(),
        |shown| format!("<b>{}</b>", text(&shown)),
    )
}

fn table(out: &mut String, table: &Value) -> fmt::Result {
    let rows = list(table, "rows");
    let cells = |row: &Value| row.as_array().cloned().unwrap_or_default();
    let numeric = |at: usize| {
        rows.iter()
            .any(|row| row.get(at).is_some_and(Value::is_number))
    };
    writeln!(
        out,
        "<div class=\"wide\"><table><caption>{}</caption><thead><tr>",
        text(word_of(table, "title"))
    )?;
    for (at, column) in list(table, "columns").iter().enumerate() {
        let class = if numeric(at) { " class=\"n\"" } else { "" };
        write!(
            out,
            "<th{class}>{}</th>",
            text(column.as_str().unwrap_or_default())
        )?;
    }
    writeln!(out, "</tr></thead><tbody>")?;
    for row in rows {
        out.push_str("<tr>");
        for (at, cell) in cells(row).iter().enumerate() {
            let class = if numeric(at) { " class=\"n\"" } else { "" };
            write!(out, "<td{class}>{}</td>", text(&value(cell)))?;
        }
        out.push_str("</tr>\n");
    }
    writeln!(out, "</tbody></table></div>")
}

/// The first plot shows the scenario's main result; the others are folded.
fn tables(out: &mut String, tables: &[Value]) -> fmt::Result {
    let Some((first, others)) = tables.split_first() else {
        return Ok(());
    };
    table(out, first)?;
    if others.is_empty() {
        return Ok(());
    }
    let titles = others.iter().filter_map(|one| one["title"].as_str());
    let titles = titles.collect::<Vec<_>>().join("; ");
    writeln!(out, "<details><summary>{}</summary>", text(&titles))?;
    for one in others {
        table(out, one)?;
    }
    writeln!(out, "</details>")
}

fn checks(out: &mut String, checks: &[Value], skipped: &[Value]) -> fmt::Result {
    if checks.is_empty() && skipped.is_empty() {
        return Ok(());
    }
    let missed = checks.iter().any(|check| !truth(check, "passed"));
    let open = if missed { " open" } else { "" };
    writeln!(
        out,
        "<details{open}><summary>targets</summary><ul class=\"checks\">"
    )?;
    for check in checks {
        let class = match (truth(check, "passed"), truth(check, "timed")) {
            (true, _) => "ok",
            (false, true) => "slow",
            (false, false) => "missed",
        };
        let unit = word_of(check, "unit");
        let name = text(word_of(check, "name"));
        if unit == "yes/no" {
            writeln!(out, "<li class=\"{class}\">{name}</li>")?;
            continue;
        }
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(" {}", text(unit))
        };
        let target = check["bound"]
            .as_object()
            .and_then(|bound| bound.iter().next());
        let target = target.map_or_else(String::new, |(kind, bound)| {
            format!("{} {}{unit}", kind.replace('_', " "), value(bound))
        });
        writeln!(
            out,
            "<li class=\"{class}\">{name}: <b>{}{unit}</b>, target {target}</li>",
            value(&check["measured"])
        )?;
    }
    for part in skipped {
        writeln!(
            out,
            "<li class=\"skipped\">skipped: {}: {}</li>",
            text(word_of(part, "name")),
            text(word_of(part, "reason"))
        )?;
    }
    writeln!(out, "</ul></details>")
}

/// A picture that scales with the page.
fn without_size(svg: &str) -> String {
    let Some(end) = svg.find("viewBox") else {
        return svg.to_owned();
    };
    format!("<svg {}", &svg[end..])
}

/// A cell as people read it: up to four digits that mean something, thousands apart.
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
