//! Tests of notebooks.

use super::{
    Cell, Cut, Kept, LeftOut, NOTEBOOK_BYTES_MAX, PICTURES_BYTES_MAX, Transcript, append,
    drop_transcript, paths_of, takes_room,
};

#[test]
fn pictures_beyond_their_bytes_are_left_out() {
    let (mut room, megabyte) = (PICTURES_BYTES_MAX, 1 << 20);
    let sizes = [12 * megabyte, 12 * megabyte, 12 * megabyte, 8 * megabyte, 1];
    let taken = sizes.map(|size_bytes| takes_room(size_bytes, &mut room));
    assert_eq!((taken, room), ([true, true, false, true, false], 0));
}

fn cell(number: u64, bytes: usize) -> Cell {
    Cell {
        number,
        source: "x".repeat(bytes),
        stdout: String::new(),
        stderr: String::new(),
        result: None,
        error: None,
        charts: Vec::new(),
        cut: 0,
        missed: 0,
    }
}

/// Kept runs: how many were left out, and the numbers of the others.
fn kept(folder: &std::path::Path) -> (u64, Vec<u64>) {
    let kept = Kept::of(folder).unwrap();
    (kept.before, kept.cells.iter().map(|cell| cell.number).collect())
}

#[test]
fn the_latest_runs_are_kept_and_the_others_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    assert_eq!(kept(&path), (0, vec![]));
    let mut open = Transcript::default();
    for number in 0..100 {
        append(&path, &mut open, &cell(number, 1_000_000)).unwrap();
        let (left_out, numbers) = kept(&path);
        assert_eq!(numbers, (left_out..=number).collect::<Vec<_>>());
        assert!(numbers.len() >= 8 || left_out == 0, "{left_out}: {numbers:?}");
        let bytes: u64 =
            paths_of(&path).iter().flat_map(std::fs::metadata).map(|file| file.len()).sum();
        assert!(bytes <= NOTEBOOK_BYTES_MAX, "{bytes}");
    }
    // A server that was killed between two steps of ours.
    let [older, newer] = paths_of(&path);
    std::fs::rename(newer, older).unwrap();
    let (left_out, numbers) = kept(&path);
    append(&path, &mut Transcript::default(), &cell(100, 1)).unwrap();
    assert_eq!(kept(&path), (left_out, [numbers, vec![100]].concat()));
    drop_transcript(&path);
    assert_eq!(kept(&path), (0, vec![]));
    // What is written after that is not lost in a file without a name.
    append(&path, &mut open, &cell(101, 1)).unwrap();
    assert_eq!(kept(&path), (0, vec![101]));
}

#[test]
fn a_file_of_an_earlier_version_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let line = r#"{"number":1,"source":"1","stdout":"","stderr":"","result":null,"error":null,"charts":[]}"#;
    std::fs::write(folder.path().join("s.cells"), format!("{line}\n{{torn")).unwrap();
    assert_eq!(kept(&path), (0, vec![1]));
}

#[test]
fn what_is_shortened_is_counted() {
    let mut cut = Cut::default();
    assert_eq!(cut.to("häh", 2), "h\n… 3 more bytes");
    assert_eq!(cut.to("hah", 3), "hah");
    let lines: Vec<String> = (0..100).map(|number| format!("{number:>1000}")).collect();
    let shown = cut.lines(&lines);
    assert_eq!((shown.len(), shown[0].as_str()), (66, "… 35 lines before"));
    assert_eq!(shown.last(), lines.last());
    assert_eq!(cut.lines(&lines[..3]), lines[..3]);
    assert_eq!(cut.lines(&["x".repeat(1 << 20)])[0].len(), 8192 + "\n… 1040384 more bytes".len());
    assert_eq!(cut.0, 3);
}

#[test]
fn what_is_left_out_is_said_in_words() {
    let some = LeftOut { cells: 1, cut: 2, pictures: 3 };
    let expected = "This notebook is not complete. 1 cell was left out: it has the latest runs \
                    of its session, up to 16 MiB. 2 outputs were cut at 64 KiB. 3 pictures were \
                    left out: no longer kept, or beyond 32 MiB of all pictures.";
    assert_eq!(some.sentence(), expected);
    assert!(LeftOut::default().is_nothing() && !some.is_nothing());
}
