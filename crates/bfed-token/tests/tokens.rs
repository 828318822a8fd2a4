//! Tokens that count, and all kinds of those that do not.

use bfed::authorise::Right;
use bfed::{BnNum, SessionName};
use bfed_token::{Claims, KeyError, LEEWAY_S, Presented, Refused, SigningKey, Verifier};

const NOW: u64 = 1_800_000_000;
const NEWS: &str = "bfed://9/news/5004";

fn network(number: u32) -> BnNum {
    BnNum::new(number).unwrap()
}

fn claims() -> Claims {
    Claims::new(
        "bfed://9/news*".parse().unwrap(),
        vec![Right::Join],
        NOW,
        NOW + 600,
    )
}

struct Bench {
    key: SigningKey,
    verifier: Verifier,
}

impl Bench {
    fn new() -> Self {
        let key = SigningKey::generate().unwrap();
        let verifier = Verifier::new(network(7), vec![key.verifying_key().unwrap()]);
        Bench { key, verifier }
    }

    fn token(&self, claims: &Claims) -> String {
        self.key
            .issue(network(7), claims)
            .unwrap()
            .as_str()
            .to_owned()
    }

    fn verify(&self, token: &str) -> Result<Claims, Refused> {
        self.verify_at(NOW, token, Right::Join, NEWS, None)
    }

    fn verify_at(
        &self,
        now: u64,
        token: &str,
        right: Right,
        session: &str,
        from: Option<&str>,
    ) -> Result<Claims, Refused> {
        let session = &SessionName::parse(session).unwrap();
        let from = from.map(|from| from.parse().unwrap());
        let owner = None;
        self.verifier.verify(
            now,
            &Presented {
                token,
                right,
                session,
                owner,
                from,
            },
        )
    }
}

#[test]
fn a_token_says_what_it_was_issued_for() {
    let bench = Bench::new();
    let mut claims = claims();
    claims.client = Some("10.0.0.0/8".parse().unwrap());
    claims.subject = Some("alice".into());
    let token = bench.token(&claims);
    assert!(token.starts_with("v4.public."));
    let verified = bench.verify_at(NOW, &token, Right::Join, NEWS, Some("10.1.2.3"));
    assert_eq!(verified, Ok(claims));
}

#[test]
fn times_rights_sessions_and_addresses_are_bounds() {
    let bench = Bench::new();
    let token = bench.token(&claims());
    let refused =
        |now, right, session, from| bench.verify_at(now, &token, right, session, from).err();
    assert_eq!(refused(NOW + 599, Right::Join, NEWS, None), None);
    assert_eq!(
        refused(NOW + 600, Right::Join, NEWS, None),
        Some(Refused::Expired)
    );
    assert_eq!(
        refused(u64::MAX, Right::Join, NEWS, None),
        Some(Refused::Expired)
    );
    assert_eq!(refused(NOW - LEEWAY_S, Right::Join, NEWS, None), None);
    assert_eq!(
        refused(NOW - LEEWAY_S - 1, Right::Join, NEWS, None),
        Some(Refused::Early)
    );
    assert_eq!(refused(0, Right::Join, NEWS, None), Some(Refused::Early));
    assert_eq!(
        refused(NOW, Right::Publish, NEWS, None),
        Some(Refused::Right)
    );
    assert_eq!(
        refused(NOW, Right::Join, "bfed://9/film", None),
        Some(Refused::Session)
    );
    assert_eq!(
        refused(NOW, Right::Join, "bfed://90/news", None),
        Some(Refused::Session)
    );

    let mut bound = claims();
    bound.client = Some("10.0.0.0/8".parse().unwrap());
    let token = bench.token(&bound);
    let from = |from| bench.verify_at(NOW, &token, Right::Join, NEWS, from).err();
    assert_eq!(from(Some("10.1.2.3")), None);
    // A token that was overheard is of no use elsewhere.
    assert_eq!(from(Some("192.0.2.1")), Some(Refused::Address));
    assert_eq!(from(None), Some(Refused::Address));
}

#[test]
fn foreign_tokens_are_refused() {
    let bench = Bench::new();
    let other = Bench::new();
    assert_eq!(bench.verify(&other.token(&claims())), Err(Refused::Foreign));
    let for_another_network = bench.key.issue(network(8), &claims()).unwrap();
    assert_eq!(
        bench.verify(for_another_network.as_str()),
        Err(Refused::Foreign)
    );
    let without_keys = Verifier::new(network(7), Vec::new());
    let session = &SessionName::parse(NEWS).unwrap();
    let token = bench.token(&claims());
    let presented = Presented {
        token: &token,
        right: Right::Join,
        session,
        owner: None,
        from: None,
    };
    assert_eq!(without_keys.verify(NOW, &presented), Err(Refused::Foreign));
}

#[test]
fn malformed_and_huge_tokens_are_refused() {
    let bench = Bench::new();
    let good = bench.token(&claims());
    let huge = format!("{good}{}", "A".repeat(1 << 20));
    let local = good.replacen("public", "local", 1);
    let older = good.replacen("v4", "v2", 1);
    for token in [
        "",
        "v4.public.",
        "v4.public.AAAA",
        "\u{0}",
        "ü",
        &huge,
        &local,
        &older,
    ] {
        assert_eq!(
            bench.verify(token),
            Err(Refused::Malformed),
            "{:.40}",
            token
        );
    }
    for len in 0..good.len() {
        assert!(bench.verify(&good[..len]).is_err(), "{len}");
    }
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(bench.verify(&changed).is_err(), "{at}");
    }
}

#[test]
fn claims_that_cannot_be_are_not_issued() {
    let bench = Bench::new();
    let issue = |claims: &Claims| bench.key.issue(network(7), claims).err();
    let mut none = claims();
    none.rights.clear();
    let mut backwards = claims();
    backwards.expires_s = backwards.not_before_s;
    let mut long = claims();
    long.subject = Some("x".repeat(1000));
    let mut late = claims();
    late.expires_s = u64::MAX;
    for claims in [none, backwards, long, late] {
        assert_eq!(issue(&claims), Some(KeyError::Claims));
    }
}

#[test]
fn keys_are_read_as_they_are_written() {
    let key = SigningKey::generate().unwrap();
    let (secret, public) = (key.to_secret_text(), key.verifying_key().unwrap());
    let again: SigningKey = secret.parse().unwrap();
    assert_eq!(again.verifying_key().unwrap(), public);
    assert_eq!(public.to_string().parse(), Ok(public.clone()));
    assert!(!format!("{key:?}").contains(&secret[10..20]));
    for text in ["", "k4.public.", &secret, "k4.public.AAAA"] {
        assert!(text.parse::<bfed_token::VerifyingKey>().is_err());
    }
    assert!(public.to_string().parse::<SigningKey>().is_err());
}
