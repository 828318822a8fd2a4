//! Client tokens of a native network: what must be presented for a JOIN or a source, and what was refused.
//!
//! | request | token that it needs, if the configuration requires tokens for that right |
//! | --- | --- |
//! | JOIN, COST; `GET` of a session | one with the right `join` |
//! | `PUT`, `POST` of a session | one with the right `publish` |
//! | LEAVE | none: it is accepted only from what joined |
//!
//! Edges also decide by the authorisation rules about their readers and sources, whom the control node does not know.
//! Denials are counted here, under the rule; bounds of a rule on count and rate do not concern single readers.
//!
//! All parts of a process share one [`Access`]; a reload replaces its rules. An edge of the process presents a pass that
//! only this process knows, so that no token is needed for the way between its own servers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bfed::authorise::{self, Authoriser, Right, Subject};
use bfed::name::Owner;
use bfed::wire::client::Token;
use bfed::{BnNum, SessionName};
use bfed_token::{Presented, Refused, Verifier, VerifyingKey};

use super::Counter;

/// `[tokens]` of the configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TokensConfig {
    /// Keys whose tokens count.
    pub keys: Vec<VerifyingKey>,
    /// Rights that need a token.
    pub required: Vec<Right>,
    /// File with the token that edges of this process present to mediators and servers of other processes.
    pub token_file: Option<PathBuf>,
}

impl TokensConfig {
    /// Reads the edges' own token.
    ///
    /// # Errors
    /// The file cannot be read, or holds no token.
    pub fn own_token(&self) -> Result<Option<Token>, String> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {shown}: {error}"))?;
        let token = Token::new(text.trim_end());
        token
            .map(Some)
            .ok_or_else(|| format!("{shown} holds no token; see `bfed-gateway token issue`"))
    }
}

/// What decides about clients: `[tokens]`, `[authorisation]`, and the DNS names of networks.
#[derive(Clone, Copy, Debug)]
pub struct AccessConfig<'a> {
    /// The tokens.
    pub tokens: &'a TokensConfig,
    /// The rules.
    pub rules: &'a authorise::Rules,
    /// The names.
    pub names: &'a BTreeMap<String, BnNum>,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAdmitted {
    /// There was no token.
    Missing,
    /// The token was refused.
    Refused(Refused),
}

impl NotAdmitted {
    /// All reasons, for counters.
    const ALL: [NotAdmitted; 8] = [
        NotAdmitted::Missing,
        NotAdmitted::Refused(Refused::Malformed),
        NotAdmitted::Refused(Refused::Foreign),
        NotAdmitted::Refused(Refused::Expired),
        NotAdmitted::Refused(Refused::Early),
        NotAdmitted::Refused(Refused::Right),
        NotAdmitted::Refused(Refused::Session),
        NotAdmitted::Refused(Refused::Address),
    ];

    /// Returns the name for counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            NotAdmitted::Missing => "tokens_missing",
            NotAdmitted::Refused(refused) => refused.name(),
        }
    }

    /// Returns what to do, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            NotAdmitted::Missing => {
                "a token is needed: append ?token=TOKEN, or send Authorization: Bearer TOKEN"
            }
            NotAdmitted::Refused(Refused::Expired) => {
                "the token has expired; ask its issuer for another"
            }
            NotAdmitted::Refused(Refused::Early) => {
                "the token does not count yet; check the clocks"
            }
            NotAdmitted::Refused(Refused::Foreign) => {
                "the token is for another network, or of an unknown issuer"
            }
            NotAdmitted::Refused(Refused::Address) => "the token is for clients of other addresses",
            NotAdmitted::Refused(Refused::Right) => "the token does not grant this right",
            NotAdmitted::Refused(Refused::Session) => "the token is for other sessions",
            NotAdmitted::Refused(Refused::Malformed) => "the token is malformed",
        }
    }
}

#[derive(Debug)]
struct Rules {
    verifier: Verifier,
    required: Vec<Right>,
    own: Option<Token>,
    names: BTreeMap<String, BnNum>,
}

/// What clients must present, shared by all parts of a process.
#[derive(Debug)]
pub struct Access {
    network: BnNum,
    rules: RwLock<Rules>,
    /// Decides about readers and sources of edges.
    authoriser: Mutex<Authoriser>,
    /// What this process presents to itself.
    pass: Token,
    refused: [AtomicU64; NotAdmitted::ALL.len()],
}

