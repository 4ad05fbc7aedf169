//! Name of a downloaded file: the last segment of its URL, sanitized.

use percent_encoding::percent_decode_str;
use url::Url;

/// Name of a file whose URL has no usable one.
pub const NAMELESS: &str = "downloaded_file";

/// Limit of most file systems.
const NAME_BYTES_MAX: usize = 255;
/// A longer extension counts as a part of the name.
const EXTENSION_BYTES_MAX: usize = 16;

/// Name from the requested URL, or from the final one if the first has none.
pub(super) fn file_name(asked: &Url, last: &Url) -> String {
    let usable = |url: &Url| sanitized(url.path_segments()?.next_back()?);
    usable(asked).or_else(|| usable(last)).unwrap_or_else(|| NAMELESS.to_owned())
}

fn sanitized(segment: &str) -> Option<String> {
    let decoded = percent_decode_str(segment).decode_utf8_lossy();
    let base = decoded.rsplit(['/', '\\']).next()?;
    let shown: String = base.chars().filter(|c| !c.is_control() && !is_bidi_control(*c)).collect();
    let name = shortened(shown.trim());
    (!name.is_empty() && !name.starts_with('.')).then_some(name)
}

/// Whether it changes the direction of text, which displays `txt.exe` as `exe.txt`.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Cuts a long name before its extension.
fn shortened(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let extension = name.rfind('.').map_or("", |dot| &name[dot..]);
    let extension = if extension.len() <= EXTENSION_BYTES_MAX { extension } else { "" };
    let stem = name.floor_char_boundary(NAME_BYTES_MAX - extension.len());
    format!("{}{extension}", &name[..stem])
}
