//! Values taken out of bytes, also where they come in parts.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Placed;

/// Characters that some encoders of addresses leave as they are.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Stands for each byte of a value where the length must stay.
const BLANK: u8 = b'*';

/// Finds the values of a session in any bytes: as they are, and in the forms that usual encoders
/// give them.
#[derive(Debug)]
pub(crate) struct Mask {
    finder: Option<AhoCorasick>,
    forms: Forms,
    placeholders: Vec<String>,
}

/// Texts to find, each with the number of its secret.
struct Forms {
    texts: Vec<(Vec<u8>, usize)>,
    /// Bytes that some form begins with.
    firsts: Box<[bool; 256]>,
    longest: usize,
}

impl std::fmt::Debug for Forms {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Forms")
    }
}

impl Mask {
    pub(super) fn new(placed: &[Placed]) -> Self {
        let numbered = placed.iter().enumerate();
        let texts: Vec<_> = numbered
            .flat_map(|(number, one)| {
                forms_of(one.secret.value.expose()).into_iter().map(move |form| (form, number))
            })
            .collect();
        let mut firsts = Box::new([false; 256]);
        for (text, _) in &texts {
            if let Some(is_first) = text.first().and_then(|byte| firsts.get_mut(usize::from(*byte)))
            {
                *is_first = true;
            }
        }
        let longest = texts.iter().map(|(text, _)| text.len()).max().unwrap_or(0);
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts.iter().map(|(text, _)| text));
        let finder = finder
            .inspect_err(|error| tracing::error!(%error, "Secrets cannot be looked for"))
            .ok();
        let placeholders = placed.iter().map(|one| one.placeholder.clone()).collect();
        Self { finder, forms: Forms { texts, firsts, longest }, placeholders }
    }

    /// Text without values; `None` if it has none.
    pub(crate) fn text(&self, text: &str) -> Option<String> {
        let covered = self.bytes(text.as_bytes())?;
        Some(String::from_utf8_lossy(&covered).into_owned())
    }

    /// Bytes without values; `None` if they have none.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        // Nothing passes that cannot be looked at.
        let Some(finder) = &self.finder else { return Some(Vec::new()) };
        finder.find(bytes)?;
        let mut covered = Vec::with_capacity(bytes.len());
        let end = self.pass(bytes, &mut covered, false, bytes.len());
        covered.extend_from_slice(bytes.get(end..).unwrap_or_default());
        Some(covered)
    }

    /// Whether the name of a header has a value in it. Names have no case.
    pub(crate) fn is_in_name(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.forms.texts.iter().any(|(form, _)| {
            str::from_utf8(form).is_ok_and(|form| name.contains(&form.to_ascii_lowercase()))
        })
    }

    /// Adds what is before `hold` to `out`, without values. Returns where it ended, which is later if
    /// a value ends later.
    fn pass(&self, bytes: &[u8], out: &mut Vec<u8>, is_blank: bool, hold: usize) -> usize {
        let Some(finder) = &self.finder else { return bytes.len() };
        let mut at = 0;
        while let Some(found) = finder.find(Input::new(bytes).span(at..bytes.len())) {
            if found.start() >= hold {
                break;
            }
            out.extend_from_slice(bytes.get(at..found.start()).unwrap_or_default());
            if is_blank {
                out.resize(out.len() + found.len(), BLANK);
            } else {
                let form = self.forms.texts.get(found.pattern().as_usize());
                let placeholder = form.and_then(|(_, number)| self.placeholders.get(*number));
                out.extend_from_slice(placeholder.map_or(&b""[..], |text| text.as_bytes()));
            }
            at = found.end();
        }
        let end = hold.max(at);
        out.extend_from_slice(bytes.get(at..end).unwrap_or_default());
        end
    }
}

impl Forms {
    /// Start of the end of these bytes that a value may begin with.
    fn open_end(&self, bytes: &[u8], from: usize) -> usize {
        let nearest = bytes.len().saturating_sub(self.longest.saturating_sub(1)).max(from);
        let begins = |at: &usize| {
            let rest = bytes.get(*at..).unwrap_or_default();
            rest.first().is_some_and(|byte| self.firsts.get(usize::from(*byte)) == Some(&true))
                && self
                    .texts
                    .iter()
                    .any(|(text, _)| text.len() > rest.len() && text.starts_with(rest))
        };
        (nearest..bytes.len()).find(begins).unwrap_or(bytes.len())
    }
}