impl Access {
    /// Creates it from a configuration, DNS names of networks, and entropy for the pass.
    ///
    /// # Errors
    /// As [`TokensConfig::own_token`].
    pub fn new(
        network: BnNum,
        config: AccessConfig<'_>,
        seed: [u8; 32],
    ) -> Result<Arc<Self>, String> {
        let low = seed.iter().map(|byte| char::from(b'a' + byte % 16));
        let high = seed.iter().map(|byte| char::from(b'a' + byte / 16));
        let pass: String = low.chain(high).collect();
        Ok(Arc::new(Access {
            network,
            rules: RwLock::new(Rules::new(network, config)?),
            authoriser: Mutex::new(Authoriser::new(config.rules.clone(), config.names.clone())),
            pass: Token::new(&pass).ok_or("no pass")?,
            refused: Default::default(),
        }))
    }

    /// Replaces the configuration, or changes nothing.
    ///
    /// # Errors
    /// As [`TokensConfig::own_token`].
    pub fn configure(&self, config: AccessConfig<'_>) -> Result<(), String> {
        let rules = Rules::new(self.network, config)?;
        self.authoriser()
            .reconfigure(config.rules.clone(), config.names.clone());
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    fn authoriser(&self) -> MutexGuard<'_, Authoriser> {
        self.authoriser
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a reader or a source of an edge, by the rules and by its token.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check_client(
        &self,
        right: Right,
        session: &SessionName,
        from: IpAddr,
        token: Option<&str>,
    ) -> Result<(), String> {
        let is_own = token.is_some_and(|token| self.is_pass(token));
        let request = authorise::Request {
            right,
            subject: Subject::Client(Some(from)),
            session,
            network: self.network_of(session),
        };
        if !is_own {
            let mut authoriser = self.authoriser();
            if let Err(rule) = authoriser.decide(&request) {
                return Err(format!("the rule {:?} denies it", authoriser.name(rule)));
            }
        }
        let checked = self.check(right, session, Some(from), token);
        checked.map_err(|why| why.text().to_owned())
    }

    fn network_of(&self, session: &SessionName) -> Option<BnNum> {
        match session.owner() {
            Owner::Number(number) => Some(number),
            Owner::Name(name) => {
                let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
                rules.names.get(name).copied()
            }
        }
    }

    /// Returns whether this process itself presents the token.
    pub(super) fn is_pass(&self, token: &str) -> bool {
        same(token, self.pass.as_str())
    }

    /// Returns the denials of edges by rule.
    pub fn denied(&self) -> Vec<(String, u64)> {
        let authoriser = self.authoriser();
        authoriser
            .status()
            .map(|rule| (rule.name.to_owned(), rule.denied))
            .collect()
    }

    /// Decides about a token; a refusal is counted.
    ///
    /// # Errors
    /// The right needs a token, and the one presented, if any, does not grant it.
    pub fn check(
        &self,
        right: Right,
        session: &SessionName,
        from: Option<IpAddr>,
        token: Option<&str>,
    ) -> Result<(), NotAdmitted> {
        let owner = self.network_of(session);
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        if !rules.required.contains(&right) {
            return Ok(());
        }
        let checked = match token {
            None => Err(NotAdmitted::Missing),
            Some(token) if self.is_pass(token) => Ok(()),
            Some(token) => {
                let presented = Presented {
                    token,
                    right,
                    session,
                    owner,
                    from,
                };
                let verified = rules.verifier.verify(unix_seconds(), &presented);
                verified.map(drop).map_err(NotAdmitted::Refused)
            }
        };
        if let Err(why) = checked
            && let Some(at) = NotAdmitted::ALL.iter().position(|one| *one == why)
        {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
        checked
    }

    /// Returns what to present to servers of this process.
    #[must_use]
    pub fn pass(&self) -> Token {
        self.pass.clone()
    }

    /// Returns what to present to servers of other processes.
    #[must_use]
    pub fn own_token(&self) -> Option<Token> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        rules.own.clone()
    }

    /// Returns how many requests were refused, by reason.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        let all = NotAdmitted::ALL.iter().zip(&self.refused);
        all.map(|(why, count)| (why.name(), count.load(Ordering::Relaxed)))
    }
}

impl Rules {
    fn new(network: BnNum, config: AccessConfig<'_>) -> Result<Self, String> {
        let AccessConfig { tokens, names, .. } = config;
        Ok(Rules {
            verifier: Verifier::new(network, tokens.keys.clone()).with_names(names.clone()),
            required: tokens.required.clone(),
            own: tokens.own_token()?,
            names: names.clone(),
        })
    }
}

/// Compares two texts in a time that does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    let pairs = a.bytes().zip(b.bytes());
    a.len() == b.len() && pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Returns the time in seconds since 1970. Before 1970 no token counts.
fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(u64::MAX, |since| since.as_secs())
}
