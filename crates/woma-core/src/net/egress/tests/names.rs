//! DNS, addresses that are refused, and names that change theirs.

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

use super::world::{PUBLIC, World};
use crate::net::egress::names::Names;
use crate::net::egress::reach::Target;
use crate::net::egress::{EgressSettings, Host, dns};

fn query(name: &str, kind: TYPE) -> Vec<u8> {
    let mut packet = Packet::new_query(7);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new_unchecked(name);
    packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
    packet.build_bytes_vec().unwrap()
}

/// The code and the addresses of an answer.
async fn ask(world: &World, names: &Names, query: &[u8]) -> Option<(RCODE, Vec<String>)> {
    let answer = dns::answer(&world.room, names, query).await?.packet;
    let packet = Packet::parse(&answer).unwrap();
    assert_eq!((packet.id(), packet.questions.len()), (7, 1));
    let addresses = packet.answers.iter().map(|record| match &record.rdata {
        RData::A(a) => std::net::Ipv4Addr::from(a.address).to_string(),
        other => panic!("{other:?}"),
    });
    Some((packet.rcode(), addresses.collect()))
}

#[tokio::test]
async fn allowed_names_have_addresses_of_the_room_and_others_do_not_exist() {
    let world = World::new("public.test, *.below.test, db.below.test:5432").await;
    let names = Names::default();
    let long = format!("{}.below.test", "a".repeat(63));
    for (name, kind, expected) in [
        ("public.test", TYPE::A, Some("127.64.0.1")),
        ("PUBLIC.test", TYPE::A, Some("127.64.0.1")),
        ("public.test", TYPE::AAAA, None),
        ("public.test", TYPE::TXT, None),
        ("x.below.test", TYPE::A, Some("127.64.0.2")),
        (&*long, TYPE::A, Some("127.64.0.3")),
    ] {
        let (code, addresses) = ask(&world, &names, &query(name, kind)).await.unwrap();
        assert_eq!(code, RCODE::NoError, "{name}");
        assert_eq!(addresses.first().map(String::as_str), expected, "{name} {kind:?}");
    }
    assert_eq!(*world.resolved.lock().unwrap(), ["public.test", "x.below.test", &long]);
    assert!(world.refused().is_empty());
    for name in ["below.test", "evil.test", "public.test.evil.test", "localhost", "127.1", "x"] {
        let (code, addresses) = ask(&world, &names, &query(name, TYPE::A)).await.unwrap();
        assert_eq!((code, addresses), (RCODE::NameError, vec![]), "{name}");
        let said = world.refused().concat();
        assert!(said.contains(&format!("`{name}` was blocked")), "{said}");
    }
    assert_eq!(world.resolved.lock().unwrap().len(), 3, "no blocked name left the server");
}

#[tokio::test]
async fn names_with_odd_bytes_are_no_hosts() {
    let world = World::new("public.test, open.test").await;
    let names = Names::default();
    // The question of `public.test`, with other labels in its place.
    let mut head = query("", TYPE::A);
    let end = head.split_off(12);
    let of = |labels: &[&[u8]]| {
        let mut bytes = head.clone();
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label);
        }
        bytes.push(0);
        bytes.extend_from_slice(&end[end.len() - 4..]);
        bytes
    };
    assert_eq!(ask(&world, &names, &of(&[b"public", b"test"])).await.unwrap().0, RCODE::NoError);
    let odd: [&[&[u8]]; 6] = [
        &[b"evil\0", b"public", b"test"],
        &[b"evil.test\0.public", b"test"],
        &[b"public.test"],
        &[b"publi\xc3\xa7", b"test"],
        &[b"*", b"test"],
        &[b"a b", b"test"],
    ];
    for labels in odd {
        let asked = ask(&world, &names, &of(labels)).await.unwrap();
        assert_eq!(asked, (RCODE::NameError, vec![]), "{labels:?}");
        assert!(world.refused().concat().contains("no name of a host"), "{labels:?}");
    }
    assert_eq!(*world.resolved.lock().unwrap(), ["public.test"]);
}