/// A stream of bytes without values, however it is cut.
#[derive(Debug)]
pub(crate) struct Covered {
    mask: Arc<Mask>,
    /// The end of what came, which a value may begin with.
    held: Vec<u8>,
    /// Whether values keep their length.
    is_blank: bool,
}

impl Covered {
    /// Placeholders stand for values.
    pub(crate) fn new(mask: Arc<Mask>) -> Self {
        Self { mask, held: Vec::new(), is_blank: false }
    }

    /// As many bytes come out as go in.
    pub(crate) fn of_equal_length(mask: Arc<Mask>) -> Self {
        Self { mask, held: Vec::new(), is_blank: true }
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Bytes that may be passed on after these.
    pub(crate) fn push(&mut self, bytes: Bytes) -> Bytes {
        let Some(finder) = &self.mask.finder else { return Bytes::new() };
        if self.held.is_empty()
            && self.mask.forms.open_end(&bytes, 0) == bytes.len()
            && finder.find(&bytes).is_none()
        {
            return bytes;
        }
        self.held.extend_from_slice(&bytes);
        let mut out = Vec::with_capacity(self.held.len());
        let mut done = 0;
        // What a value has ended in may begin another one.
        loop {
            let rest = self.held.get(done..).unwrap_or_default();
            let hold = self.mask.forms.open_end(rest, 0);
            let end = self.mask.pass(rest, &mut out, self.is_blank, hold);
            done += end;
            if end <= hold {
                break;
            }
        }
        self.held.drain(..done);
        out.into()
    }

    /// The rest, after the last bytes.
    pub(crate) fn finish(&mut self) -> Bytes {
        let held = std::mem::take(&mut self.held);
        let mut out = Vec::with_capacity(held.len());
        self.mask.pass(&held, &mut out, self.is_blank, held.len());
        out.into()
    }
}

/// A value in the forms in which it may come back.
fn forms_of(value: &str) -> BTreeSet<Vec<u8>> {
    let json = serde_json::to_string(value).unwrap_or_default();
    let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned();
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut forms = vec![value.to_owned(), json.replace('/', "\\/"), json];
    forms.push(html.replace('"', "&quot;").replace('\'', "&#x27;"));
    forms.push(html.replace('"', "&#34;").replace('\'', "&#39;"));
    forms.push(html);
    for set in [NON_ALPHANUMERIC, UNRESERVED] {
        let encoded = utf8_percent_encode(value, set).to_string();
        forms.push(encoded.replace("%20", "+"));
        forms.push(lower_escapes(&encoded));
        forms.push(encoded);
    }
    let hex = value.bytes().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    });
    forms.push(hex.to_ascii_uppercase());
    forms.push(hex);
    for skipped in 0..3 {
        let bytes = [&[0; 2][..skipped.min(2)], value.as_bytes()].concat();
        // Characters at both ends also have bits of what stands beside the value.
        let (start, end) = ((skipped * 8).div_ceil(6), bytes.len() * 8 / 6);
        for encoded in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.push(encoded.get(start..end).unwrap_or_default().to_owned());
        }
    }
    forms.into_iter().filter(|form| !form.is_empty()).map(String::into_bytes).collect()
}

