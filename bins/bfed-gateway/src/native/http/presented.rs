//! Tokens in HTTP requests.

use bfed::wire::client::Token;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderValue, LOCATION};
use hyper::{Request, Response};

/// The token of a request: in the header `Authorization: Bearer TOKEN`, or else in the query as `token=TOKEN`.
#[derive(Clone, Default, Debug)]
pub(super) struct Presented {
    token: Option<Token>,
    /// Whether it stood in the query: then it is repeated in redirections, because players do not repeat it.
    in_query: bool,
}

impl Presented {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let header = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let bearer = header.and_then(|value| value.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        if let Some((_, token)) = bearer {
            return Presented {
                token: Token::new(token.trim()),
                in_query: false,
            };
        }
        let query = request.uri().query().unwrap_or("");
        let token = query
            .split('&')
            .find_map(|parameter| parameter.strip_prefix("token="));
        Presented {
            token: token.and_then(Token::new),
            in_query: true,
        }
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.token.clone()
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        self.token.as_ref().map(Token::as_str)
    }

    /// Appends a token from the query to the addresses in a playlist of HLS: players do not repeat it there either.
    pub(super) fn keep_in_playlist(&self, playlist: Bytes) -> Bytes {
        let is_plain = |token: &&str| {
            token
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let token = self.as_str().filter(|_| self.in_query).filter(is_plain);
        let (Some(token), Ok(text)) = (token, std::str::from_utf8(&playlist)) else {
            return playlist;
        };
        let mut kept = String::with_capacity(2 * text.len());
        for line in text.lines() {
            let address = match line.split_once("URI=\"") {
                Some((before, rest)) => rest
                    .split_once('"')
                    .map(|(uri, after)| (before, uri, after)),
                None if line.starts_with('#') || line.is_empty() => None,
                None => Some(("", line, "")),
            };
            match address {
                Some(("", uri, "")) => kept.extend([uri, "?token=", token]),
                Some((before, uri, after)) => {
                    kept.extend([before, "URI=\"", uri, "?token=", token, "\"", after]);
                }
                None => kept.push_str(line),
            }
            kept.push('\n');
        }
        kept.into()
    }

    /// Appends a token from the query to the target of a redirection.
    pub(super) fn keep<B>(&self, mut response: Response<B>) -> Response<B> {
        if let Some(token) = self.as_str().filter(|_| self.in_query)
            && let Some(target) = response
                .headers()
                .get(LOCATION)
                .and_then(|value| value.to_str().ok())
        {
            let query = target.split_once('?').map_or("", |(_, query)| query);
            if query.split('&').any(|one| one.starts_with("token=")) {
                return response;
            }
            let mark = if target.contains('?') { '&' } else { '?' };
            if let Ok(value) = HeaderValue::from_str(&format!("{target}{mark}token={token}")) {
                response.headers_mut().insert(LOCATION, value);
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presented(uri: &str) -> Presented {
        let request = Request::builder().uri(uri).body(()).expect("a request");
        Presented::of(&request)
    }

    #[test]
    fn a_token_in_the_query_is_in_every_address_of_a_playlist() {
        let playlist = "#EXTM3U\n#EXT-X-MAP:URI=\"init.0.mp4\"\n#EXTINF:1.0,\n7.m4s\n#EXT-X-PART:DURATION=0.2,URI=\"8.0.m4s\",INDEPENDENT=YES\n";
        let kept = presented("/hls/x/index.m3u8?_HLS_msn=8&token=v4.public.a-b_c")
            .keep_in_playlist(playlist.into());
        let expected = playlist
            .replace(".mp4", ".mp4?token=v4.public.a-b_c")
            .replace(".m4s", ".m4s?token=v4.public.a-b_c");
        assert_eq!(kept, expected);
    }

    #[test]
    fn what_is_no_token_changes_no_playlist() {
        for uri in [
            "/hls/x/index.m3u8",
            "/hls/x/index.m3u8?token=a%22b",
            "/hls/x/index.m3u8?token=",
        ] {
            let kept = presented(uri).keep_in_playlist("7.ts\n".into());
            assert_eq!(kept, "7.ts\n");
        }
    }
}
