//! Tokens and rules in whole gateways.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use bfed_client::{Cancel, Error, Event, JoinOptions, PublishOptions, Publisher, Session, Sink};
use bfed_gateway::status::Show;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::*;

fn token(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bfed-gateway"));
    command.arg("token").args(arguments).output().unwrap()
}

fn line(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

/// A key of an issuer, and the public one.
fn key(folder: &TempDir, name: &str) -> (String, String) {
    let file = folder.path().join(name).to_str().unwrap().to_owned();
    let public = line(token(&["key", "--out", &file]));
    (file, public)
}

fn issue(key: &str, network: &str, right: &str) -> String {
    let sessions = "bfed://2/f*";
    let claims = [
        "--network",
        network,
        "--sessions",
        sessions,
        "--right",
        right,
        "--expires",
        "1h",
    ];
    line(token(&[&["issue", "--key", key][..], &claims].concat()))
}

#[derive(Default)]
struct Reader(Vec<u8>, bool);

impl Sink for Reader {
    fn data(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }

    fn event(&mut self, event: Event) {
        self.1 |= matches!(event, Event::Joined { .. });
    }
}

/// Receives a session of network 2 through network 1 until `wanted` has arrived.
fn receive(mediator: SocketAddr, token: Option<&str>, wanted: &[u8]) -> Result<(), Error> {
    let mut options = JoinOptions::new("bfed://2/film".parse().unwrap());
    options.mediators = vec![format!("http://{mediator}").parse().unwrap()];
    options.connect_timeout = Duration::from_secs(20);
    options.token = token.map(|token| token.parse().unwrap());
    let (cancel, mut reader) = (Cancel::new().unwrap(), Reader::default());
    let mut session = Session::join(options, &cancel, &mut reader)?;
    while !reader
        .0
        .windows(wanted.len())
        .any(|window| window == wanted)
    {
        session.step(Duration::from_millis(100), &mut reader)?;
    }
    session.leave();
    Ok(())
}

fn publisher(server: SocketAddr, token: Option<&str>) -> Result<Publisher, Error> {
    let mut options = PublishOptions::new("bfed://2/film".parse().unwrap());
    options.server = Some(format!("http://{server}").parse().unwrap());
    options.token = token.map(|token| token.parse().unwrap());
    Publisher::open(&options, &Cancel::new().unwrap())
}

#[test]
fn clients_and_sources_need_tokens_of_their_own_network_and_rules_end_what_they_have() {
    let keys = tempfile::tempdir().unwrap();
    let (own, own_public) = key(&keys, "own");
    let (far, far_public) = key(&keys, "far");
    let (at, servers, mediators) = ([port(), port()], [port(), port()], [port(), port()]);
    let start = |here: usize, public: &str, required: &str| {
        let network = format!(
            "[network]\nkind = \"http\"\nlisten = \"{}\"\nmediator = \"{}\"\n",
            servers[here], mediators[here]
        );
        let tokens = format!("[tokens]\nkeys = [\"{public}\"]\nrequired = {required}\n");
        let rest = format!("{network}{tokens}{}", peer(2 - here as u32, at[1 - here]));
        Daemon::start("run", here as u32 + 1, &listen(at[here]), &rest)
    };
    let one = start(0, &own_public, "[\"join\"]");
    let owner = start(1, &far_public, "[\"publish\"]");
    one.peered();
    owner.peered();

    // A source without the right is refused.
    for bad in [
        None,
        Some(issue(&far, "2", "join")),
        Some(issue(&own, "2", "publish")),
    ] {
        let mut source = publisher(servers[1], bad.as_deref()).unwrap();
        let refused = eventually("a refusal", || source.send(b"x").err());
        assert!(refused.to_string().contains("403"), "{refused}");
    }
    let publish = issue(&far, "2", "publish");
    let mut source = publisher(servers[1], Some(&publish)).unwrap();
    source.send(b"begin").unwrap();

    // So is a client without a token, with one of another network, or of another issuer.
    for bad in [
        None,
        Some(issue(&own, "2", "join")),
        Some(issue(&far, "1", "join")),
    ] {
        let refused = receive(mediators[0], bad.as_deref(), b"x");
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    let join = issue(&own, "1", "join");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| receive(mediators[0], Some(&join), b"end"));
        while !reader.is_finished() {
            source.send(b" end ").unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        reader.join().unwrap().unwrap();
    });
    let counters = one.show(Show::Counters);
    assert_eq!(counters["mediator"]["tokens_missing"], 1, "{counters}");
    assert_eq!(counters["mediator"]["tokens_foreign"], 2, "{counters}");

    // A rule of the owner ends the session that it had published.
    let config = owner.folder.path().join("gateway.toml");
    let rule = "[[authorisation.rule]]\nname = \"closed\"\naction = \"deny\"\nsessions = [\"bfed://2/film\"]\n\
        rights = [\"publish\"]\npeers = [\"1\"]\n";
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{good}{rule}")).unwrap();
    owner.signal(Signal::SIGHUP);
    eventually("the rule", || {
        let rules = owner.show(Show::Rules);
        (rules["rules"][0]["rule"] == "closed").then_some(())
    });
    let refused = receive(mediators[0], Some(&join), b"never");
    assert!(
        matches!(refused, Err(Error::Refused(_) | Error::NoAnswer(_))),
        "{refused:?}"
    );
    let rules = owner.show(Show::Rules);
    assert!(rules["rules"][0]["denied"].as_u64() > Some(0), "{rules}");
    assert!(
        owner.log().contains("authorisation_denied"),
        "{}",
        owner.log()
    );
}

#[test]
fn keys_and_tokens_are_made_as_the_manual_says() {
    let folder = tempfile::tempdir().unwrap();
    let (file, public) = key(&folder, "issuer.key");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(line(token(&["public", "--key", &file])), public);
    // An existing key is not overwritten.
    let again = token(&["key", "--out", &file]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(line(token(&["public", "--key", &file])), public);
    let long = [
        "issue",
        "--key",
        &file,
        "--network",
        "1",
        "--sessions",
        "bfed://*",
        "--expires",
        "100000h",
    ];
    let refused = token(&long);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("400 days"),
        "{refused:?}"
    );
    let wrong = [
        "issue",
        "--key",
        &file,
        "--network",
        "0",
        "--sessions",
        "bfed://*",
        "--expires",
        "1h",
    ];
    assert_eq!(token(&wrong).status.code(), Some(2));
}