#[tokio::test]
async fn packets_that_are_no_queries_have_no_answer() {
    let world = World::new("open").await;
    let names = Names::default();
    let good = query("public.test", TYPE::A);
    let with = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    let oversized = [good.as_slice(), &[0; 1_024]].concat();
    let bad = [
        vec![],
        good[..11].to_vec(),
        good[..good.len() - 1].to_vec(),
        with(2, 0x80),
        with(5, 0),
        with(5, 2),
        with(4, 0xff),
        with(7, 1),
        with(6, 0xff),
        with(9, 1),
        with(10, 0xff),
        // A name that is longer than the packet, and one that points at itself.
        with(12, 63),
        [&good[..12], &[0xc0, 12, 0, 1, 0, 1]].concat(),
        oversized,
    ];
    for packet in bad {
        assert!(ask(&world, &names, &packet).await.is_none(), "{packet:?}");
    }
    assert!(world.resolved.lock().unwrap().is_empty());
    assert!(ask(&world, &names, &good).await.is_some());
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_however_they_are_named() {
    let sets: &[(&str, &[&str])] = &[
        ("loopback.test", &["127.0.0.1"]),
        ("private.test", &["10.1.2.3"]),
        ("metadata.test", &["169.254.169.254"]),
        ("room.test", &["127.64.0.1"]),
        ("mapped.test", &["::ffff:127.0.0.1"]),
        ("nat64.test", &["64:ff9b::a9fe:a9fe"]),
        ("six.test", &["::1"]),
        ("unique.test", &["fd00::1"]),
        ("mixed.test", &[PUBLIC, "192.168.0.1"]),
        ("reversed.test", &["192.168.0.1", PUBLIC]),
    ];
    let held: Vec<(&str, [&[&str]; 1])> = sets.iter().map(|(name, set)| (*name, [*set])).collect();
    let table: Vec<(&str, &[&[&str]])> =
        held.iter().map(|(name, sets)| (*name, &sets[..])).collect();
    let world = World::with("open", &table, EgressSettings::default()).await;
    let names = Names::default();
    for (name, _) in sets {
        let asked = ask(&world, &names, &query(name, TYPE::A)).await.unwrap();
        assert_eq!(asked.0, RCODE::NameError, "{name}");
        let said = world.refused().concat();
        assert!(said.contains("only public hosts can be reached"), "{name}: {said}");
    }
    // Addresses without a name, and names that need no DNS.
    for authority in [
        "127.0.0.1:22",
        "2130706433:22",
        "0x7f.1:80",
        "[::1]:80",
        "[::ffff:10.0.0.1]:443",
        "10.0.0.1:80",
        "169.254.169.254:80",
        "0.0.0.0:80",
        "localhost:80",
        "db.internal:5432",
        "198.18.0.1:443",
    ] {
        let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        let answer = world.send_proxy(head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{authority}: {answer}");
    }
    assert!(world.connected.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_judged_again_or_not_asked_again() {
    let sets: &[&[&str]] = &[&[PUBLIC], &["127.0.0.1"]];
    let world = World::with("open", &[("rebind.test", sets)], EgressSettings::default()).await;
    let names = Names::default();
    let (_, addresses) = ask(&world, &names, &query("rebind.test", TYPE::A)).await.unwrap();
    let (host, judged) = names.find(addresses[0].parse().unwrap()).unwrap();
    let target = Target { host: host.clone(), port: 443, judged };
    world.room.connect(&target).await.unwrap();
    let expected = format!("{PUBLIC}:443").parse().unwrap();
    assert_eq!(*world.connected.lock().unwrap(), [expected], "the address that was judged");
    assert_eq!(world.resolved.lock().unwrap().len(), 1, "and no second lookup");
    let refusal = world.room.connect(&Target::new(host, 443)).await.unwrap_err().to_string();
    assert!(refusal.contains("127.0.0.1 is a loopback address"), "{refusal}");
    assert_eq!(world.connected.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn hosts_that_the_operator_places_are_reached_there_and_nowhere_else() {
    let hosts = "git.internal:443=10.1.2.3:8443, placed.test:80=127.0.0.1:8080".parse().unwrap();
    let settings = EgressSettings { hosts, ..EgressSettings::default() };
    let world = World::with("git.internal, placed.test:*", &[], settings).await;
    let names = Names::default();
    for (name, port, expected) in [
        ("git.internal", 443, Some("10.1.2.3:8443")),
        ("placed.test", 80, Some("127.0.0.1:8080")),
        ("placed.test", 81, None),
    ] {
        let (code, addresses) = ask(&world, &names, &query(name, TYPE::A)).await.unwrap();
        assert_eq!(code, RCODE::NoError, "{name}");
        let (host, judged) = names.find(addresses[0].parse().unwrap()).unwrap();
        assert!(world.room.allow(&host, port).is_ok());
        let connected = world.room.connect(&Target { host, port, judged }).await;
        assert_eq!(connected.is_ok(), expected.is_some(), "{name}:{port}");
        let last = world.connected.lock().unwrap().pop();
        assert_eq!(last, expected.map(|address| address.parse().unwrap()));
    }
    assert!(world.resolved.lock().unwrap().is_empty());
    for text in [
        "a.test:80",
        "a.test=127.0.0.1:80",
        "a.test:80=localhost:80",
        "10.0.0.1:80=127.0.0.1:80",
        "a.test:80=169.254.169.254:80",
        "a.test:80=127.0.0.1:0",
        "a.test:0=127.0.0.1:1",
    ] {
        assert!(text.parse::<crate::net::egress::PlacedHosts>().is_err(), "{text}");
    }
    assert!(Host::parse(b"git.internal").unwrap().is_local_name());
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_a_failure_and_no_offence() {
    let world = World::with("open", &[("missing.test", &[])], EgressSettings::default()).await;
    let names = Names::default();
    let asked = ask(&world, &names, &query("missing.test", TYPE::A)).await.unwrap();
    assert_eq!(asked, (RCODE::NameError, vec![]));
    let refused = world.room.report.take();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].event.is_none() && refused[0].message.contains("cannot be resolved"));
}
