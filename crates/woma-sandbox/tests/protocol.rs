//! The host's side of the protocol: golden frames, and arbitrary bytes.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may unwrap")]

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use woma_sandbox::protocol::{
    DISPLAY_HEADER_BYTES_MAX, Decoder, Display, Done, Dropped, FRAME_BYTES_MAX, Frame, FrameBudget,
    RunFrame, Status, Violation, encode_checkpoint, encode_restore, encode_run,
};

const ENOUGH: FrameBudget = FrameBudget { display_bytes: u64::MAX, note_bytes: u64::MAX };

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
    decoder.next(ENOUGH)
}

fn decode_all(chunks: &[&[u8]]) -> (Vec<Frame>, Option<Violation>) {
    let mut decoder = Decoder::default();
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next(ENOUGH) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(violation) => return (frames, Some(violation)),
            }
        }
    }
    (frames, None)
}

#[test]
fn decodes_or_rejects_every_golden_frame() {
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
                assert_eq!(manifest(&frame), as_read(&entry["frame"]), "{name}");
                frames += 1;
            }
            ("kernel-to-host", false) => {
                let decoded = decode_one(&bytes);
                assert!(decoded.is_err(), "{name}: {} but {decoded:?}", entry["why"]);
                refused += 1;
            }
            // Frames that the kernel must reject are tested in Python.
            ("host-to-kernel", false) => for_python += 1,
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!((runs, frames, refused, for_python), (8, 18, 21, 15));
}

/// Bytes of a frame to the kernel.
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

/// A frame of the golden file as decoded: text and JSON after the header are ordinary data.
fn as_read(frame: &Value) -> Value {
    let mut frame = frame.clone();
    if frame["kind"] != "DISPLAY" {
        return frame;
    }
    let binary = std::mem::take(&mut frame["body"]["binary"]);
    let parts = std::mem::take(&mut frame["parts"]);
    let (mut left, mut left_parts) = (Vec::new(), Vec::new());
    for (header, part) in binary.as_array().unwrap().iter().zip(parts.as_array().unwrap()) {
        let text = || String::from_utf8(unhex(part.as_str().unwrap())).unwrap();
        let value = match header["form"].as_str() {
            Some("text") => Value::String(text()),
            Some("json") => serde_json::from_str(&text()).unwrap(),
            Some(other) => panic!("{other}"),
            None => {
                left.push(header.clone());
                left_parts.push(part.clone());
                continue;
            }
        };
        frame["body"]["data"][header["mime"].as_str().unwrap()] = value;
    }
    frame["body"]["binary"] = left.into();
    frame["parts"] = left_parts.into();
    frame
}

/// A frame in the format of the golden file.
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
        other @ (Frame::Dropped(_) | Frame::Pending) => panic!("{other:?} is not in the file"),
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
        "variables_left_out": done.variables_left_out,
        "imported": done.imported,
    })
}

fn display_manifest(display: &Display) -> Value {
    let Value::Object(mut body) = serde_json::to_value(display).unwrap() else {
        panic!("a display is an object");
    };
    if body["metadata"].is_null() {
        body.insert("metadata".to_owned(), json!({}));
    }
    let header = |(mime, bytes): &(String, Vec<u8>)| json!({"mime": mime, "bytes": bytes.len()});
    body.insert("binary".to_owned(), display.binary.iter().map(header).collect());
    let digit = |digit: u8| char::from_digit(digit.into(), 16).unwrap();
    let hex = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    let parts = display.binary.iter().map(|(_, bytes)| bytes.iter().flat_map(hex).collect());
    let parts: Vec<String> = parts.collect();
    json!({"kind": "DISPLAY", "body": body, "parts": parts})
}

#[test]
fn a_frame_is_complete_with_its_last_byte() {
    for entry in good_frames() {
        for length in 0..entry.len() {
            assert_eq!(decode_one(&entry[..length]), Ok(None), "{length} of {}", entry.len());
        }
        assert!(decode_one(&entry).unwrap().is_some());
    }
}

#[test]
fn rejects_a_length_before_its_bytes_arrive() {
    for length in [0, FRAME_BYTES_MAX + 1, 0xffff_ffff] {
        let length = u32::try_from(length).unwrap();
        let refused = decode_one(&length.to_be_bytes());
        assert_eq!(refused, Err(Violation::Length(length.into())));
    }
    let largest = u32::try_from(FRAME_BYTES_MAX).unwrap();
    assert_eq!(decode_one(&largest.to_be_bytes()), Ok(None));
}

