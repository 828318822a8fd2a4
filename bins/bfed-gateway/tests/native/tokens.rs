//! Tokens of clients, in each kind of network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bfed::BnNum;
use bfed::authorise::{Action, Right, Rule, Rules, Subject};
use bfed::native::Upcall;
use bfed::wire::client::{Answer, AnswerRepr, Want};
use bfed::wire::no_route::Reason;
use bfed_gateway::native::{Access, Network, NetworkConfig, Role, TokensConfig};
use bfed_token::{Claims, SigningKey};

use crate::common::*;

const SESSION: &str = "bfed://9/news";

/// The issuer of tokens for the test's network.
struct Issuer(SigningKey);

impl Issuer {
    fn new() -> Self {
        Issuer(SigningKey::generate().unwrap())
    }

    /// What requires its tokens.
    fn access(&self) -> Arc<Access> {
        let tokens = TokensConfig {
            keys: vec![self.0.verifying_key().unwrap()],
            required: vec![Right::Join, Right::Publish],
            token_file: None,
        };
        access(&tokens, &Rules::default())
    }

    fn claims() -> Claims {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = since.as_secs();
        Claims::new(
            "bfed://9/news".parse().unwrap(),
            vec![Right::Join],
            now,
            now + 600,
        )
    }

    fn sign(&self, network: u32, claims: &Claims) -> String {
        let network = BnNum::new(network).unwrap();
        self.0.issue(network, claims).unwrap().as_str().to_owned()
    }

    /// Tokens that do not count, and the counters of their refusals.
    fn bad(&self) -> Vec<(String, &'static str)> {
        let claims = Issuer::claims();
        let mut expired = claims.clone();
        (expired.not_before_s, expired.expires_s) = (1, 2);
        let mut elsewhere = claims.clone();
        elsewhere.sessions = "bfed://9/film".parse().unwrap();
        let mut publish = claims.clone();
        publish.rights = vec![Right::Publish];
        let mut bound = claims.clone();
        bound.client = Some("192.0.2.0/24".parse().unwrap());
        vec![
            (self.sign(OWN, &expired), "tokens_expired"),
            (self.sign(OWN + 1, &claims), "tokens_foreign"),
            (Issuer::new().sign(OWN, &claims), "tokens_foreign"),
            (self.sign(OWN, &elsewhere), "tokens_for_other_sessions"),
            (self.sign(OWN, &publish), "tokens_without_right"),
            // One that another host overheard.
            (self.sign(OWN, &bound), "tokens_from_other_addresses"),
            ("v4.public.AAAA".to_owned(), "tokens_malformed"),
            ("x".repeat(1024), "tokens_malformed"),
        ]
    }
}

fn counters(network: &dyn Network) -> Vec<u64> {
    let list = network.counters();
    let tokens = list.iter().filter(|(name, _)| name.starts_with("tokens_"));
    tokens.map(|(_, count)| *count).collect()
}

#[test]
fn in_a_source_specific_network_a_bad_token_is_answered_with_no_route() {
    alone(|| {
        let issuer = Issuer::new();
        let access = issuer.access();
        let mut front = started(
            crate::ssm::config()
                .open(Role::Mediator, guarded(&access))
                .unwrap(),
        );
        let session = name(SESSION);
        let client = stranger("127.0.0.1:0");
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let ask = |nonce, token: Option<&str>, front: &mut dyn Network| {
            let mut bytes = request_with(Want::Join, nonce, &session, token);
            bytes.resize(bytes.len().max(1200), 0);
            client.send_to(&bytes, crate::ssm::MEDIATOR).unwrap();
            nothing(front);
            let mut buffer = [0; 2000];
            let len = client.recv(&mut buffer).unwrap();
            let answer = AnswerRepr::parse(&buffer[..len]).unwrap();
            (answer.nonce, answer.answer)
        };
        let refused = |nonce| (nonce, Answer::NoRoute(Reason::Policy));
        assert_eq!(ask(5, None, &mut *front), refused(5));
        assert_eq!(count(&*front, "tokens_missing"), 1);
        for (nonce, (token, counter)) in (6..).zip(issuer.bad()) {
            let before = count(&*front, counter);
            assert_eq!(
                ask(nonce, Some(&token), &mut *front),
                refused(nonce),
                "{counter}"
            );
            assert_eq!(count(&*front, counter), before + 1);
        }
        assert_eq!(counters(&*front).iter().sum::<u64>(), 9);
        assert_eq!(count(&*front, "requests_not_admitted"), 9);
        let good = issuer.sign(OWN, &Issuer::claims());
        let mut bytes = request_with(Want::Join, 20, &session, Some(&good));
        bytes.resize(1200, 0);
        client.send_to(&bytes, crate::ssm::MEDIATOR).unwrap();
        let Upcall::Join(request) = soon(&mut *front).0 else {
            panic!();
        };
        let Subject::Client(Some(from)) = request.subject else {
            panic!("{:?}", request.subject);
        };
        assert!(from.is_loopback());
        // It can be presented again: a refresh does.
        client.send_to(&bytes, crate::ssm::MEDIATOR).unwrap();
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_damped"), 1);
        // A LEAVE needs none.
        let leave = request_with(Want::Leave, 20, &session, None);
        client.send_to(&leave, crate::ssm::MEDIATOR).unwrap();
        nothing(&mut *front);
        assert_eq!(count(&*front, "requests_not_admitted"), 9);
    });
}

