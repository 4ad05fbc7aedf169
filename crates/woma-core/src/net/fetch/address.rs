//! Classification of IP addresses: the base of the SSRF guard.
//!
//! IPv4 is public unless a table says otherwise. IPv6 is the other way round: only global unicast
//! (`2000::/3`) can be public, so ranges that are assigned later are refused by default.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressClass {
    Public,
    /// In a network of the operator, who may allow it.
    Private(&'static str),
    /// Always refused: not a host, or an alternative notation of another address.
    Never(&'static str),
}

/// Reason why an address is refused to callers; `None` if it is public.
pub fn refused(address: IpAddr) -> Option<&'static str> {
    match classify(address) {
        AddressClass::Public => None,
        AddressClass::Private(why) | AddressClass::Never(why) => Some(why),
    }
}

/// Whether no setting makes an address reachable: metadata services, and addresses of no host.
pub(in crate::net) fn is_never(address: IpAddr) -> bool {
    matches!(classify(address), AddressClass::Never(_))
}

pub(super) fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

const METADATA: AddressClass = AddressClass::Never("a cloud metadata service");
const DOCUMENTATION: AddressClass = AddressClass::Never("an address reserved for documentation");
/// Gateways and proxies give names such addresses to see their connections.
const STAND_IN: AddressClass = AddressClass::Private("an address reserved for documentation");

/// The first match decides: single addresses come before the network that contains them.
const V4: &[([u8; 4], u32, AddressClass)] = &[
    ([169, 254, 169, 254], 32, METADATA),
    ([169, 254, 170, 2], 32, METADATA), // AWS: credentials of a container
    ([100, 100, 100, 200], 32, METADATA), // Alibaba
    ([168, 63, 129, 16], 32, METADATA), // Azure, at a public address
    ([192, 0, 0, 192], 32, METADATA),   // Oracle
    ([0, 0, 0, 0], 8, AddressClass::Never("an address of \"this network\"")),
    ([127, 0, 0, 0], 8, AddressClass::Private("a loopback address")),
    ([10, 0, 0, 0], 8, AddressClass::Private("a private address")),
    ([172, 16, 0, 0], 12, AddressClass::Private("a private address")),
    ([192, 168, 0, 0], 16, AddressClass::Private("a private address")),
    ([100, 64, 0, 0], 10, AddressClass::Private("an address of a provider's internal network")),
    ([169, 254, 0, 0], 16, AddressClass::Never("a link-local address")),
    ([192, 0, 0, 0], 24, AddressClass::Never("an address reserved for protocols")),
    ([192, 0, 2, 0], 24, STAND_IN),
    ([198, 51, 100, 0], 24, STAND_IN),
    ([203, 0, 113, 0], 24, STAND_IN),
    ([192, 88, 99, 0], 24, AddressClass::Never("a relay from IPv6 to IPv4")),
    ([198, 18, 0, 0], 15, AddressClass::Private("an address reserved for benchmarks")),
    ([224, 0, 0, 0], 4, AddressClass::Never("a multicast address")),
    ([255, 255, 255, 255], 32, AddressClass::Never("the broadcast address")),
    ([240, 0, 0, 0], 4, AddressClass::Never("a reserved address")),
];

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    let within = |network: [u8; 4], length: u32| {
        (bits ^ u32::from_be_bytes(network)).leading_zeros() >= length
    };
    let found = V4.iter().find(|(network, length, _)| within(*network, *length));
    found.map_or(AddressClass::Public, |(_, _, class)| *class)
}

/// As [`V4`]. Missing segments are zero.
const V6: &[(&[u16], u32, AddressClass)] = &[
    (&[0xfd00, 0x0ec2], 32, METADATA), // AWS
    (&[0xfd20, 0x00ce], 32, METADATA), // Google
    (&[0, 0, 0, 0, 0, 0, 0, 0], 128, AddressClass::Never("the unspecified address")),
    (&[0, 0, 0, 0, 0, 0, 0, 1], 128, AddressClass::Private("a loopback address")),
    (&[0, 0, 0, 0, 0, 0xffff], 96, AddressClass::Never("an IPv4 address written as IPv6")),
    (&[0, 0, 0, 0, 0xffff, 0], 96, AddressClass::Never("an IPv4 address translated to IPv6")),
    (&[0, 0, 0, 0, 0, 0], 96, AddressClass::Never("an IPv4 address written as IPv6")),
    (&[0x0064, 0xff9b], 96, AddressClass::Never("an address behind NAT64")),
    (&[0x0064, 0xff9b, 1], 48, AddressClass::Never("an address behind NAT64")),
    (&[0x0100], 64, AddressClass::Never("an address whose packets are discarded")),
    (&[0xfc00], 7, AddressClass::Private("a private address")),
    (&[0xfe80], 10, AddressClass::Never("a link-local address")),
    (&[0xfec0], 10, AddressClass::Never("a site-local address")),
    (&[0xff00], 8, AddressClass::Never("a multicast address")),
    (&[0x2001], 32, AddressClass::Never("an address behind Teredo")),
    (&[0x2001, 0x0002], 48, AddressClass::Never("an address reserved for benchmarks")),
    (&[0x2001, 0x0010], 28, AddressClass::Never("an ORCHID identifier, not an address")),
    (&[0x2001, 0x0020], 28, AddressClass::Never("an ORCHID identifier, not an address")),
    (&[0x2001], 23, AddressClass::Never("an address reserved for protocols")),
    (&[0x2001, 0x0db8], 32, DOCUMENTATION),
    (&[0x3fff], 20, DOCUMENTATION),
    (&[0x2002], 16, AddressClass::Never("an address behind 6to4")),
    (&[0x2000], 3, AddressClass::Public),
];

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let bits = address.to_bits();
    let within = |network: &[u16], length: u32| {
        let mut segments = [0; 8];
        segments[..network.len()].copy_from_slice(network);
        (bits ^ Ipv6Addr::from(segments).to_bits()).leading_zeros() >= length
    };
    let found = V6.iter().find(|(network, length, _)| within(network, *length));
    let class = found.map_or(AddressClass::Never("not a public address"), |(_, _, class)| *class);
    // An embedded IPv4 address gives the better reason, and for ISATAP the only one. A private
    // address inside does not make the outer one private: no setting allows it.
    match (class, embedded(address).and_then(|inner| refused(IpAddr::V4(inner)))) {
        (AddressClass::Private(why), _) => AddressClass::Private(why),
        (METADATA, _) => METADATA,
        (_, Some(why)) => AddressClass::Never(why),
        (class, None) => class,
    }
}

/// IPv4 address to which a gateway or tunnel would translate this one.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [head @ .., last_high, last_low] = address.segments();
    let inner = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match head {
        // Without a high half it is `::`, `::1` and the like.
        [0, 0, 0, 0, 0, 0] => (last_high != 0).then(|| inner(last_high, last_low)),
        // Mapped, translated, NAT64, and ISATAP below any prefix.
        [0, 0, 0, 0, 0, 0xffff]
        | [0, 0, 0, 0, 0xffff, 0]
        | [0x64, 0xff9b, ..]
        | [.., 0 | 0x0200, 0x5efe] => Some(inner(last_high, last_low)),
        [0x2002, high, low, ..] => Some(inner(high, low)),
        // Teredo embeds the client with inverted bits, and its server unchanged.
        [0x2001, 0, server_high, server_low, ..] => {
            let server = inner(server_high, server_low);
            let refused = refused(IpAddr::V4(server)).is_some();
            Some(if refused { server } else { inner(!last_high, !last_low) })
        }
        _ => None,
    }
}
