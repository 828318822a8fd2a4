//! One mistake in a configuration is one line of its error.

use daemon_kit::reader::{self, Problem};

/// The problems of `[gateway]` with a `network` that must not be 0, 1 or 2, looked at in two places.
fn problems(text: &str) -> Vec<String> {
    let read = reader::parse(text, |root| {
        let section = root.section("gateway");
        let network = section.require("network", "a number", |value| {
            let text = value.as_integer().map(ToString::to_string);
            text.ok_or_else(|| "is not a number".to_owned())
        });
        if let Some(network) = network {
            if network.value == "0" {
                section.complain(network.offset, "network", "is 0", "");
            }
            if ["0", "1", "2"].contains(&network.value.as_str()) {
                section.complain(network.offset, "network", "is in use", "");
            }
        }
        section.finish();
    });
    let problems: Vec<Problem> = read.err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn one_mistake_is_named_once() {
    for (text, expected) in [
        ("[gateway]\nnetwork = 7\n", None),
        // What looks at a value twice, the second time for something else.
        (
            "[gateway]\nnetwork = 0\n",
            Some("2:11: gateway.network: is 0"),
        ),
        (
            "[gateway]\nnetwork = 1\n",
            Some("2:11: gateway.network: is in use"),
        ),
        // The parser continues in the middle of the line.
        (
            "[gateway]\nnetwork = = 1\n",
            Some("2:11: extra `=`, expected nothing"),
        ),
        // What is no section has no keys that could be missing.
        (
            "[[gateway]]\nnetwork = 7\n",
            Some("1:1: gateway: a list is not a section; write [gateway] on a line of its own"),
        ),
    ] {
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(problems(text), expected, "{text}");
    }
}

#[test]
fn no_mistake_hides_another() {
    let found = problems("[gateway]\nnetwork = 0\nother = 1\n[more]\n");
    assert_eq!(found.len(), 3, "{found:?}");
    let found = problems("[gateway]\nnetwork = = 1\nother = = 2\n");
    assert_eq!(found.len(), 2, "{found:?}");
}
