//! Tokens of clients of the Broadcast Federation: signed, expiring, bound to sessions, rights and addresses.
//!
//! ```
//! use bfed::authorise::Right;
//! use bfed::{BnNum, SessionName};
//! use bfed_token::{Claims, Presented, SigningKey, Verifier};
//!
//! let network = BnNum::new(7).unwrap();
//! let key = SigningKey::generate()?;
//! let claims = Claims::new("bfed://*/news*".parse()?, vec![Right::Join], 1_000, 4_600);
//! let token = key.issue(network, &claims)?;
//!
//! let verifier = Verifier::new(network, vec![key.verifying_key()?]);
//! let session = SessionName::parse("bfed://9/news")?;
//! let presented = Presented {
//!     token: token.as_str(),
//!     right: Right::Join,
//!     session: &session,
//!     owner: None,
//!     from: None,
//! };
//! assert!(verifier.verify(2_000, &presented).is_ok());
//! assert!(verifier.verify(5_000, &presented).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Format
//!
//! PASETO v4.public (Ed25519): `v4.public.` and base64url of a JSON object and its signature. The number of the network is
//! part of what is signed, as the implicit assertion `bfed network N`, but not of the token.
//!
//! | claim | meaning |
//! | --- | --- |
//! | `exp`, `nbf`, `iat` | when it expires, from when on it counts, when it was issued (RFC 3339); `exp` is required |
//! | `jti`, `sub`, `iss`, `aud` | text for people and other systems, ignored here |
//! | `sessions` | a [`NamePattern`](bfed::authorise::NamePattern) of the sessions |
//! | `rights` | `join`, `publish` |
//! | `client` | prefix of the addresses that may present it; any, if left out |
//!
//! A token with any other claim is refused: it may restrict what this release does not know.
//!
//! # Units and limits
//!
//! | quantity | bound |
//! | --- | --- |
//! | token | [`MAX_TOKEN_LEN`](bfed::wire::client::MAX_TOKEN_LEN) bytes; a longer one is refused unread |
//! | keys of a verifier | [`MAX_KEYS`]: one signature is checked against each |
//! | times | seconds since 1970; clocks may differ by [`LEEWAY_S`] when a token begins, and by nothing when it ends |
//!
//! # Security model
//!
//! A token is a bearer token: whoever has it can present it until it expires, any number of times, from the addresses
//! that it names. There is no revocation of one token: remove the key, or deny its sessions by a rule. Bind tokens to
//! addresses where the network proves them (HTTP), and keep their lives short where it does not (UDP).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod claims;
mod key;
mod verify;

pub use claims::{Claims, MAX_LIFETIME_S};
pub use key::{KeyError, SigningKey, VerifyingKey};
pub use verify::{LEEWAY_S, MAX_KEYS, Presented, Refused, Verifier};
