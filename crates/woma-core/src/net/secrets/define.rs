//! Secrets as operators and callers define them, checked once.

use std::sync::Arc;

use super::{Places, Secret, SecretValue};
use crate::model::NewSecret;
use crate::net::egress::NetworkRules;

/// Length of a value, in bytes. A shorter one would be found where it is not meant.
const VALUE_BYTES_MIN: usize = 8;
const VALUE_BYTES_MAX: usize = 4 * 1024;
const NAME_BYTES_MAX: usize = 64;
/// Hosts of one secret.
const HOSTS_MAX: usize = 32;

/// Variables that sessions and their programs have a meaning for already.
const TAKEN: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TERM",
    "PATH",
    "TMPDIR",
    "COLUMNS",
    "NO_COLOR",
    "IPYTHONDIR",
    "MPLCONFIGDIR",
    "NODE_OPTIONS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "AWS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "BASH_ENV",
    "ENV",
    "IFS",
];
const TAKEN_STARTS: &[&str] = &["LD_", "PYTHON", "XDG_", "GIT_SSL", "GRPC_DEFAULT_SSL", "WOMA_"];

/// A secret that cannot be used. No message has the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret `{name}` cannot be used: {reason}")]
pub struct BadSecret {
    name: String,
    reason: String,
}

impl BadSecret {
    pub const HINT: &'static str = "a secret has a name such as OPENAI_API_KEY, a value, and hosts such as \
        `api.example.com` or `*.example.com:8443`; `places` is any of headers, path, query, body";

    pub(super) fn new(name: &str, reason: impl Into<String>) -> Self {
        let name = name.chars().take(NAME_BYTES_MAX).collect::<String>().escape_debug().to_string();
        Self { name, reason: reason.into() }
    }
}

impl NewSecret {
    pub(crate) fn check(self) -> Result<Arc<Secret>, BadSecret> {
        let bad = |reason: String| BadSecret::new(&self.name, reason);
        check_name(&self.name).map_err(|reason| bad(reason.to_owned()))?;
        check_value(&self.value).map_err(bad)?;
        if self.hosts.is_empty() {
            return Err(bad("it has no hosts; name those that may receive it".to_owned()));
        }
        if self.hosts.len() > HOSTS_MAX {
            return Err(bad(format!("it has more than {HOSTS_MAX} hosts")));
        }
        let hosts: Vec<_> = self.hosts.iter().map(|host| with_port(host)).collect();
        let hosts = NetworkRules::of_hosts(hosts.iter().map(String::as_str))
            .map_err(|error| bad(error.to_string()))?;
        if hosts.has_addresses() {
            return Err(bad("it is bound to names of hosts, not to addresses".to_owned()));
        }
        let places = places(&self.places).map_err(bad)?;
        let value = SecretValue(self.value.into());
        Ok(Arc::new(Secret { name: self.name, value, hosts, places }))
    }
}

/// Plain HTTP shows a value to everyone on the way, so it needs its port.
fn with_port(host: &str) -> String {
    let host = host.trim();
    let end = host.rfind(']').map_or(host, |end| host.get(end..).unwrap_or_default());
    if end.contains(':') { host.to_owned() } else { format!("{host}:443") }
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = name.bytes().next().unwrap_or(b'0');
    let upper = name.to_ascii_uppercase();
    if name.len() > NAME_BYTES_MAX || first.is_ascii_digit() || !name.bytes().all(known) {
        return Err(
            "a name has up to 64 letters, digits and underscores, and begins with no digit",
        );
    }
    if TAKEN.contains(&upper.as_str()) || TAKEN_STARTS.iter().any(|start| upper.starts_with(start))
    {
        return Err("programs of a session use the variable of this name for something else");
    }
    Ok(())
}

fn check_value(value: &str) -> Result<(), String> {
    if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len()) {
        return Err(format!("a value has {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} bytes"));
    }
    if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || value.trim() != value {
        return Err(
            "a value is one line of visible ASCII characters without spaces around it; a final \
                    line break of a file is taken off"
                .to_owned(),
        );
    }
    if value.contains(super::PLACEHOLDER_START) {
        return Err("its value is a placeholder of a session".to_owned());
    }
    Ok(())
}

