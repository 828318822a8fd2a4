//! Keys, in the text form of PASERK: `k4.secret.` and `k4.public.`.

use core::fmt;
use core::str::FromStr;

use bfed::BnNum;
use bfed::wire::client::Token;
use pasetors::keys::{AsymmetricKeyPair, AsymmetricPublicKey, AsymmetricSecretKey, Generate};
use pasetors::paserk::FormatAsPaserk;
use pasetors::version4::{PublicToken, V4};

use crate::claims::Claims;

/// Why a key or a token cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not a key of that kind.
    #[error("not a key such as {0}...")]
    Malformed(&'static str),
    /// The system has no entropy.
    #[error("the system has no random bytes")]
    Entropy,
    /// The claims name no right, expire before they begin, or make a token that is too long.
    #[error("the claims name no right, end before they begin, or are too long for a token")]
    Claims,
}

/// A key that signs tokens. It is secret, and not shown by `Debug`.
pub struct SigningKey(AsymmetricSecretKey<V4>);

/// A key that verifies tokens. It is public.
#[derive(Clone, PartialEq)]
pub struct VerifyingKey(pub(crate) AsymmetricPublicKey<V4>);

/// Returns what is signed beside a token: the network that it is for.
pub(crate) fn assertion(network: BnNum) -> String {
    format!("bfed network {network}")
}

impl SigningKey {
    /// Creates a key from the system's entropy.
    ///
    /// # Errors
    /// There is none.
    pub fn generate() -> Result<Self, KeyError> {
        let pair = AsymmetricKeyPair::<V4>::generate().map_err(|_| KeyError::Entropy)?;
        Ok(SigningKey(pair.secret))
    }

    /// Returns the key as text, for a file that only its owner may read.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = FormatAsPaserk::fmt(&self.0, &mut text);
        text
    }

    /// Returns the key that verifies what this one signs.
    ///
    /// # Errors
    /// The two halves of the key do not fit.
    pub fn verifying_key(&self) -> Result<VerifyingKey, KeyError> {
        let public = AsymmetricPublicKey::<V4>::try_from(&self.0);
        public
            .map(VerifyingKey)
            .map_err(|_| KeyError::Malformed("k4.secret."))
    }

    /// Signs a token for clients of a network.
    ///
    /// # Errors
    /// [`KeyError::Claims`].
    pub fn issue(&self, network: BnNum, claims: &Claims) -> Result<Token, KeyError> {
        if claims.rights.is_empty() || claims.expires_s <= claims.not_before_s {
            return Err(KeyError::Claims);
        }
        let payload = claims.to_json().ok_or(KeyError::Claims)?;
        let assertion = assertion(network);
        let signed = PublicToken::sign(
            &self.0,
            payload.as_bytes(),
            None,
            Some(assertion.as_bytes()),
        );
        let text = signed.map_err(|_| KeyError::Claims)?;
        Token::new(&text).ok_or(KeyError::Claims)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = KeyError::Malformed("k4.secret.");
        let key = AsymmetricSecretKey::<V4>::try_from(text).map_err(|_| wrong)?;
        Ok(SigningKey(key))
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = KeyError::Malformed("k4.public.");
        let key = AsymmetricPublicKey::<V4>::try_from(text).map_err(|_| wrong)?;
        Ok(VerifyingKey(key))
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        FormatAsPaserk::fmt(&self.0, &mut text)?;
        f.write_str(&text)
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
