//! Every class of refused addresses, and some public ones.

use std::net::IpAddr;

use proptest::prelude::*;

use crate::net::fetch::address::{AddressClass, classify};
use crate::net::fetch::refused;

const REFUSED: &[(&str, &[&str])] = &[
    ("a loopback address", &["127.0.0.1", "127.0.0.0", "127.255.255.255", "127.1.2.3", "::1"]),
    (
        "a private address",
        &[
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
            "fc00::",
            "fd00::1",
            "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ],
    ),
    ("an address of a provider's internal network", &["100.64.0.0", "100.127.255.255"]),
    (
        "a cloud metadata service",
        &[
            "169.254.169.254",
            "2001:0:808:808::5601:5601",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "2600:1f18::5efe:a9fe:a9fe",
        ],
    ),
    ("an address of \"this network\"", &["0.0.0.0", "0.255.255.255", "::ffff:0.0.0.0"]),
    (
        "a link-local address",
        &["169.254.0.0", "169.254.255.255", "fe80::", "fe80::1", "febf:ffff::"],
    ),
    ("an address reserved for protocols", &["192.0.0.0", "192.0.0.255", "2001:1::1", "2001:1ff::"]),
    (
        "an address reserved for documentation",
        &["192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff::1", "3fff:fff::"],
    ),
    ("a relay from IPv6 to IPv4", &["192.88.99.1"]),
    ("an address reserved for benchmarks", &["198.18.0.0", "198.19.255.255", "2001:2::1"]),
    ("a multicast address", &["224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ff0e::1"]),
    ("a reserved address", &["240.0.0.0", "255.255.255.254"]),
    ("the broadcast address", &["255.255.255.255"]),
    ("the unspecified address", &["::"]),
    ("an IPv4 address written as IPv6", &["::ffff:8.8.8.8", "::8.8.8.8"]),
    ("an IPv4 address translated to IPv6", &["::ffff:0:8.8.8.8"]),
    (
        "an address behind NAT64",
        &["64:ff9b::8.8.8.8", "64:ff9b:1::8.8.8.8", "64:ff9b:1:ffff::808:808"],
    ),
    ("an address behind 6to4", &["2002:808:808::1"]),
    // Server 8.8.8.8, client 8.8.4.4 with its bits turned over.
    ("an address behind Teredo", &["2001:0:808:808::f7f7:fbfb"]),
    (
        "a loopback address",
        &[
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2001:0:7f00:1::f7f7:fbfb",
            "2001:0:808:808::80ff:fffe",
            "2a00::200:5efe:7f00:1",
        ],
    ),
    ("a private address", &["::ffff:10.0.0.1", "2002:c0a8:101::", "64:ff9b::a00:1"]),
    (
        "an ORCHID identifier, not an address",
        &["2001:10::1", "2001:1f::", "2001:20::1", "2001:2f::"],
    ),
    ("an address whose packets are discarded", &["100::", "100::ffff:ffff:ffff:ffff"]),
    ("a site-local address", &["fec0::1"]),
    ("not a public address", &["100:1::", "200::1", "1fff::1", "4000::1", "5f00::1", "8000::1"]),
];

const PUBLIC: &[&str] = &[
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2000::1",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700:4700::1111",
    "2a00:1450:4001::200e",
    "2600::5efe:808:808",
    "3ffe::1",
];

#[test]
fn non_public_addresses_are_refused_with_their_reason() {
    let mut count = 0;
    for (why, addresses) in REFUSED {
        for text in *addresses {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(refused(address), Some(*why), "{text}");
            count += 1;
        }
    }
    assert!(count >= 80, "{count}");
}

#[test]
fn public_addresses_are_allowed() {
    for text in PUBLIC {
        assert_eq!(refused(text.parse().unwrap()), None, "{text}");
    }
}

#[test]
fn only_private_networks_can_be_allowed() {
    let open = [
        "127.0.0.1",
        "10.1.2.3",
        "172.20.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "::1",
        "fd12::1",
        // What gateways and proxies put in the place of names.
        "198.18.0.1",
        "203.0.113.80",
    ];
    for (_, addresses) in REFUSED {
        for text in *addresses {
            let private = matches!(classify(text.parse().unwrap()), AddressClass::Private(_));
            let plain = !text.starts_with("::f") && !text.contains("::127");
            assert!(!private || plain, "{text} is an alternative notation");
        }
    }
    for text in open {
        assert!(matches!(classify(text.parse().unwrap()), AddressClass::Private(_)), "{text}");
    }
    for text in
        ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "::ffff:127.0.0.1", "fe80::1"]
    {
        assert!(matches!(classify(text.parse().unwrap()), AddressClass::Never(_)), "{text}");
    }
}

proptest! {
    /// No IPv6 notation of an IPv4 address is allowed.
    #[test]
    fn embedded_ipv4_addresses_are_not_public(bits: u32) {
        let inner = std::net::Ipv4Addr::from_bits(bits);
        let [high, low] = [(bits >> 16) as u16, (bits & 0xffff) as u16];
        for text in [
            format!("::ffff:{inner}"),
            format!("::ffff:0:{inner}"),
            format!("64:ff9b::{inner}"),
            format!("64:ff9b:1::{inner}"),
            format!("2002:{high:x}:{low:x}::1"),
            format!("2001:0:{high:x}:{low:x}::1"),
        ] {
            prop_assert!(refused(text.parse().unwrap()).is_some(), "{}", text);
        }
        let isatap: IpAddr = format!("2a00::5efe:{inner}").parse().unwrap();
        prop_assert_eq!(refused(isatap), refused(IpAddr::V4(inner)));
    }
}
