//! Figures of the papers, for the report: one row a figure, and its counterpart in the scenario's
//! first table.

/// One figure of a paper.
pub(super) struct Finding {
    /// The scenario that repeats it.
    pub(super) scenario: &'static str,
    /// What was measured.
    pub(super) what: &'static str,
    /// What the paper found, with its unit and machine.
    pub(super) paper: &'static str,
    /// Where ours is.
    pub(super) ours: Ours,
}

/// Where the report has the corresponding figure.
pub(super) enum Ours {
    /// In the tables and plots below: it is more than one number.
    Below,
    /// In a scenario's first table: the row whose first cells are these, and the column.
    Cell(&'static [&'static str], &'static str),
}

use Ours::{Below, Cell};

const fn finding(
    scenario: &'static str,
    what: &'static str,
    paper: &'static str,
    ours: Ours,
) -> Finding {
    Finding {
        scenario,
        what,
        paper,
        ours,
    }
}

/// The papers' figures, in the order of the scenarios.
pub(super) const FINDINGS: &[Finding] = &[
    finding(
        "lms-overhead",
        "bytes of a request's IP option (Figure 6.13)",
        "16",
        Cell(&["request: IP option"], "classic, 138/139"),
    ),
    finding(
        "lms-overhead",
        "bytes a directed multicast adds on the wire (Figure 6.14)",
        "36, encapsulation included",
        Cell(&["dmcast: beyond it, on the wire"], "classic, 138/139"),
    ),
    finding(
        "lms-forwarding-cost",
        "a request / the kernel's multicast to one receiver (Table 6.1)",
        "1.08: 3,979 and 3,702 cycles, in the kernel of a 300 MHz Pentium II",
        Cell(&["LMS request", "2"], "x kernel to 1"),
    ),
    finding(
        "lms-forwarding-cost",
        "a directed multicast / the same (Table 6.1)",
        "1.01: 3,734 cycles",
        Cell(&["LMS dmcast", "2"], "x kernel to 1"),
    ),
    finding(
        "lms-scenarios",
        "scenarios 1 to 3 of §6.5.3",
        "checked by hand on a testbed of four hosts",
        Below,
    ),
    finding(
        "lms-recovery",
        "implosion, exposure and latency (chapter 5, opening of 6)",
        "claimed of simulation, not in this chapter",
        Below,
    ),
    finding(
        "tcpxm-lan",
        "speed to n hosts on a LAN (Figure 5)",
        "keeps the rate of the slowest host for any n; TCP's rate falls with n",
        Below,
    ),
    finding(
        "tcpxm-lan",
        "bytes on the wire (Figure 6)",
        "about one file for any n; TCP n files",
        Below,
    ),
    finding(
        "tcpxm-wan",
        "speed to ten sites (Figure 7)",
        "matches or beats TCP from five hosts on",
        Below,
    ),
    finding(
        "tcpxm-wan",
        "bytes on the wire (Figure 8)",
        "a step up for each site without multicast",
        Below,
    ),
    finding(
        "tcpxm-flows",
        "three sessions share changing links (Figure 10)",
        "7.5, 2.4, 6.4 and 10.4 Mbit/s by phase",
        Below,
    ),
    finding(
        "tcpxm-vs-tcp",
        "share of the link beside a TCP flow (Figure 11)",
        "about 50 %",
        Cell(&["TCP-XM, C to A and B"], "share %"),
    ),
    finding(
        "tcpxm-peers",
        "speed beside MDP, NORM and TCP (Figure 12)",
        "TCP falls from 71 to 11 Mbit/s for 8 hosts; no clear winner among the multicast protocols",
        Below,
    ),
    finding(
        "tcpxm-peers",
        "bytes on the wire (Figure 13)",
        "TCP's grow with n, the others' stay small",
        Below,
    ),
    finding(
        "tcpxm-fallback",
        "when the mode changes (§2.5, Figure 1)",
        "back after three losses in a row, forward when half of the segments come by multicast",
        Below,
    ),
    finding(
        "tcpxm-join-latency",
        "how late hosts hear multicast (Table 3)",
        "median 0 to 59 s by site; TCP-XM goes on by unicast until then",
        Below,
    ),
    finding(
        "ldc-layers",
        "receive rate with late data choice / without, at 1024 kbit/s (Table 5.1)",
        "0.988 (851.96 and 862.47 kbit/s)",
        Cell(&["1024 kbit/s, 5 % loss"], "LDC / plain"),
    ),
    finding(
        "ldc-layers",
        "the same at 512 kbit/s",
        "0.997",
        Cell(&["512 kbit/s, 5 % loss"], "LDC / plain"),
    ),
    finding(
        "ldc-layers",
        "the same at 256 kbit/s",
        "0.997",
        Cell(&["256 kbit/s, 5 % loss"], "LDC / plain"),
    ),
    finding(
        "ldc-layers",
        "bytes of each layer (Figures 5.3, 5.4)",
        "plain TCP: as many of each, all late; LDC: the base layer whole",
        Below,
    ),
    finding(
        "ldc-misuse",
        "dropped at the wrong time (Figure 5.5)",
        "very little in the middle layers",
        Below,
    ),
    finding(
        "ldc-throughput",
        "throughput (§4.2.4)",
        "above 3 Gbit/s, 2006",
        Cell(&["16384"], "LDC, Gbit/s"),
    ),
    finding(
        "ldc-notify",
        "notified for each message (§4.2.4)",
        "250 kbit/s, before the ring was filled first",
        Below,
    ),
    finding(
        "dyram-services",
        "a data packet without loss (Figure 4)",
        "20 µs, Java, 400 MHz Pentium II",
        Below,
    ),
    finding(
        "dyram-services",
        "a data packet that shows a gap (Figure 4)",
        "250 µs, and 12 to 17 ms for a timer's thread",
        Below,
    ),
    finding(
        "dyram-services",
        "a NACK, a repair (Figure 4)",
        "135 µs, 123 µs",
        Below,
    ),
    finding(
        "dyram-election",
        "election among 5 to 25 receivers (Figure 5)",
        "30 µs more for 25 than for 5",
        Below,
    ),
    finding(
        "bfed-islands",
        "islands of different kinds joined (Figure 1)",
        "designed; the prototype joined two HTTP networks (Figure 9)",
        Below,
    ),
    finding(
        "bfed-throughput",
        "one to five data nodes (Figure 10)",
        "linear; a little less than 200 Mbit/s each, around a gigabit with five; 496 MHz Pentium III",
        Below,
    ),
    finding(
        "bfed-frame-size",
        "length of frames (Figure 11)",
        "grows with it, up to about 16 KB",
        Below,
    ),
    finding(
        "bfed-sessions",
        "1 to 500 sessions (Figures 12, 13)",
        "a slow decrease beyond a few tens; at most 509 a data node",
        Below,
    ),
    finding(
        "bfed-low-rate",
        "sources of 100 kbit/s (§6.2)",
        "constant however many there are",
        Below,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_scenarios_and_those_that_repeat_one_have_it() {
        for finding in FINDINGS {
            let scenario = finding.scenario;
            assert!(crate::scenarios::find(scenario).is_some(), "{scenario}");
        }
        let named = |name: &str| FINDINGS.iter().any(|finding| finding.scenario == name);
        for scenario in crate::scenarios::all() {
            let repeats = scenario.figure.contains("Figure") || scenario.figure.contains("Table");
            let name = scenario.name;
            assert!(!repeats || named(name), "{name}: what did the paper find?");
        }
    }
}
