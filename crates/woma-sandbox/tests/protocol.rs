//! The host's side of the protocol against the golden frames, and against bytes of all sorts.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may unwrap")]

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use woma_sandbox::protocol::{
    Decoder, Display, Done, FRAME_BYTES_MAX, Frame, RunFrame, Status, Violation, encode_checkpoint,
    encode_restore, encode_run,
};

fn golden() -> Vec<Value> {
    let entries: Vec<Value> = serde_json::from_str(include_str!("golden/golden.json")).unwrap();
    assert!(entries.len() >= 30, "only {} golden frames", entries.len());
    entries
}

fn bytes_of(entry: &Value) -> Vec<u8> {
    unhex(entry["hex"].as_str().unwrap())
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        hex.chars().map(|c| c.to_digit(16).unwrap().try_into().unwrap()).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn decode_one(bytes: &[u8]) -> Result<Option<Frame>, Violation> {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    decoder.next()
}

fn decode_all(chunks: &[&[u8]]) -> (Vec<Frame>, Option<Violation>) {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(violation) => return (frames, Some(violation)),
            }
        }
    }
    (frames, None)
}

#[test]
fn every_golden_frame_is_understood_or_refused() {
    let (mut runs, mut frames, mut refused, mut for_python) = (0, 0, 0, 0);
    for entry in golden() {
        let name = entry["name"].as_str().unwrap();
        let bytes = bytes_of(&entry);
        match (entry["direction"].as_str().unwrap(), entry["ok"].as_bool().unwrap()) {
            ("host-to-kernel", true) => {
                assert_eq!(encoded(&entry["frame"]), bytes, "{name}");
                runs += 1;
            }
            ("kernel-to-host", true) => {
                let frame = decode_one(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
                let frame = frame.unwrap_or_else(|| panic!("{name}: not whole"));
                assert_eq!(manifest(&frame), entry["frame"], "{name}");
                frames += 1;
            }
            ("kernel-to-host", false) => {
                let decoded = decode_one(&bytes);
                assert!(decoded.is_err(), "{name}: {} but {decoded:?}", entry["why"]);
                refused += 1;
            }
            // What the kernel must refuse is the kernel's to test.
            ("host-to-kernel", false) => for_python += 1,
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!((runs, frames, refused, for_python), (7, 14, 17, 15));
}

/// The bytes of a frame to the kernel.
fn encoded(frame: &Value) -> Vec<u8> {
    let body = frame["body"].clone();
    let encoded = match frame["kind"].as_str().unwrap() {
        "RUN" => encode_run(&serde_json::from_value(body).unwrap()),
        "CHECKPOINT" => encode_checkpoint(&serde_json::from_value(body).unwrap()),
        "RESTORE" => encode_restore(&serde_json::from_value(body).unwrap()),
        other => panic!("{other}"),
    };
    encoded.unwrap()
}

/// A frame in the words of the golden file.
fn manifest(frame: &Frame) -> Value {
    match frame {
        Frame::Ready(ready) => {
            let body = json!({"protocol": ready.protocol, "python": ready.python});
            json!({"kind": "READY", "body": body})
        }
        Frame::Note(note) => json!({"kind": "NOTE", "body": note}),
        Frame::Done(done) => json!({"kind": "DONE", "body": done_body(done)}),
        Frame::Display(display) => display_manifest(display),
        Frame::Restored(restored) => json!({"kind": "RESTORED", "body": restored}),
        Frame::Read => json!({"kind": "READ"}),
    }
}

fn done_body(done: &Done) -> Value {
    let status = match done.status {
        Status::Completed => "completed",
        Status::Raised => "raised",
        Status::Interrupted => "interrupted",
    };
    json!({
        "run": done.run,
        "status": status,
        "exit_code": done.exit_code,
        "error": done.error,
        "result": done.result,
        "execution_count": done.execution_count,
        "variables": done.variables,
    })
}

fn display_manifest(display: &Display) -> Value {
    let Value::Object(mut body) = serde_json::to_value(display).unwrap() else {
        panic!("a display is an object");
    };
    let header = |(mime, bytes): &(String, Vec<u8>)| json!({"mime": mime, "bytes": bytes.len()});
    body.insert("binary".to_owned(), display.binary.iter().map(header).collect());
    let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap();
    let hex = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    let parts = display.binary.iter().map(|(_, bytes)| bytes.iter().flat_map(hex).collect());
    let parts: Vec<String> = parts.collect();
    json!({"kind": "DISPLAY", "body": body, "parts": parts})
}

#[test]
fn a_frame_is_whole_with_its_last_byte_and_not_before() {
    for entry in good_frames() {
        for length in 0..entry.len() {
            assert_eq!(decode_one(&entry[..length]), Ok(None), "{length} of {}", entry.len());
        }
        assert!(decode_one(&entry).unwrap().is_some());
    }
}

#[test]
fn a_length_is_refused_before_its_bytes_have_come() {
    for length in [0, FRAME_BYTES_MAX + 1, 0xffff_ffff] {
        let length = u32::try_from(length).unwrap();
        let refused = decode_one(&length.to_be_bytes());
        assert_eq!(refused, Err(Violation::Length(length.into())));
    }
    let largest = u32::try_from(FRAME_BYTES_MAX).unwrap();
    assert_eq!(decode_one(&largest.to_be_bytes()), Ok(None));
}

#[test]
fn a_program_that_fits_no_frame_is_refused() {
    let run = RunFrame {
        run: 1,
        source: "x".repeat(FRAME_BYTES_MAX),
        figures_max: 1,
        variables: serde_json::Map::new(),
        guard: None,
    };
    assert!(matches!(encode_run(&run), Err(Violation::Length(_))));
}

#[test]
fn unknown_members_are_ignored() {
    let body = br#"{"code": "c", "text": "t", "later": {"a": [1]}}"#;
    let frame = decode_one(&frame(0x84, body)).unwrap().unwrap();
    assert!(matches!(frame, Frame::Note(note) if note.code == "c" && note.text == "t"));
}

#[test]
fn nesting_is_bounded() {
    let deep = format!("{{\"code\": {}", "[".repeat(1_000_000));
    assert!(decode_one(&frame(0x84, deep.as_bytes())).is_err());
}

#[test]
fn variables_and_parts_are_bounded() {
    let variable = json!({"name": "x", "type": "int"});
    let body = json!({"run": 1, "status": "completed", "exit_code": null, "error": null,
                      "result": null, "variables": vec![variable; 5_000]});
    let decoded = decode_one(&frame(0x83, body.to_string().as_bytes())).unwrap().unwrap();
    assert!(matches!(decoded, Frame::Done(done) if done.variables.len() == 1_000));
    let data: Map<String, Value> = (0..65).map(|i| (format!("a/{i}"), json!("x"))).collect();
    let header = json!({"role": "display", "data": data}).to_string();
    let mut body = u32::try_from(header.len()).unwrap().to_be_bytes().to_vec();
    body.extend(header.bytes());
    assert!(decode_one(&frame(0x82, &body)).is_err());
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len() + 1).unwrap().to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(body);
    bytes
}

fn good_frames() -> Vec<Vec<u8>> {
    let good = |entry: &Value| entry["direction"] == "kernel-to-host" && entry["ok"] == true;
    golden().iter().filter(|entry| good(entry)).map(bytes_of).collect()
}

/// Golden frames one after another.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    vec(proptest::sample::select(good_frames()), 1..8).prop_map(|frames| frames.concat())
}

#[derive(Debug, Clone)]
enum Mutation {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let telling = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f), Just(b'"'), Just(b'[')];
    vec(
        prop_oneof![
            (any::<Index>(), telling).prop_map(|(at, byte)| Mutation::Set(at, byte)),
            (any::<Index>(), vec(any::<u8>(), 1..9)).prop_map(|(at, b)| Mutation::Insert(at, b)),
            (any::<Index>(), 1..9_usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        ],
        1..6,
    )
}

