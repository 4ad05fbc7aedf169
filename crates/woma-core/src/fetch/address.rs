//! Which addresses may be reached. Everything else stands on this: a name is only as good as what
//! it resolves to.
//!
//! IPv4 is public unless a table says otherwise. IPv6 is the other way round: only global unicast
//! (`2000::/3`) can be public, so a range that is assigned tomorrow is refused today.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of place an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Public,
    /// A network of the operator's own, which the operator may open.
    Private(&'static str),
    /// Nothing to download from, or another way to write an address: refused always.
    Never(&'static str),
}

/// Why this address is refused to callers, or nothing if it is public.
pub fn refused(address: IpAddr) -> Option<&'static str> {
    match place(address) {
        Place::Public => None,
        Place::Private(why) | Place::Never(why) => Some(why),
    }
}

pub(super) fn place(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(address) => place_v4(address),
        IpAddr::V6(address) => place_v6(address),
    }
}

const METADATA: Place = Place::Never("a metadata service of a cloud");
const DOCUMENTATION: Place = Place::Never("an address for documentation");

/// The first match counts: services at one address stand before the network that they are in.
const V4: &[([u8; 4], u32, Place)] = &[
    ([169, 254, 169, 254], 32, METADATA),
    ([169, 254, 170, 2], 32, METADATA), // AWS: credentials of a container
    ([100, 100, 100, 200], 32, METADATA), // Alibaba
    ([168, 63, 129, 16], 32, METADATA), // Azure, at a public address
    ([192, 0, 0, 192], 32, METADATA),   // Oracle
    ([0, 0, 0, 0], 8, Place::Never("an address of \"this network\"")),
    ([127, 0, 0, 0], 8, Place::Private("a loopback address")),
    ([10, 0, 0, 0], 8, Place::Private("a private address")),
    ([172, 16, 0, 0], 12, Place::Private("a private address")),
    ([192, 168, 0, 0], 16, Place::Private("a private address")),
    ([100, 64, 0, 0], 10, Place::Private("an address of a provider's inner network")),
    ([169, 254, 0, 0], 16, Place::Never("a link-local address")),
    ([192, 0, 0, 0], 24, Place::Never("an address reserved for protocols")),
    ([192, 0, 2, 0], 24, DOCUMENTATION),
    ([198, 51, 100, 0], 24, DOCUMENTATION),
    ([203, 0, 113, 0], 24, DOCUMENTATION),
    ([192, 88, 99, 0], 24, Place::Never("a relay from IPv6 to IPv4")),
    ([198, 18, 0, 0], 15, Place::Never("an address for measurements")),
    ([224, 0, 0, 0], 4, Place::Never("a multicast address")),
    ([255, 255, 255, 255], 32, Place::Never("the broadcast address")),
    ([240, 0, 0, 0], 4, Place::Never("a reserved address")),
];

fn place_v4(address: Ipv4Addr) -> Place {
    let bits = address.to_bits();
    let within = |network: [u8; 4], length: u32| {
        (bits ^ u32::from_be_bytes(network)).leading_zeros() >= length
    };
    let found = V4.iter().find(|(network, length, _)| within(*network, *length));
    found.map_or(Place::Public, |(_, _, place)| *place)
}

/// As [`V4`]. Segments that are not named are zero.
const V6: &[(&[u16], u32, Place)] = &[
    (&[0xfd00, 0x0ec2], 32, METADATA), // AWS
    (&[0xfd20, 0x00ce], 32, METADATA), // Google
    (&[0, 0, 0, 0, 0, 0, 0, 0], 128, Place::Never("the unspecified address")),
    (&[0, 0, 0, 0, 0, 0, 0, 1], 128, Place::Private("a loopback address")),
    (&[0, 0, 0, 0, 0, 0xffff], 96, Place::Never("an IPv4 address written as IPv6")),
    (&[0, 0, 0, 0, 0xffff, 0], 96, Place::Never("an IPv4 address translated to IPv6")),
    (&[0, 0, 0, 0, 0, 0], 96, Place::Never("an IPv4 address written as IPv6")),
    (&[0x0064, 0xff9b], 96, Place::Never("an address behind NAT64")),
    (&[0x0064, 0xff9b, 1], 48, Place::Never("an address behind NAT64")),
    (&[0x0100], 64, Place::Never("an address whose packets are discarded")),
    (&[0xfc00], 7, Place::Private("a private address")),
    (&[0xfe80], 10, Place::Never("a link-local address")),
    (&[0xfec0], 10, Place::Never("a site-local address")),
    (&[0xff00], 8, Place::Never("a multicast address")),
    (&[0x2001], 32, Place::Never("an address behind Teredo")),
    (&[0x2001, 0x0002], 48, Place::Never("an address for measurements")),
    (&[0x2001, 0x0010], 28, Place::Never("an identifier of ORCHID, no address")),
    (&[0x2001, 0x0020], 28, Place::Never("an identifier of ORCHID, no address")),
    (&[0x2001], 23, Place::Never("an address reserved for protocols")),
    (&[0x2001, 0x0db8], 32, DOCUMENTATION),
    (&[0x3fff], 20, DOCUMENTATION),
    (&[0x2002], 16, Place::Never("an address behind 6to4")),
    (&[0x2000], 3, Place::Public),
];

fn place_v6(address: Ipv6Addr) -> Place {
    let bits = address.to_bits();
    let within = |network: &[u16], length: u32| {
        let mut segments = [0; 8];
        segments[..network.len()].copy_from_slice(network);
        (bits ^ Ipv6Addr::from(segments).to_bits()).leading_zeros() >= length
    };
    let found = V6.iter().find(|(network, length, _)| within(network, *length));
    let place = found.map_or(Place::Never("not a public address"), |(_, _, place)| *place);
    // An IPv4 address inside tells better why, and it may be the only reason there is (ISATAP).
    // What is private inside is not private as it stands: no setting opens it.
    match (place, embedded(address).and_then(|inner| refused(IpAddr::V4(inner)))) {
        (Place::Private(why), _) => Place::Private(why),
        (METADATA, _) => METADATA,
        (_, Some(why)) => Place::Never(why),
        (place, None) => place,
    }
}

/// The IPv4 address that a gateway or a tunnel would make of this one.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [head @ .., last_high, last_low] = address.segments();
    let inner = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match head {
        // What is below the zeros and has no high half is `::`, `::1` and the like.
        [0, 0, 0, 0, 0, 0] => (last_high != 0).then(|| inner(last_high, last_low)),
        // Mapped, translated, NAT64, and ISATAP below any prefix.
        [0, 0, 0, 0, 0, 0xffff]
        | [0, 0, 0, 0, 0xffff, 0]
        | [0x64, 0xff9b, ..]
        | [.., 0 | 0x0200, 0x5efe] => Some(inner(last_high, last_low)),
        [0x2002, high, low, ..] => Some(inner(high, low)),
        // Teredo holds the client with all bits turned over, and its server as it is.
        [0x2001, 0, server_high, server_low, ..] => {
            let server = inner(server_high, server_low);
            let refused = refused(IpAddr::V4(server)).is_some();
            Some(if refused { server } else { inner(!last_high, !last_low) })
        }
        _ => None,
    }
}
