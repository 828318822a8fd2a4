//! Names of sessions, as people write them (§3.2).

use bfed::name::{MAX_FLOWS, MAX_NAME_LEN, MAX_PARAMETERS, unescape};
use bfed::{BnNum, Content, Metric, NameError, Owner, SessionName, Table};
use proptest::prelude::*;

fn parse(text: &str) -> SessionName {
    SessionName::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_examples_of_the_paper() {
    let name = parse("bfed://multicast.isp.net/224.5.6.7/8888");
    assert_eq!(name.owner(), Owner::Name("multicast.isp.net"));
    assert_eq!(name.native(), "224.5.6.7");
    assert_eq!(name.flows().collect::<Vec<_>>(), ["8888"]);
    assert_eq!(name.as_str(), "bfed://multicast.isp.net/224.5.6.7/8888");
    let name =
        parse("bfed://multicast.isp.net/224.5.6.7/8888/8889/?content=RTP&single-source=true");
    assert_eq!(name.flows().collect::<Vec<_>>(), ["8888", "8889"]);
    assert_eq!(
        name.parameters().collect::<Vec<_>>(),
        [("content", "RTP"), ("single-source", "true")]
    );
    assert_eq!(
        name.table(),
        Table::new(Metric::Hops, Content::RealTime, false)
    );
    let name = parse("bfed://7/m/?metric=latency&multi-source=true&content=real-time");
    assert_eq!(
        name.table(),
        Table::new(Metric::Latency, Content::RealTime, true)
    );
    assert_eq!(name.flow_count(), 1);
}

#[test]
fn spellings_of_one_session_are_one_name() {
    for (one, other) in [
        ("BFED://ISP.Net./m", "bfed://isp.net/m"),
        ("bfed://0.0.1.2/m", "bfed://258/m"),
        ("bfed://0258/m", "bfed://258/m"),
        ("bfed://7/%6d%2f%c3%A9", "bfed://7/m%2F%C3%A9"),
        ("bfed://7/m/f/", "bfed://7/m/f"),
        ("bfed://7/m/", "bfed://7/m"),
        ("bfed://7/m/?", "bfed://7/m"),
        ("bfed://7/m?metric=hops", "bfed://7/m/?metric=hops"),
        (
            "bfed://7/m/?x=2&&content=real-time&x=1",
            "bfed://7/m/?content=real-time&x=1&x=2",
        ),
    ] {
        assert_eq!(parse(one), parse(other), "{one}");
        assert_eq!(parse(one).as_str(), other);
    }
    assert_ne!(
        parse("bfed://7/m/?x=1"),
        parse("bfed://7/m"),
        "parameters are part of the name"
    );
    assert_ne!(
        parse("bfed://7/M"),
        parse("bfed://7/m"),
        "native names are opaque"
    );
}

#[test]
fn what_is_refused() {
    let flows = |count: usize| (0..count).map(|n| format!("/{n}")).collect::<String>();
    let parameters = |count: usize| (0..count).map(|n| format!("&p{n}=")).collect::<String>();
    let long = |len: usize| format!("bfed://7/{}", "m".repeat(len - 9));
    for (text, error) in [
        ("http://7/m", NameError::Scheme),
        ("bfed:/7/m", NameError::Scheme),
        ("\u{df}fed://7/m", NameError::Scheme),
        ("bfed:///m", NameError::Owner),
        ("bfed://0/m", NameError::Owner),
        ("bfed://4294967296/m", NameError::Owner),
        ("bfed://1.2.3/m", NameError::Owner),
        ("bfed://-isp.net/m", NameError::Owner),
        ("bfed://isp..net/m", NameError::Owner),
        ("bfed://user@isp.net/m", NameError::Owner),
        ("bfed://isp.net:80/m", NameError::Owner),
        ("bfed://7", NameError::NoNativeName),
        ("bfed://7//f", NameError::NoNativeName),
        ("bfed://7/a b", NameError::Character),
        ("bfed://7/\u{e9}", NameError::Character),
        ("bfed://7/m#x", NameError::Character),
        ("bfed://7/m/?x=a=b", NameError::Character),
        ("bfed://7/%4", NameError::Escape),
        ("bfed://7/%+1", NameError::Escape),
        ("bfed://7/%00", NameError::Escape),
        ("bfed://7/m/f//g", NameError::Flow),
        ("bfed://7/m/f/%66", NameError::Flow),
        (&format!("bfed://7/m/{}", "f".repeat(129)), NameError::Flow),
        (
            &format!("bfed://7/m{}", flows(MAX_FLOWS + 1)),
            NameError::Flow,
        ),
        ("bfed://7/m/?metric", NameError::Parameter),
        ("bfed://7/m/?=1", NameError::Parameter),
        ("bfed://7/m/?metric=taste", NameError::Parameter),
        (
            "bfed://7/m/?metric=hops&metric=latency",
            NameError::Parameter,
        ),
        (
            "bfed://7/m/?multi-source=true&single-source=true",
            NameError::Parameter,
        ),
        ("bfed://7/m/?multi-source=yes", NameError::Parameter),
        (
            &format!("bfed://7/m/?{}", parameters(MAX_PARAMETERS + 1)),
            NameError::Parameter,
        ),
        (&long(MAX_NAME_LEN + 1), NameError::TooLong),
        (&long(100 * MAX_NAME_LEN), NameError::TooLong),
    ] {
        assert_eq!(SessionName::parse(text), Err(error), "{text}");
    }
    assert_eq!(parse(&long(MAX_NAME_LEN)).as_str().len(), MAX_NAME_LEN);
    assert_eq!(
        parse(&format!("bfed://7/m{}", flows(MAX_FLOWS))).flow_count(),
        MAX_FLOWS
    );
}

fn component() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(1_u8.., 1..20)
}

/// Escapes every byte.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

proptest! {
    #[test]
    fn what_is_built_reads_back(
        number in 1_u32..,
        native in component(),
        flows in proptest::collection::btree_set(component(), 0..MAX_FLOWS),
        value in "[ -~]{0,10}",
    ) {
        let owner = Owner::Number(BnNum::new(number).unwrap());
        let flows: Vec<&[u8]> = flows.iter().map(|flow| &flow[..]).collect();
        let path: String = flows.iter().map(|flow| format!("/{}", escaped(flow))).collect();
        let (native_name, value) = (escaped(&native), escaped(value.as_bytes()));
        let name = format!("bfed://{number}/{native_name}{path}/?x={value}");
        let name = SessionName::parse(&name).unwrap();
        prop_assert_eq!(name.owner(), owner);
        prop_assert_eq!(name.native_bytes(), native);
        let read: Vec<_> = name.flows().map(unescape).filter(|flow| !flow.is_empty()).collect();
        prop_assert_eq!(read, flows);
        prop_assert_eq!(SessionName::parse(name.as_str()), Ok(name));
    }

    #[test]
    fn normal_form_is_stable(text in "bfed://[a-z0-9.]{1,8}/[ -~]{0,60}") {
        if let Ok(name) = SessionName::parse(&text) {
            prop_assert_eq!(SessionName::parse(name.as_str()), Ok(name));
        }
    }

    #[test]
    fn any_text_is_a_name_or_an_error(text in any::<String>()) {
        let _ = SessionName::parse(&text);
        let _ = SessionName::parse(&format!("bfed://{text}"));
        let _ = SessionName::parse(&format!("bfed://7/{text}"));
    }
}