fn lower_escapes(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escape, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        text.push('%');
        text.push_str(&escape.to_ascii_lowercase());
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewSecret;
    use crate::net::secrets::SessionSecrets;

    const VALUE: &str = "sk-sk-A/b+c\"d~e f";

    fn mask(values: &[&str]) -> Arc<Mask> {
        let placed = values.iter().enumerate().map(|(number, value)| Placed {
            secret: NewSecret {
                name: format!("KEY{number}"),
                value: (*value).to_owned(),
                hosts: vec!["a.test".to_owned()],
                places: Vec::new(),
            }
            .check()
            .unwrap(),
            placeholder: format!("<{number}>"),
        });
        SessionSecrets::new(placed.collect()).mask.unwrap()
    }

    fn streamed(mask: &Arc<Mask>, bytes: &[u8], chunk: usize) -> Vec<u8> {
        let mut covered = Covered::new(Arc::clone(mask));
        let mut out = Vec::new();
        for chunk in bytes.chunks(chunk) {
            out.extend_from_slice(&covered.push(Bytes::copy_from_slice(chunk)));
        }
        out.extend_from_slice(&covered.finish());
        out
    }

    #[test]
    fn a_value_is_found_in_every_form_and_however_it_is_cut() {
        let mask = mask(&[VALUE]);
        let percent = utf8_percent_encode(VALUE, NON_ALPHANUMERIC).to_string();
        let forms = [
            VALUE.to_owned(),
            serde_json::to_string(VALUE).unwrap(),
            percent.clone(),
            lower_escapes(&percent),
            VALUE.replace('"', "&quot;"),
            VALUE
                .bytes()
                .flat_map(|byte| format!("{byte:02X}").into_bytes())
                .map(char::from)
                .collect(),
        ];
        for form in &forms {
            let whole = format!("sk-{form}sk-sk-A{form}sk-");
            for chunk in [1, 2, 3, 7, whole.len()] {
                let out = String::from_utf8(streamed(&mask, whole.as_bytes(), chunk)).unwrap();
                assert!(!out.contains(form.trim_matches('"')), "{chunk}: {out}");
                assert_eq!(out.matches("<0>").count(), 2, "{chunk}: {out}");
                assert!(out.starts_with("sk-") && out.ends_with("sk-"), "{out}");
            }
            assert_eq!(mask.text(&whole).unwrap().matches("<0>").count(), 2);
        }
        assert_eq!(mask.text("sk-sk-"), None);
    }

    #[test]
    fn base64_of_a_value_with_anything_around_it_is_found() {
        let mask = mask(&[VALUE]);
        for before in ["", "u", "us", "use:", "user:"] {
            for after in ["", "x", "xy", "xyz"] {
                let text = format!("{before}{VALUE}{after}");
                for encoded in [STANDARD_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    let out = mask.text(&encoded).unwrap_or_default();
                    assert_eq!(out.matches("<0>").count(), 1, "{before} {after}: {out}");
                    // What is left has none of the value but bits of its ends.
                    assert!(
                        out.len() <= "<0>".len() + 8 + before.len() * 2 + after.len() * 2,
                        "{out}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_value_that_begins_another_one_hides_all_of_it() {
        let mask = mask(&["abcdefgh", "abcdefgh-ijklmnop", "mnop-qrst"]);
        for chunk in 1..20 {
            let out = streamed(&mask, b"xabcdefgh-ijklmnop-qrst abcdefgh-ij", chunk);
            let out = String::from_utf8(out).unwrap();
            assert_eq!(out, "x<1>-qrst <0>-ij", "{chunk}");
        }
    }

    #[test]
    fn what_is_no_value_passes_at_once_and_unchanged() {
        let mask = mask(&[VALUE]);
        let mut covered = Covered::new(Arc::clone(&mask));
        assert_eq!(&covered.push(Bytes::from_static(b"data: {}\n\n"))[..], b"data: {}\n\n");
        assert_eq!(&covered.push(Bytes::from_static(b"a sk-s"))[..], b"a ");
        assert_eq!(&covered.push(Bytes::from_static(b"x"))[..], b"sk-sx");
        let bytes: Vec<u8> = (0..=255).cycle().take(5_000).collect();
        for chunk in [1, 64, 5_000] {
            assert_eq!(streamed(&mask, &bytes, chunk), bytes);
        }
    }

    #[test]
    fn a_value_is_found_in_the_name_of_a_header() {
        let mask = mask(&["Token-Of-Mine"]);
        assert!(mask.is_in_name("x-token-of-mine") && !mask.is_in_name("x-token-of"));
    }

    #[test]
    fn a_stream_may_keep_its_length() {
        let mask = mask(&[VALUE]);
        let mut covered = Covered::of_equal_length(Arc::clone(&mask));
        let whole = format!("a{VALUE}b");
        let mut out = Vec::new();
        for byte in whole.bytes() {
            out.extend_from_slice(&covered.push(Bytes::copy_from_slice(&[byte])));
        }
        out.extend_from_slice(&covered.finish());
        assert_eq!(String::from_utf8(out).unwrap(), format!("a{}b", "*".repeat(VALUE.len())));
    }
}
