//! Listings in pages: so many rows, and never more text than a reply may have.

use serde_json::Value;

use crate::api::arguments::{Arguments, Problem};

/// Largest number of entries in one page.
const ENTRIES_MAX: usize = 200;
/// Characters of a reply that its other fields may need.
const RESERVE_CHARS: usize = 400;

/// One entry of a listing: as a line of text, and as data.
pub(crate) struct Row {
    pub(crate) line: String,
    pub(crate) value: Value,
}

/// The part of a listing that a call asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Range {
    /// Reads `offset` and `limit`.
    pub(crate) fn read(arguments: &mut Arguments) -> Result<Self, Problem> {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let offset = arguments.count(&["offset"])?.map_or(0, count);
        let limit = arguments.count(&["limit"])?.map_or(ENTRIES_MAX, count);
        Ok(Self { offset, limit: limit.clamp(1, ENTRIES_MAX) })
    }
}

pub(crate) struct Page {
    pub(crate) lines: Vec<String>,
    pub(crate) values: Vec<Value>,
    /// Offset of the next page; `None` at the end.
    pub(crate) next_offset: Option<usize>,
    /// A row that alone is longer than a reply is left out, and named here.
    pub(crate) warnings: Vec<String>,
}

/// The rows of one page, whose lines and whose data each fit into `chars_max`.
pub(crate) fn page(rows: Vec<Row>, range: Range, chars_max: usize) -> Page {
    let (total, room) = (rows.len(), chars_max.saturating_sub(RESERVE_CHARS));
    let mut page =
        Page { lines: Vec::new(), values: Vec::new(), next_offset: None, warnings: Vec::new() };
    let (mut lines_chars, mut values_chars) = (0, 0);
    for (index, row) in rows.into_iter().enumerate().skip(range.offset) {
        // With the separator.
        let line = row.line.chars().count() + 1;
        let value = row.value.to_string().chars().count() + 1;
        if line.max(value) > room {
            page.warnings.push(format!("entry {index} of {total} is too long to be listed"));
            continue;
        }
        let is_full = lines_chars + line > room || values_chars + value > room;
        if is_full || page.values.len() == range.limit {
            page.next_offset = Some(index);
            break;
        }
        (lines_chars, values_chars) = (lines_chars + line, values_chars + value);
        page.lines.push(row.line);
        page.values.push(row.value);
    }
    let more = page.warnings.len().saturating_sub(1);
    page.warnings.truncate(1);
    if more > 0 {
        page.warnings.push(format!("{more} more entries are too long"));
    }
    page
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Page, RESERVE_CHARS, Range, Row, page};

    fn rows(lengths: &[usize]) -> Vec<Row> {
        let row = |length: &usize| Row { line: "é".repeat(*length), value: json!("x") };
        lengths.iter().map(row).collect()
    }

    fn read(lengths: &[usize], offset: usize, limit: usize) -> Page {
        page(rows(lengths), Range { offset, limit }, RESERVE_CHARS + 100)
    }

    #[test]
    fn pages_add_up_to_the_listing() {
        let lengths: Vec<usize> = (0..60).collect();
        let (mut offset, mut read_back) = (0, Vec::new());
        loop {
            let page = read(&lengths, offset, 7);
            let chars: usize = page.lines.iter().map(|line| line.chars().count() + 1).sum();
            assert!(chars <= 100 && page.lines.len() <= 7 && !page.lines.is_empty());
            read_back.extend(page.lines.iter().map(|line| line.chars().count()));
            match page.next_offset {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!(read_back, lengths);
    }

    #[test]
    fn a_row_longer_than_a_reply_is_named_and_left_out() {
        let page = read(&[1, 100, 200, 300, 2], 0, 10);
        assert_eq!((page.lines.len(), page.next_offset), (2, None));
        assert_eq!(
            page.warnings,
            ["entry 1 of 5 is too long to be listed", "2 more entries are too long"]
        );
    }

    #[test]
    fn a_page_beyond_the_end_is_empty() {
        let page = read(&[1, 2], 5, 10);
        assert_eq!((page.lines.len(), page.next_offset), (0, None));
    }
}
