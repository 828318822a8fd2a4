//! What a token says.

use bfed::Prefix;
use bfed::authorise::{NamePattern, Right};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Longest life of a token that is issued here: 400 days.
pub const MAX_LIFETIME_S: u64 = 400 * 86_400;

/// What a token says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Claims {
    /// The sessions.
    pub sessions: NamePattern,
    /// What the client may do with them.
    pub rights: Vec<Right>,
    /// Addresses that may present it; `None`: any.
    pub client: Option<Prefix>,
    /// From when on it counts, in seconds since 1970.
    pub not_before_s: u64,
    /// When it expires, in seconds since 1970.
    pub expires_s: u64,
    /// A name for people and other systems, such as that of the user.
    pub subject: Option<String>,
}

impl Claims {
    /// Creates claims for clients of any address.
    #[must_use]
    pub fn new(
        sessions: NamePattern,
        rights: Vec<Right>,
        not_before_s: u64,
        expires_s: u64,
    ) -> Self {
        Claims {
            sessions,
            rights,
            client: None,
            not_before_s,
            expires_s,
            subject: None,
        }
    }

    /// Parses the JSON object in a token whose signature was verified; `None` if it is malformed, or has claims that are
    /// not known here.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str::<Json>(text).ok()?.claims()
    }

    /// Returns the JSON object; `None` if a time is beyond the year 9999.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        serde_json::to_string(&Json::of(self)?).ok()
    }
}

/// The JSON object in a token.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    exp: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iat: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aud: Option<String>,
    sessions: String,
    rights: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
}

/// Returns a time as RFC 3339 writes it; `None` beyond the year 9999.
fn written(seconds: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?;
    time.format(&Rfc3339).ok()
}

/// Parses a time. A fraction of a second is cut off, so that no token lives longer by it.
fn seconds(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

impl Json {
    /// Returns the object that says this; `None` if a time is beyond the year 9999.
    fn of(claims: &Claims) -> Option<Json> {
        let begins = written(claims.not_before_s)?;
        Some(Json {
            exp: written(claims.expires_s)?,
            nbf: Some(begins.clone()),
            iat: Some(begins),
            jti: None,
            sub: claims.subject.clone(),
            iss: None,
            aud: None,
            sessions: claims.sessions.to_string(),
            rights: claims
                .rights
                .iter()
                .map(|right| right.name().to_owned())
                .collect(),
            client: claims.client.map(|prefix| prefix.to_string()),
        })
    }

    /// Returns the claims; `None` if a value is malformed.
    fn claims(self) -> Option<Claims> {
        let right = |word: &String| Right::ALL.into_iter().find(|right| right.name() == word);
        let rights: Option<Vec<Right>> = self.rights.iter().map(right).collect();
        let begins = self.nbf.as_deref().map(seconds);
        Some(Claims {
            sessions: self.sessions.parse().ok()?,
            rights: rights?,
            client: self.client.map(|text| text.parse()).transpose().ok()?,
            not_before_s: begins.unwrap_or(Some(0))?,
            expires_s: seconds(&self.exp)?,
            subject: self.sub,
        })
    }
}