#[test]
fn on_a_group_a_refusal_is_for_the_asker_alone() {
    alone(|| {
        let issuer = Issuer::new();
        let config = NetworkConfig::Ip(crate::ip::config());
        let mut front = started(
            config
                .open(Role::Mediator, guarded(&issuer.access()))
                .unwrap(),
        );
        let group: SocketAddr = crate::ip::MEDIATOR.parse().unwrap();
        let mut host = Host::in_group(group, None);
        let session = name(SESSION);
        let good = issuer.sign(OWN, &Issuer::claims());
        host.send(group, &request_with(Want::Join, 5, &session, Some(&good)));
        let Upcall::Join(request) = soon(&mut *front).0 else {
            panic!();
        };
        let served = Answer::Translation(vec![bfed::ChannelAddress::Native(b"x".to_vec())]);
        front.answer(now(), Some(request.client), &answer(served, &session));
        // Forged requests: at most ten answers, each with the nonce of its own request.
        for nonce in 100..140 {
            host.send(
                group,
                &request_with(Want::Join, nonce, &session, Some("forged")),
            );
        }
        nothing(&mut *front);
        let mut answers = vec![];
        loop {
            let received = host.receive(300);
            if received.is_empty() {
                break;
            }
            let parsed = received
                .iter()
                .filter_map(|bytes| AnswerRepr::parse(bytes).ok());
            answers.extend(parsed.filter(|answer| matches!(answer.answer, Answer::NoRoute(_))));
        }
        assert!((1..=10).contains(&answers.len()), "{}", answers.len());
        assert!(answers.iter().all(|answer| answer.nonce >= 100));
        assert_eq!(
            count(&*front, "client_sessions"),
            1,
            "the client still has it"
        );
        assert_eq!(count(&*front, "tokens_malformed"), 40);
    });
}

#[test]
fn http_servers_take_tokens_in_the_header_and_in_the_query() {
    alone(|| {
        let issuer = Issuer::new();
        let access = issuer.access();
        let config = NetworkConfig::Http(crate::http::config());
        let role = Role::Channels { part: 0, parts: 1 };
        let net = started(config.open(role, guarded(&access)).unwrap());
        let mut front = started(config.open(Role::Mediator, guarded(&access)).unwrap());
        let path = crate::http::path(SESSION);
        for at in [crate::http::EDGE, crate::http::MEDIATOR] {
            assert_eq!(
                crate::http::Client::get(at, &path).head_while(&mut *front),
                403,
                "{at}"
            );
            for (token, counter) in issuer.bad() {
                let with = format!("{path}?token={token}");
                assert_eq!(
                    crate::http::Client::get(at, &with).head_while(&mut *front),
                    403,
                    "{counter}"
                );
            }
        }
        let mut claims = Issuer::claims();
        claims.client = Some("127.0.0.0/8".parse().unwrap());
        let good = issuer.sign(OWN, &claims);
        // The edge asks the mediator with the pass of its process, for clients that it decides about itself.
        let query = format!("{path}?a=b&token={good}");
        let mut player = crate::http::Client::get(crate::http::EDGE, &query);
        let Upcall::Join(request) = soon(&mut *front).0 else {
            panic!();
        };
        assert_eq!(request.subject, Subject::Clients);
        let url = "http://other.example/s/x";
        let served = Answer::Translation(vec![bfed::ChannelAddress::Native(url.into())]);
        front.answer(
            now(),
            Some(request.client),
            &answer(served.clone(), &name(SESSION)),
        );
        assert_eq!(player.head(), 307);
        assert_eq!(player.location, Some(format!("{url}?token={good}")));
        // In the header it is not repeated.
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: bearer {good}\r\n");
        let mut player = crate::http::Client::ask(crate::http::MEDIATOR, &head, b"");
        let Upcall::Join(request) = soon(&mut *front).0 else {
            panic!();
        };
        assert_eq!(
            request.subject,
            Subject::Client(Some([127, 0, 0, 1].into()))
        );
        front.answer(now(), Some(request.client), &answer(served, &name(SESSION)));
        assert_eq!(
            (player.head(), player.location.as_deref()),
            (307, Some(url))
        );
        // Sources need the other right.
        let own = crate::http::path("bfed://7/film");
        let mut source = crate::http::Client::put(crate::http::EDGE, &own);
        assert_eq!(source.head(), 403);
        let mut claims = Issuer::claims();
        claims.sessions = "bfed://7/film".parse().unwrap();
        claims.rights = vec![Right::Publish];
        let token = issuer.sign(OWN, &claims);
        let mut source =
            crate::http::Client::put(crate::http::EDGE, &format!("{own}?token={token}"));
        source.end();
        assert_eq!(source.head(), 200);
        drop(net);
    });
}

