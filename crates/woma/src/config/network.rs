//! Networks of trusted proxies: an address, or an address with the length of its prefix (CIDR).

use std::net::IpAddr;

/// A network of IP addresses. An IPv4-mapped IPv6 address counts as its IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    /// Parses `10.0.0.1`, `10.0.0.0/8`, `::1` or `fd00::/8`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
        let bits = width(address);
        let prefix_bits = match prefix {
            // Digits only: `parse` alone would accept a sign.
            Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix.parse().ok().filter(|length| *length <= bits)?
            }
            Some(_) => return None,
            None => bits,
        };
        let canonical = address.to_canonical();
        // `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
        let prefix_bits = prefix_bits.checked_sub(bits - width(canonical))?;
        Some(Self { address: canonical, prefix_bits })
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let shared_bits = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        shared_bits >= self.prefix_bits
    }
}

fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => u32::BITS,
        IpAddr::V6(_) => u128::BITS,
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn an_address_is_in_its_network_and_in_no_other() {
        let table = [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.0/8", "10.255.3.4", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("192.168.4.0/22", "192.168.7.255", true),
            ("192.168.4.0/22", "192.168.8.0", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe00::1", false),
            ("::1", "::1", true),
            ("[::1]", "::1", true),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "10.1.1.1", true),
            ("::ffff:10.0.0.0/104", "11.1.1.1", false),
        ];
        for (network, address, is_in) in table {
            let network = Network::parse(network).unwrap_or_else(|| panic!("{network}"));
            assert_eq!(network.contains(address.parse().unwrap()), is_in, "{network:?} {address}");
        }
    }

    #[test]
    fn refuses_text_that_is_not_a_network() {
        for text in ["", "proxy", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0.0/", "10.0.0/8", "::/129"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
