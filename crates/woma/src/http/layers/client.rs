//! The client behind proxies: its address, and the scheme that it used. Headers of the request are
//! believed only if a trusted proxy (`TRUST_PROXY`) has sent them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;

use crate::config::types::TrustedProxies;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The client of a request, as far as trusted proxies tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientInfo {
    pub(crate) address: IpAddr,
    /// Whether a trusted proxy was reached by HTTPS.
    pub(crate) is_https: bool,
}

impl ClientInfo {
    /// A client of an unknown address, for requests that did not come through a listener.
    pub(crate) const UNKNOWN: Self =
        Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), is_https: false };

    /// The client of a request, as the layer has found it.
    pub(crate) fn of(request: &Request) -> Self {
        request.extensions().get().copied().unwrap_or(Self::UNKNOWN)
    }

    /// The client of a request from `peer` with these headers.
    pub(crate) fn find(proxies: &TrustedProxies, peer: IpAddr, headers: &HeaderMap) -> Self {
        let peer = peer.to_canonical();
        if !is_trusted(proxies, peer) {
            return Self { address: peer, is_https: false };
        }
        // With several proxies, the one that the client reached is the first.
        let proto = headers.get(FORWARDED_PROTO).and_then(|value| value.to_str().ok());
        let first = proto.and_then(|text| text.split(',').next()).unwrap_or_default();
        let is_https = first.trim().eq_ignore_ascii_case("https");
        Self { address: address(proxies, peer, headers), is_https }
    }
}

/// Adds the [`ClientInfo`] to a request. Must be outside of every layer that uses it.
pub(crate) fn identify(proxies: &TrustedProxies, mut request: Request) -> Request {
    if let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>() {
        let found = ClientInfo::find(proxies, peer.ip(), request.headers());
        request.extensions_mut().insert(found);
    }
    request
}

fn is_trusted(proxies: &TrustedProxies, address: IpAddr) -> bool {
    match proxies {
        TrustedProxies::None => false,
        TrustedProxies::Anyone => true,
        TrustedProxies::Listed(networks) => networks.iter().any(|one| one.contains(address)),
    }
}

/// The last address in X-Forwarded-For that is not a trusted proxy. Each proxy appends the address
/// that connected to it, so everything before the first untrusted one may be forged.
fn address(proxies: &TrustedProxies, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let lines: Vec<&[u8]> =
        headers.get_all(FORWARDED_FOR).iter().map(axum::http::HeaderValue::as_bytes).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b','));
    let mut nearest = peer;
    for hop in hops {
        // A proxy that names no address hides what is beyond it.
        let Some(address) = std::str::from_utf8(hop).ok().and_then(parse_hop) else { break };
        nearest = address;
        // `true` trusts one proxy: the peer.
        if matches!(proxies, TrustedProxies::Anyone) || !is_trusted(proxies, address) {
            break;
        }
    }
    nearest
}

/// An address, also with a port: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = plain.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|hop| hop.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::ClientInfo;
    use crate::config::network::Network;
    use crate::config::types::TrustedProxies;

    fn listed(networks: &[&str]) -> TrustedProxies {
        TrustedProxies::Listed(networks.iter().map(|text| Network::parse(text).unwrap()).collect())
    }

    fn found(proxies: &TrustedProxies, peer: &str, headers: &[(&'static str, &str)]) -> ClientInfo {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            map.append(HeaderName::from_static(name), value);
        }
        ClientInfo::find(proxies, peer.parse().unwrap(), &map)
    }

    #[test]
    fn the_client_is_the_last_hop_that_is_no_trusted_proxy() {
        let proxies = listed(&["10.0.0.0/8", "fd00::/8"]);
        let table: &[(&str, &[&str], &str)] = &[
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7, 10.0.0.2"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7,10.0.0.2 ,10.9.9.9"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7", "10.0.0.2"], "203.0.113.7"),
            // The client has sent the first one itself.
            ("10.0.0.1", &["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["10.0.0.99, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7:4711"], "203.0.113.7"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["::ffff:203.0.113.7"], "203.0.113.7"),
            ("::ffff:10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("fd00::1", &["203.0.113.7"], "203.0.113.7"),
            // What cannot be read ends the walk at the hop before.
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["\u{e9}"], "10.0.0.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            // Only proxies.
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Not a proxy: the header is its own invention.
            ("203.0.113.9", &["198.51.100.1"], "203.0.113.9"),
        ];
        for (peer, lines, client) in table {
            let headers: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
            let address = found(&proxies, peer, &headers).address;
            assert_eq!(address.to_string(), *client, "{peer} {lines:?}");
        }
    }

    #[test]
    fn true_trusts_the_peer_and_nobody_beyond_it() {
        let headers = [("x-forwarded-for", "10.0.0.1, 10.0.0.2")];
        let client = found(&TrustedProxies::Anyone, "192.0.2.1", &headers);
        assert_eq!(client.address.to_string(), "10.0.0.2");
        let client = found(&TrustedProxies::None, "192.0.2.1", &headers);
        assert_eq!(client.address.to_string(), "192.0.2.1");
    }

    #[test]
    fn the_scheme_is_believed_from_a_trusted_proxy_only() {
        let proxies = listed(&["10.0.0.1"]);
        for (peer, proto, is_https) in [
            ("10.0.0.1", "https", true),
            ("10.0.0.1", "HTTPS", true),
            ("10.0.0.1", "https, http", true),
            ("10.0.0.1", "http", false),
            ("10.0.0.1", "javascript", false),
            ("10.0.0.2", "https", false),
        ] {
            let client = found(&proxies, peer, &[("x-forwarded-proto", proto)]);
            assert_eq!(client.is_https, is_https, "{peer} {proto}");
        }
    }
}
