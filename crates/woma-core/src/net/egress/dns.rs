//! DNS of a room. A name that the rules allow has an address of the room itself; no query leaves the
//! server but the lookup of an allowed name.

use std::net::Ipv4Addr;

use simple_dns::rdata::{A, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE};

use super::Room;
use super::host::Host;
use super::names::Names;
use super::refusal::{Refusal, Why};

/// Longest query that is read: more than a name of any length needs.
pub(super) const QUERY_BYTES_MAX: usize = 1_024;
/// How long programs may keep an answer, in seconds.
const TTL_SECONDS: u32 = 10;
/// Bytes of a header; the counts of questions, answers, authorities and others are its last words.
const HEADER_BYTES: usize = 12;
/// Records beside the question: extensions of the client.
const OTHERS_MAX: u16 = 2;

/// An answer, and the name that got an address.
pub(super) struct Answer {
    pub(super) packet: Vec<u8>,
    pub(super) given: Option<(Host, Ipv4Addr)>,
}

/// Answers a query; `None` if it is not one that can be answered.
pub(super) async fn answer(room: &Room, names: &Names, query: &[u8]) -> Option<Answer> {
    if !is_plain(query) {
        return None;
    }
    let packet = Packet::parse(query).ok()?;
    let question = packet.questions.first()?;
    let mut reply = Packet::new_reply(packet.id());
    reply.questions.push(question.clone());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if packet.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let given = match find(room, names, question).await {
        Ok(given) => given,
        Err(code) => {
            *reply.rcode_mut() = code;
            None
        }
    };
    if let Some((_, address)) = &given {
        let data = RData::A(A::from(*address));
        let name = question.qname.clone();
        reply.answers.push(ResourceRecord::new(name, CLASS::IN, TTL_SECONDS, data));
    }
    let packet = reply.build_bytes_vec().ok()?;
    Some(Answer { packet, given })
}

/// One question and no answers: counts are checked before anything is made of their number.
fn is_plain(query: &[u8]) -> bool {
    let word = |at: usize| match query.get(at..at + 2) {
        Some(&[high, low]) => u16::from_be_bytes([high, low]),
        _ => u16::MAX,
    };
    let is_response = query.get(2).is_none_or(|flags| flags & 0x80 != 0);
    (HEADER_BYTES..=QUERY_BYTES_MAX).contains(&query.len())
        && !is_response
        && (word(4), word(6), word(8)) == (1, 0, 0)
        && word(10) <= OTHERS_MAX
}

/// The address of the room for a question; none for another type than IPv4 addresses.
async fn find(
    room: &Room,
    names: &Names,
    question: &Question<'_>,
) -> Result<Option<(Host, Ipv4Addr)>, RCODE> {
    let refuse = |refusal: &Refusal| {
        // Programs ask for both kinds of addresses: one refusal is enough.
        if question.qtype != QTYPE::TYPE(TYPE::AAAA) {
            room.refuse(refusal);
        }
        match refusal.why {
            Why::Lookups => RCODE::ServerFailure,
            _ => RCODE::NameError,
        }
    };
    if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
        return Err(RCODE::NotImplemented);
    }
    let mut text = Vec::new();
    for label in question.qname.as_bytes() {
        if label.contains(&b'.') {
            return Err(refuse(&Refusal::of_text(label, Why::NoName)));
        }
        if !text.is_empty() {
            text.push(b'.');
        }
        text.extend_from_slice(label);
    }
    let Some(host @ Host::Name(_)) = Host::parse(&text) else {
        return Err(refuse(&Refusal::of_text(&text, Why::NoName)));
    };
    let placed = room.egress.settings.hosts.has(&host);
    if !room.network.allows_host(&host) {
        let why = Why::Rules(room.network.told());
        return Err(refuse(&Refusal::new(&host, None, why)));
    }
    if host.is_local_name() && !placed {
        return Err(refuse(&Refusal::new(&host, None, Why::LocalName)));
    }
    if question.qtype != QTYPE::TYPE(TYPE::A) && question.qtype != QTYPE::ANY {
        return Ok(None);
    }
    if let Some((address, _)) = names.fresh(&host) {
        return Ok(Some((host, address)));
    }
    let judged = match placed {
        true => super::reach::Judged::none(),
        false => room.resolve(&host).await.map_err(|refusal| refuse(&refusal))?,
    };
    let address = names.remember(&host, judged);
    Ok(Some((host, address)))
}
