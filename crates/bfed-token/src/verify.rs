//! Verification of tokens.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bfed::authorise::Right;
use bfed::wire::client::MAX_TOKEN_LEN;
use bfed::{BnNum, SessionName};
use pasetors::Public;
use pasetors::token::UntrustedToken;
use pasetors::version4::{PublicToken, V4};

use crate::claims::Claims;
use crate::key::{VerifyingKey, assertion};

/// Most keys of a verifier.
pub const MAX_KEYS: usize = 4;
/// How much earlier than its beginning a token counts, in seconds.
pub const LEEWAY_S: u64 = 30;

/// A token, and what it is presented for.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The token.
    pub token: &'a str,
    /// The right that is needed.
    pub right: Right,
    /// The session.
    pub session: &'a SessionName,
    /// The network that owns the session, if known.
    pub owner: Option<BnNum>,
    /// Where it comes from, if known.
    pub from: Option<IpAddr>,
}

/// Why a token is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refused {
    /// It is longer than [`MAX_TOKEN_LEN`], no PASETO v4.public, or its claims are not known here.
    Malformed,
    /// It is signed by another key, or for another network.
    Foreign,
    /// It has expired.
    Expired,
    /// It does not count yet.
    Early,
    /// It does not grant the right.
    Right,
    /// It is for other sessions.
    Session,
    /// It is for clients of other addresses, or the network does not know the client's.
    Address,
}

impl Refused {
    /// Returns the name for counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Refused::Malformed => "tokens_malformed",
            Refused::Foreign => "tokens_foreign",
            Refused::Expired => "tokens_expired",
            Refused::Early => "tokens_early",
            Refused::Right => "tokens_without_right",
            Refused::Session => "tokens_for_other_sessions",
            Refused::Address => "tokens_from_other_addresses",
        }
    }
}

/// Verifies tokens for one network.
#[derive(Clone, PartialEq, Debug)]
pub struct Verifier {
    network: BnNum,
    keys: Vec<VerifyingKey>,
    /// DNS names of networks.
    names: BTreeMap<String, BnNum>,
}

impl Verifier {
    /// Creates a verifier with the first [`MAX_KEYS`] of these keys.
    #[must_use]
    pub fn new(network: BnNum, mut keys: Vec<VerifyingKey>) -> Self {
        keys.truncate(MAX_KEYS);
        let names = BTreeMap::new();
        Verifier {
            network,
            keys,
            names,
        }
    }

    /// Sets DNS names of networks, so that tokens may name owners either way.
    #[must_use]
    pub fn with_names(self, names: BTreeMap<String, BnNum>) -> Self {
        Verifier { names, ..self }
    }

    /// Verifies a token at `now_s`, in seconds since 1970.
    ///
    /// # Errors
    /// Why it is refused. The signature is checked before anything in it is read.
    pub fn verify(&self, now_s: u64, presented: &Presented<'_>) -> Result<Claims, Refused> {
        if presented.token.len() > MAX_TOKEN_LEN {
            return Err(Refused::Malformed);
        }
        let untrusted = UntrustedToken::<Public, V4>::try_from(presented.token);
        let untrusted = untrusted.map_err(|_| Refused::Malformed)?;
        let assertion = assertion(self.network);
        let verified = self.keys.iter().find_map(|key| {
            let with = Some(assertion.as_bytes());
            PublicToken::verify(&key.0, &untrusted, None, with).ok()
        });
        let trusted = verified.ok_or(Refused::Foreign)?;
        let claims = Claims::from_json(trusted.payload()).ok_or(Refused::Malformed)?;
        self.check(now_s, presented, &claims)?;
        Ok(claims)
    }

    fn check(&self, now_s: u64, presented: &Presented<'_>, claims: &Claims) -> Result<(), Refused> {
        let Presented { session, owner, .. } = *presented;
        if now_s >= claims.expires_s {
            return Err(Refused::Expired);
        }
        if now_s.saturating_add(LEEWAY_S) < claims.not_before_s {
            return Err(Refused::Early);
        }
        if !claims.rights.contains(&presented.right) {
            return Err(Refused::Right);
        }
        if !claims.sessions.matches(session, owner, &self.names) {
            return Err(Refused::Session);
        }
        let near = |address| claims.client.is_none_or(|prefix| prefix.contains(address));
        match presented.from {
            Some(address) if near(address) => Ok(()),
            None if claims.client.is_none() => Ok(()),
            _ => Err(Refused::Address),
        }
    }
}
