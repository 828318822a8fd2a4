//! Tokens in HTTP requests.

use bfed::wire::client::Token;
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

    /// Appends a token from the query to the target of a redirection.
    pub(super) fn keep<B>(&self, mut response: Response<B>) -> Response<B> {
        if let Some(token) = self.as_str().filter(|_| self.in_query)
            && let Some(target) = response
                .headers()
                .get(LOCATION)
                .and_then(|value| value.to_str().ok())
        {
            let mark = if target.contains('?') { '&' } else { '?' };
            if let Ok(value) = HeaderValue::from_str(&format!("{target}{mark}token={token}")) {
                response.headers_mut().insert(LOCATION, value);
            }
        }
        response
    }
}