fn places(named: &[String]) -> Result<Places, String> {
    let mut places = Places { headers: named.is_empty(), ..Places::default() };
    for place in named {
        match place.as_str() {
            "headers" => places.headers = true,
            "path" => places.path = true,
            "query" => places.query = true,
            "body" => places.body = true,
            other => {
                let other = other.chars().take(40).collect::<String>();
                return Err(format!(
                    "`{}` is no place of a request; there are headers, path, query and body",
                    other.escape_debug()
                ));
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::egress::Host;

    pub(crate) fn secret(name: &str, value: &str, hosts: &[&str], places: &[&str]) -> NewSecret {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let (name, value) = (name.to_owned(), value.to_owned());
        NewSecret { name, value, hosts: owned(hosts), places: owned(places) }
    }

    #[test]
    fn a_secret_is_for_its_hosts_over_tls_unless_it_names_another_port() {
        let made = secret("KEY", "12345678", &["a.test", "*.b.test:8443", "c.test:80+443"], &[]);
        let made = made.check().unwrap();
        for (host, port, is_encrypted, is_for) in [
            ("a.test", 443, true, true),
            ("a.test", 443, false, false),
            ("a.test", 80, false, false),
            ("x.a.test", 443, true, false),
            ("x.b.test", 8443, true, true),
            ("b.test", 8443, true, false),
            ("c.test", 80, false, true),
            ("c.test", 443, false, false),
            ("d.test", 443, true, false),
        ] {
            let parsed = Host::parse(host.as_bytes()).unwrap();
            assert_eq!(made.is_for(&parsed, port, is_encrypted), is_for, "{host}:{port}");
        }
        assert!(made.places.headers && !made.places.query);
    }

    #[test]
    fn refuses_what_cannot_be_a_secret() {
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        let many: Vec<_> = (0..=HOSTS_MAX).map(|host| format!("h{host}.test")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let good = "12345678";
        for (name, value, hosts, places, part) in [
            ("", good, &["a.test"][..], &[][..], "a name has"),
            ("1KEY", good, &["a.test"], &[], "a name has"),
            ("A-B", good, &["a.test"], &[], "a name has"),
            ("PATH", good, &["a.test"], &[], "something else"),
            ("ld_preload", good, &["a.test"], &[], "something else"),
            ("KEY", "1234567", &["a.test"], &[], "8 to 4096"),
            ("KEY", &long, &["a.test"], &[], "8 to 4096"),
            ("KEY", "12345678\r\nX: y", &["a.test"], &[], "one line"),
            ("KEY", "1234567 ", &["a.test"], &[], "one line"),
            ("KEY", "woma-secret-0123", &["a.test"], &[], "placeholder"),
            ("KEY", good, &[], &[], "no hosts"),
            ("KEY", good, &many, &[], "more than 32"),
            ("KEY", good, &["*"], &[], "open"),
            ("KEY", good, &["https://a.test"], &[], "without a scheme"),
            ("KEY", good, &["93.184.215.14"], &[], "addresses"),
            ("KEY", good, &["[2606:4700::1]"], &[], "addresses"),
            ("KEY", good, &["a.test"], &["cookie"], "no place"),
        ] {
            let error = secret(name, value, hosts, places).check().unwrap_err().to_string();
            assert!(error.contains(part), "{name} {part}: {error}");
            assert!(!error.contains("12345678") || value == "12345678", "{error}");
        }
        let shown = format!("{:?}", secret("KEY", "a-value-of-it", &["a.test"], &[]));
        assert!(!shown.contains("a-value-of-it"), "{shown}");
        let checked = secret("KEY", "a-value-of-it", &["a.test"], &[]).check().unwrap();
        assert!(!format!("{checked:?}").contains("a-value-of-it"));
    }
}