fn mutate(bytes: &mut Vec<u8>, mutations: Vec<Mutation>) {
    for mutation in mutations {
        let length = bytes.len().max(1);
        match mutation {
            Mutation::Set(at, byte) => {
                if let Some(place) = bytes.get_mut(at.index(length)) {
                    *place = byte;
                }
            }
            Mutation::Insert(at, more) => {
                let at = at.index(length).min(bytes.len());
                bytes.splice(at..at, more);
            }
            Mutation::Remove(at, count) => {
                let at = at.index(length).min(bytes.len());
                bytes.drain(at..bytes.len().min(at + count));
            }
        }
    }
}

/// The same bytes in pieces that end at these places.
fn pieces<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut rest = bytes;
    let mut taken = 0;
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, after) = rest.split_at(cut - taken);
        pieces.push(piece);
        (rest, taken) = (after, cut);
    }
    pieces.push(rest);
    pieces
}

fn many() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..512)) {
        decode_all(&[&bytes]);
    }

    #[test]
    fn any_body_of_any_kind_is_survived(kind in 0x80..0x87_u8, body in vec(any::<u8>(), 0..256)) {
        decode_all(&[&frame(kind, &body)]);
    }

    #[test]
    fn chunks_change_nothing(stream in streams(), cuts in vec(any::<Index>(), 0..32)) {
        let whole = decode_all(&[&stream]);
        assert!(whole.1.is_none() && !whole.0.is_empty());
        assert_eq!(decode_all(&pieces(&stream, &cuts)), whole);
    }

    #[test]
    fn damaged_frames_are_survived_however_they_come(
        mut stream in streams(),
        damage in mutations(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        mutate(&mut stream, damage);
        assert_eq!(decode_all(&pieces(&stream, &cuts)), decode_all(&[&stream]));
    }
}
