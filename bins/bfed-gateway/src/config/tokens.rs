//! `[tokens]`: what clients of the native network must present.

use bfed::authorise::Right;
use bfed_token::{MAX_KEYS, VerifyingKey};
use daemon_kit::reader::{At, Section};
use daemon_kit::value::text;

use crate::native::{NetworkConfig, TokensConfig};

const WANTS_RIGHTS: &str = "some of [\"join\", \"publish\"]";
const WANTS_KEYS: &str =
    "public keys such as [\"k4.public.AAAA...\"], from `bfed-gateway token key`";

pub(super) fn tokens(section: Section<'_, '_>, network: &NetworkConfig) -> TokensConfig {
    let keys = section.list("keys", WANTS_KEYS, |value| {
        let text = text(value)?;
        text.parse::<VerifyingKey>()
            .map_err(|_| "is not a public key".to_owned())
    });
    let required = section.list("required", WANTS_RIGHTS, |value| {
        match text(value)?.as_str() {
            "join" => Ok(Right::Join),
            "publish" => Ok(Right::Publish),
            word => Err(format!("{word:?} is no right that a token grants")),
        }
    });
    let token_file = section.get("token-file", "the path of a file with a token", text);
    let offset = section.offset_of("required");
    let keys: Vec<VerifyingKey> = values(keys);
    let required: Vec<Right> = values(required);
    if keys.len() > MAX_KEYS {
        let wrong =
            format!("names more than {MAX_KEYS}, and each forged token is checked against each");
        section.complain(section.offset_of("keys"), "keys", wrong, "write fewer");
    }
    if keys.is_empty() && !required.is_empty() {
        section.complain(
            offset,
            "required",
            "requires tokens, and there is no key",
            format!("write keys = {WANTS_KEYS}"),
        );
    }
    if required.contains(&Right::Publish) && !matches!(network, NetworkConfig::Http(_)) {
        let wrong = "requires tokens of sources, which have no servers outside of HTTP networks";
        section.complain(offset, "required", wrong, "leave \"publish\" out");
    }
    section.finish();
    TokensConfig {
        keys,
        required,
        token_file: token_file.map(|at| at.value.into()),
    }
}

fn values<T>(listed: Option<At<Vec<At<T>>>>) -> Vec<T> {
    let listed = listed.into_iter().flat_map(|listed| listed.value);
    listed.map(|at| at.value).collect()
}