#[test]
fn a_playlist_and_all_that_it_names_play_with_the_token_of_the_page() {
    use crate::http::{Client, EDGE};
    alone(|| {
        const TS: &[u8] = include_bytes!("../../../../crates/media/tests/samples/h264.ts");
        let issuer = Issuer::new();
        let config = NetworkConfig::Http(crate::http::config());
        let role = Role::Channels { part: 0, parts: 1 };
        let access = issuer.access();
        let _net = started(config.open(role, guarded(&access)).unwrap());
        let mut claims = Issuer::claims();
        claims.sessions = "bfed://7/film".parse().unwrap();
        claims.rights = vec![Right::Publish];
        let source = issuer.sign(OWN, &claims);
        claims.rights = vec![Right::Join];
        let token = issuer.sign(OWN, &claims);
        let path = crate::http::path("bfed://7/film");
        let mut source = Client::put(EDGE, &format!("{path}?token={source}"));
        let get = |path: &str| {
            let mut client = Client::get(EDGE, path);
            let (status, body) = client.all();
            (status, body.to_vec())
        };
        // The page passes its token on to information, the playlist and the stream.
        let view = |view: &str, rest: &str| format!("{}{rest}", path.replacen("/s/", view, 1));
        let query = format!("?token={token}");
        assert_eq!(get(&view("/play/", "")).0, 403);
        let (status, page) = get(&view("/play/", &query));
        let page = String::from_utf8(page).unwrap();
        assert_eq!(status, 200);
        assert!(page.contains("playHls(this.base + info.hls + this.token)"));
        source.chunk(&TS[..20 * 188]);
        let mut waiting = Client::get(EDGE, &view("/hls/", &format!("/index.m3u8{query}")));
        std::thread::sleep(Duration::from_millis(200));
        for piece in TS[20 * 188..].chunks(1316 * 7) {
            source.chunk(piece);
        }
        let (status, list) = waiting.all();
        assert_eq!(status, 200);
        let list = String::from_utf8(list.to_vec()).unwrap();
        let (status, info) = get(&view("/info/", &query));
        let info: serde_json::Value = serde_json::from_slice(&info).unwrap();
        assert_eq!(
            (status, info["hls"].as_str()),
            (200, Some(&*view("/hls/", "/index.m3u8")))
        );
        // A browser resolves each address of the playlist against that of the playlist, whose query it leaves out.
        let quoted = list
            .lines()
            .filter_map(|line| line.split("URI=\"").nth(1)?.split('"').next());
        let plain = list
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let all: Vec<&str> = quoted.chain(plain).collect();
        assert!(all.len() >= 2, "{list}");
        let mut played = 0;
        for file in all {
            let file = view("/hls/", &format!("/{file}"));
            let bare = file.split('?').next().unwrap();
            assert_eq!(get(bare).0, 403, "without the token");
            // The hint names a part that is not there yet.
            if list.contains(&format!(
                "PRELOAD-HINT:TYPE=PART,URI=\"{}",
                file.rsplit('/').next().unwrap()
            )) {
                continue;
            }
            let (status, bytes) = get(&file);
            assert_eq!(status, 200, "{file}");
            played += bytes.len();
        }
        assert!(played > 20_000, "{played} bytes of {list}");
        // The token of a source reads nothing.
        claims.rights = vec![Right::Publish];
        let wrong = issuer.sign(OWN, &claims);
        assert_eq!(
            get(&view("/hls/", &format!("/index.m3u8?token={wrong}"))).0,
            403
        );
    });
}

#[test]
fn rules_decide_about_readers_and_sources_of_an_edge() {
    alone(|| {
        let closed = Rule {
            name: "closed".into(),
            action: Action::Deny,
            sessions: vec!["bfed://7/secret*".parse().unwrap()],
            clients: vec!["127.0.0.0/8".parse().unwrap()],
            ..Rule::default()
        };
        let rules = Rules {
            rules: vec![closed],
            otherwise: Action::Allow,
        };
        let access = access(&TokensConfig::default(), &rules);
        let config = NetworkConfig::Http(crate::http::config());
        let role = Role::Channels { part: 0, parts: 1 };
        let _net = started(config.open(role, guarded(&access)).unwrap());
        for session in ["bfed://7/secret", "bfed://0.0.0.7/secrets/a"] {
            let path = bfed_client::session_path(session, 0);
            assert_eq!(
                crate::http::Client::get(crate::http::EDGE, &path).head(),
                403
            );
            assert_eq!(
                crate::http::Client::put(crate::http::EDGE, &path).head(),
                403
            );
        }
        assert_eq!(
            access.denied(),
            [("closed".to_owned(), 4), ("default".to_owned(), 0)]
        );
        access
            .configure(bfed_gateway::native::AccessConfig {
                tokens: &TokensConfig::default(),
                rules: &Rules::default(),
                names: &Default::default(),
            })
            .unwrap();
        let mut source =
            crate::http::Client::put(crate::http::EDGE, &crate::http::path("bfed://7/secret"));
        source.end();
        assert_eq!(source.head(), 200);
    });
}
