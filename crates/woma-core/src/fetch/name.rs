//! What a downloaded file is called: the last part of its address, made harmless.

use percent_encoding::percent_decode_str;
use url::Url;

/// The name of a file whose address has none that can be used.
pub const NAMELESS: &str = "downloaded_file";

/// What file systems take.
const NAME_BYTES_MAX: usize = 255;
/// A longer ending is no kind of file, but a part of the name.
const ENDING_BYTES_MAX: usize = 16;

/// The name that the address was asked for under counts; where it has none, that which the
/// redirects led to.
pub(super) fn file_name(asked: &Url, last: &Url) -> String {
    let usable = |url: &Url| harmless(url.path_segments()?.next_back()?);
    usable(asked).or_else(|| usable(last)).unwrap_or_else(|| NAMELESS.to_owned())
}

fn harmless(segment: &str) -> Option<String> {
    let decoded = percent_decode_str(segment).decode_utf8_lossy();
    let base = decoded.rsplit(['/', '\\']).next()?;
    let shown: String = base.chars().filter(|c| !c.is_control() && !turns_text(*c)).collect();
    let name = shortened(shown.trim());
    (!name.is_empty() && !name.starts_with('.')).then_some(name)
}

/// Marks that change the direction of text, so that `exe.txt` is shown for `txt.exe`.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Cut before its ending, which tells what kind of file it is.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let ending = name.rfind('.').map_or("", |dot| &name[dot..]);
    let ending = if ending.len() <= ENDING_BYTES_MAX { ending } else { "" };
    let stem = name.floor_char_boundary(NAME_BYTES_MAX - ending.len());
    format!("{}{ending}", &name[..stem])
}
