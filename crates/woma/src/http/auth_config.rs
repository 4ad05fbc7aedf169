//! Authentication as configured: keys, tokens, allowed hosts and origins.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::StatusCode;
use woma_core::Quota;
use woma_core::keys::{Authenticator, EXPOSED_KEY_BYTES_MIN, FixedKey, KeyRing};

use super::layers::auth::jwt::{KeySource, TokenSettings, Tokens};
use super::layers::auth::{self, AuthSettings, AuthState};
use super::layers::guard::{Guard, Names};
use crate::config::Config;
use crate::config::types::{KeySet, TrustedProxies};
use crate::terminal::tell;

/// Keys and names that are accepted. Built first: a server without a usable key must not start.
#[derive(Debug)]
pub(crate) struct AuthConfig {
    pub(super) auth_state: Arc<AuthState>,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    public_base_url: Option<String>,
    proxies: Arc<TrustedProxies>,
}

impl AuthConfig {
    pub(crate) fn new(config: &Config, ring: Arc<KeyRing>) -> Result<Self, Box<dyn Error>> {
        let fixed = config.api_key.as_ref().map(|key| FixedKey::new(key.expose())).transpose()?;
        let tokens = tokens(config)?;
        if config.require_api_key && fixed.is_none() && tokens.is_none() && ring.is_empty()? {
            return Err(
                "REQUIRE_API_KEY is set, and there is no key: set API_KEY or API_KEY_FILE, \
                        or create one with `woma keys create NAME`"
                    .into(),
            );
        }
        let never_open = config.require_api_key || tokens.is_some();
        let authenticator = Authenticator::new(fixed, ring, never_open);
        if authenticator.has_guessable_key() {
            tell("woma: the API key is short enough to be guessed: use 24 characters or more");
        }
        let settings = AuthSettings {
            denied: StatusCode::from_u16(config.auth_failure_status.code())?,
            public_base_url: config.public_base_url.clone(),
            is_public: match config.private_downloads {
                true => auth::is_public_but_downloads,
                false => auth::is_public,
            },
        };
        Ok(Self {
            auth_state: Arc::new(AuthState::new(authenticator, tokens, settings)),
            allowed_hosts: config.allowed_hosts.clone(),
            allowed_origins: config.allowed_origins.clone(),
            public_base_url: config.public_base_url.clone(),
            proxies: Arc::new(config.trust_proxy.clone()),
        })
    }

    /// Rejects a server on a public address without keys, unless `ALLOW_OPEN` is set, or with a key
    /// that is short.
    pub(crate) fn check_exposure(&self, config: &Config) -> Result<(), Box<dyn Error>> {
        let host = config.host.trim_matches(['[', ']']);
        let is_local = host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
        let is_open = self.is_open()?;
        if is_open && config.private_downloads {
            tell("woma: PRIVATE_DOWNLOADS has no effect: this server has no keys");
        }
        if is_local {
            return Ok(());
        }
        if matches!(*self.proxies, TrustedProxies::Anyone) {
            tell(&format!(
                "woma: TRUST_PROXY=true believes everyone who reaches {host}: list the addresses of \
                 the proxies instead, such as TRUST_PROXY=10.0.0.0/8, if clients can reach it too"
            ));
        }
        if self.auth_state.authenticator().has_short_key() {
            return Err(format!(
                "the API key is shorter than {EXPOSED_KEY_BYTES_MIN} characters, and everybody who \
                 reaches {host} can guess: make one with `openssl rand -hex 24`, or unset API_KEY \
                 and use `woma keys create NAME`"
            )
            .into());
        }
        if !is_open {
            return Ok(());
        }
        if !config.allow_open {
            return Err(format!(
                "without a key, everybody who reaches {host} could run code here: set API_KEY, create \
                 a key with `woma keys create NAME`, or set ALLOW_OPEN=true if that is intended"
            )
            .into());
        }
        tell(&format!(
            "woma: WARNING: this server needs no key, and {host} is not only this machine: everybody \
             who reaches it can run code"
        ));
        Ok(())
    }

    /// Whether requests need no key.
    pub(crate) fn is_open(&self) -> Result<bool, Box<dyn Error>> {
        Ok(self.auth_state.authenticator().is_open()?)
    }

    /// The verifier of tokens, if `JWT_ISSUER` is set.
    pub(super) fn tokens(&self) -> Option<&Tokens> {
        self.auth_state.tokens()
    }

    /// Starts the task that reads the keys of the token issuer ahead of the first token and keeps
    /// them fresh. Its log says when they cannot be read.
    pub(crate) fn watch_issuer(&self) {
        if let Some(tokens) = self.tokens().cloned() {
            tokio::spawn(async move { tokens.keep_fresh().await });
        }
    }

    pub(super) fn proxies(&self) -> Arc<TrustedProxies> {
        Arc::clone(&self.proxies)
    }

    pub(super) fn guard(&self, bound: SocketAddr) -> Result<Arc<Guard>, Box<dyn Error>> {
        let names = Names {
            bound: &[bound.ip()],
            allowed_hosts: &self.allowed_hosts,
            allowed_origins: &self.allowed_origins,
            public_base_url: self.public_base_url.as_deref(),
        };
        Ok(Arc::new(Guard::new(names)?))
    }

    /// Named keys of this server.
    pub(super) fn key_ring(&self) -> &Arc<KeyRing> {
        self.auth_state.authenticator().ring()
    }
}

fn tokens(config: &Config) -> Result<Option<Tokens>, Box<dyn Error>> {
    let (Some(issuer), Some(audience)) = (&config.jwt_issuer, &config.jwt_audience) else {
        return Ok(None);
    };
    let keys = match &config.jwt_jwks {
        Some(KeySet::Url(url)) => KeySource::parse(url)?,
        Some(KeySet::File(path)) => KeySource::File(path.clone()),
        None => KeySource::Discovered,
    };
    let settings = TokenSettings {
        issuer: issuer.clone(),
        audiences: audience.split(',').map(|name| name.trim().to_owned()).collect(),
        keys,
        quota: Quota::default(),
    };
    Ok(Some(Tokens::new(settings)?))
}