#[test]
fn rejects_a_program_larger_than_a_frame() {
    let run = RunFrame {
        run: 1,
        source: "x".repeat(FRAME_BYTES_MAX),
        figures_max: 1,
        variables: serde_json::Map::new(),
        stdin: None,
        script: None,
        guard: None,
        environ: serde_json::Map::new(),
        memory: None,
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
    let mut variables = vec![json!({"name": "x", "type": "int"}); 5_000];
    variables[0]["about"] = "é".repeat(1_000).into();
    let body = json!({"run": 1, "status": "completed", "exit_code": null, "error": null,
                      "result": null, "variables": variables});
    let decoded = decode_one(&frame(0x83, body.to_string().as_bytes())).unwrap().unwrap();
    let Frame::Done(done) = decoded else { panic!("a reply") };
    assert_eq!(done.variables.len(), 1_000);
    assert_eq!(done.variables[0].about.as_ref().map(String::len), Some(800));
    let data: Map<String, Value> = (0..65).map(|i| (format!("a/{i}"), json!("x"))).collect();
    let header = json!({"role": "display", "data": data}).to_string();
    let mut body = u32::try_from(header.len()).unwrap().to_be_bytes().to_vec();
    body.extend(header.bytes());
    assert!(decode_one(&frame(0x82, &body)).is_err());
}

#[test]
fn strings_lists_and_trees_are_cut_while_they_are_read() {
    let long = "é".repeat(100_000);
    let note = json!({"code": long, "text": long, "subject": long}).to_string();
    let Frame::Note(note) = decode_one(&frame(0x84, note.as_bytes())).unwrap().unwrap() else {
        panic!("a note");
    };
    let subject = note.subject.unwrap();
    assert_eq!((note.code.len(), note.text.len(), subject.len()), (1_000, 8_192, 1_000));
    let error = json!({"name": long, "message": "", "traceback": vec![""; 5_000], "line": null,
                       "missing": long});
    let mut body = json!({"run": 1, "status": "raised", "exit_code": null, "error": error,
                          "result": {"text": "t", "json": vec![json!({"a": {}}); 20_000]}});
    let Frame::Done(done) = decode_one(&frame(0x83, body.to_string().as_bytes())).unwrap().unwrap()
    else {
        panic!("a done");
    };
    let error = done.error.unwrap();
    assert_eq!((error.name.len(), error.traceback.len()), (1_000, 1_000));
    assert_eq!(error.missing.unwrap().len(), 1_000);
    assert_eq!(done.result.unwrap().json, None, "a tree of twenty thousand objects is too large");
    body["result"]["json"] = json!(vec![json!({"a": 1}); 7_000]);
    let Frame::Done(done) = decode_one(&frame(0x83, body.to_string().as_bytes())).unwrap().unwrap()
    else {
        panic!("a done");
    };
    assert!(done.result.unwrap().json.is_some(), "as many as our kernel sends are accepted");
    let restored = json!({"restored": vec![long.clone(); 3], "failed": [], "error": long});
    let Frame::Restored(restored) =
        decode_one(&frame(0x85, restored.to_string().as_bytes())).unwrap().unwrap()
    else {
        panic!("a restored");
    };
    assert!(restored.restored.iter().all(|name| name.len() == 1_000));
    assert_eq!(restored.error.unwrap().len(), 1_000);
}

#[test]
fn rejects_a_long_header_before_it_arrives() {
    let head = |header: usize| {
        let mut bytes = u32::try_from(FRAME_BYTES_MAX).unwrap().to_be_bytes().to_vec();
        bytes.push(0x82);
        bytes.extend(u32::try_from(header).unwrap().to_be_bytes());
        decode_one(&bytes)
    };
    assert_eq!(head(DISPLAY_HEADER_BYTES_MAX), Ok(None));
    let longer = DISPLAY_HEADER_BYTES_MAX + 1;
    assert_eq!(head(longer), Err(Violation::Header(longer as u64)));
}

/// A DISPLAY with a header of about this length, which is not JSON.
fn display_of(header: usize, part: usize) -> Vec<u8> {
    let mut body = u32::try_from(header).unwrap().to_be_bytes().to_vec();
    body.resize(4 + header + part, b'x');
    frame(0x82, &body)
}

#[test]
fn what_there_is_no_room_for_is_passed_over_unparsed_however_it_comes() {
    let note = frame(0x84, br#"{"code": "c", "text": "t"}"#);
    let budget = FrameBudget { display_bytes: 1_000, note_bytes: 100 };
    // The header counts twice: as received, and as parsed.
    for (header, part, fits) in [(100, 700, true), (100, 900, false), (0, 5_000_000, false)] {
        let bytes = [display_of(header, part), note.clone()].concat();
        for step in [1, 7, 4_096, bytes.len()] {
            if step < 4_096 && bytes.len() > 100_000 {
                continue;
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            let mut refused = false;
            for piece in bytes.chunks(step) {
                decoder.push(piece);
                loop {
                    match decoder.next(budget) {
                        Ok(Some(frame)) => seen.push(frame),
                        Ok(None) => break,
                        Err(_) => refused = true,
                    }
                    if refused {
                        break;
                    }
                }
            }
            assert_eq!(refused, fits, "a parsed frame is not JSON");
            if !fits {
                assert_eq!(seen.len(), 2, "{header} {part} {step}: {seen:?}");
                assert_eq!(seen[0], Frame::Dropped(Dropped::Display));
                assert!(matches!(&seen[1], Frame::Note(note) if note.text == "t"));
            }
        }
    }
    let mut decoder = Decoder::default();
    decoder.push(&frame(0x84, &[b'x'; 200]));
    assert_eq!(decoder.next(budget), Ok(Some(Frame::Dropped(Dropped::Note))));
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

/// Concatenated golden frames.
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

/// The bytes split at these positions.
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
    fn survives_arbitrary_bytes(bytes in vec(any::<u8>(), 0..512)) {
        decode_all(&[&bytes]);
    }

    #[test]
    fn survives_arbitrary_bodies_of_every_kind(kind in 0x80..0x87_u8, body in vec(any::<u8>(), 0..256)) {
        decode_all(&[&frame(kind, &body)]);
    }

    #[test]
    fn decoding_does_not_depend_on_chunks(stream in streams(), cuts in vec(any::<Index>(), 0..32)) {
        let whole = decode_all(&[&stream]);
        assert!(whole.1.is_none() && !whole.0.is_empty());
        assert_eq!(decode_all(&pieces(&stream, &cuts)), whole);
    }

    #[test]
    fn survives_damaged_frames_in_any_chunks(
        mut stream in streams(),
        damage in mutations(),
        cuts in vec(any::<Index>(), 0..8),
    ) {
        mutate(&mut stream, damage);
        assert_eq!(decode_all(&pieces(&stream, &cuts)), decode_all(&[&stream]));
    }
}

/// Bytes of a cell, whole and in pieces: no panic, and the same frames however they arrive.
#[test]
fn fuzz_frames() {
    const WORDS: &[&str] = &[
        "\u{0}\u{0}\u{0}\u{1}",
        "{\"role\":\"display\",\"id\":null,",
        "\"data\":{}",
        "\"binary\":[]",
        "\"metadata\":{}",
        "{\"mime\":\"image/png\",\"bytes\":4}",
        "\"form\":\"json\"",
        "\"form\":\"text\"",
        "\"run\":1",
        "\"status\":\"completed\"",
        "\"variables\":[]",
        "\"error\":null",
        "\"result\":{\"text\":\"\",\"json\":[]}",
        "1e999",
        "\\ud800",
        "[[[[[[[[",
        "]]]]]]]]",
        "\"code\":\"c\",\"text\":\"\"",
    ];
    woma_fuzz::Target { name: "frames", words: WORDS }.run(|bytes| {
        let whole = format!("{:?}", decode_all(&[bytes]));
        for at in [1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            let (one, other) = bytes.split_at(at.min(bytes.len()));
            // A long frame is handed to another thread as soon as it is whole.
            let pieces = format!("{:?}", decode_all(&[one, other]));
            assert!(pieces == whole || whole.contains("Pending"), "{pieces}\n{whole}");
        }
    });
}
