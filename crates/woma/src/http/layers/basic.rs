//! A key in the address of a server: `http://woma:KEY@host/sse`. Clients that cannot send headers of
//! their own turn it into Basic authentication, whose password then is the key.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// User name that says that the password is a key. Others are for proxies.
const USER: &str = "woma";
const API_KEY_HEADER: &str = "x-api-key";

/// Hands the password to the authentication, unless the request has a key already.
pub(crate) fn password_as_key(mut request: Request) -> Request {
    let headers = request.headers_mut();
    if !headers.contains_key(API_KEY_HEADER)
        && let Some(mut key) = headers.get(AUTHORIZATION).and_then(password)
    {
        key.set_sensitive(true);
        headers.insert(API_KEY_HEADER, key);
    }
    request
}

fn password(value: &HeaderValue) -> Option<HeaderValue> {
    let (scheme, encoded) = value.to_str().ok()?.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    HeaderValue::from_str(password).ok().filter(|_| user == USER && !password.is_empty())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::password;

    #[test]
    fn only_the_own_user_has_a_key_as_password() {
        let of = |text: &str| {
            let header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text)));
            password(&header.unwrap())
        };
        assert_eq!(of("woma:k-1").unwrap(), "k-1");
        assert_eq!(of("woma:a:b").unwrap(), "a:b");
        for other in ["proxy:k-1", "woma:", "woma", ":k-1", "woma:\n"] {
            assert_eq!(of(other), None, "{other}");
        }
        for header in ["Basic", "Basic %%%", "Bearer d29tYTprLTE=", "Basic /w=="] {
            assert_eq!(password(&HeaderValue::from_static(header)), None, "{header}");
        }
    }
}
