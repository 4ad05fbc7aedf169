//! The files of a project: as a page of the index lists them, or as they lie in a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::html;
use super::names::key;

/// Files of a page.
const PAGE_FILES_MAX: usize = 50_000;
/// Longest name of a file, in bytes.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The files of a project.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) files: Vec<IndexFile>,
}

/// One file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexFile {
    pub(crate) name: String,
    pub(super) source: Source,
    /// As the page announces it.
    pub(crate) sha256: Option<String>,
    pub(crate) requires_python: Option<String>,
    pub(crate) yanked: Option<Value>,
    pub(crate) metadata: Metadata,
}

/// A file with the metadata of a wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// No such file.
    Absent,
    /// A file of which the page announces no digest.
    Present,
    Digest(String),
}

/// The place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Url(Url),
    Path(PathBuf),
}

#[derive(Deserialize)]
struct JsonPage {
    files: Vec<JsonFile>,
}

#[derive(Deserialize)]
struct JsonFile {
    filename: String,
    url: String,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
    #[serde(rename = "requires-python")]
    requires_python: Option<String>,
    #[serde(default)]
    yanked: Value,
    #[serde(rename = "core-metadata", alias = "dist-info-metadata", default)]
    metadata: Value,
}

/// Reads a page of an index, of JSON or HTML; `None` if it cannot be read.
pub(super) fn read_page(
    body: &[u8],
    is_json: bool,
    page: &Url,
    project: &str,
) -> Option<Vec<IndexFile>> {
    let mut files = Vec::new();
    if is_json {
        let read: JsonPage = serde_json::from_slice(body).ok()?;
        for file in read.files.into_iter().take(PAGE_FILES_MAX) {
            let metadata = match &file.metadata {
                Value::Bool(true) => Metadata::Present,
                Value::Object(hashes) => match hashes.get("sha256").and_then(Value::as_str) {
                    Some(sha256) => Metadata::Digest(sha256.to_owned()),
                    None => Metadata::Present,
                },
                _ => Metadata::Absent,
            };
            let is_yanked = !matches!(file.yanked, Value::Null | Value::Bool(false));
            files.push(IndexFile {
                name: file.filename,
                source: Source::Url(page.join(&file.url).ok()?),
                sha256: file.hashes.get("sha256").cloned(),
                requires_python: file.requires_python,
                yanked: is_yanked.then_some(file.yanked),
                metadata,
            });
        }
    } else {
        let text = String::from_utf8_lossy(body);
        let (base, links) = html::links(&text, page, PAGE_FILES_MAX);
        for link in links {
            let Ok(mut url) = base.join(&link.address) else { continue };
            let sha256 = url.fragment().and_then(|text| text.strip_prefix("sha256="));
            let sha256 = sha256.map(str::to_owned);
            url.set_fragment(None);
            let name = url.path().rsplit('/').next().unwrap_or_default();
            let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned();
            let metadata = link.attribute("data-core-metadata");
            let metadata = metadata.or_else(|| link.attribute("data-dist-info-metadata"));
            files.push(IndexFile {
                name,
                source: Source::Url(url),
                sha256,
                requires_python: link.attribute("data-requires-python").map(str::to_owned),
                yanked: link.attribute("data-yanked").map(Value::from),
                metadata: match metadata.map(|text| (text, text.strip_prefix("sha256="))) {
                    None => Metadata::Absent,
                    Some((_, Some(sha256))) => Metadata::Digest(sha256.to_owned()),
                    Some((_, None)) => Metadata::Present,
                },
            });
        }
    }
    files.retain(|file| is_file_of(&file.name, project));
    Some(files)
}

/// The files of a project in a folder of wheels.
pub(super) fn of_folder(folder: &Path, project: &str) -> io::Result<Vec<IndexFile>> {
    let entries = fs::read_dir(folder)?;
    let named = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        is_file_of(&name, project).then(|| IndexFile {
            name,
            source: Source::Path(entry.path()),
            sha256: None,
            requires_python: None,
            yanked: None,
            metadata: Metadata::Absent,
        })
    });
    Ok(named.take(PAGE_FILES_MAX).collect())
}

/// Whether a file has the name of a wheel or of a source archive of this project.
fn is_file_of(name: &str, project: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+!".contains(c);
    if name.len() > FILE_NAME_BYTES_MAX || !name.chars().all(plain) {
        return false;
    }
    match wheel(name) {
        Some((of, _)) => of == project,
        None => {
            let stem = name.strip_suffix(".tar.gz").or_else(|| name.strip_suffix(".zip"));
            stem.and_then(|stem| stem.rsplit_once('-')).is_some_and(|(of, _)| key(of) == project)
        }
    }
}

/// The project and the version that the name of a wheel has.
pub(crate) fn wheel(name: &str) -> Option<(String, String)> {
    let mut parts = name.strip_suffix(".whl")?.split('-');
    let (project, version) = (parts.next()?, parts.next()?);
    (2..=4).contains(&parts.count()).then(|| (key(project), version.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::{Metadata, Source, is_file_of, read_page, wheel};

    const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn reads_pages_in_both_formats() {
        let page = Url::parse("http://index/simple/some-thing/").unwrap();
        let html = format!(
            "<a href='../../f/Some_Thing-1.0-py3-none-any.whl#sha256={HASH}' \
             data-core-metadata='sha256={HASH}' data-requires-python='&gt;=3.8'>w</a>\
             <a href='/f/some_thing-1.0.tar.gz' data-yanked='bad'>s</a><a href='x-1.tar.gz'>other</a>"
        );
        let json = json!({"files": [
            {"filename": "Some_Thing-1.0-py3-none-any.whl", "url": "/f/Some_Thing-1.0-py3-none-any.whl",
             "hashes": {"sha256": HASH}, "requires-python": ">=3.8", "core-metadata": {"sha256": HASH}},
            {"filename": "some_thing-1.0.tar.gz", "url": "http://index/f/some_thing-1.0.tar.gz",
             "hashes": {}, "yanked": "bad"},
            {"filename": "../../x-1.tar.gz", "url": "x"},
        ]});
        let from_html = read_page(html.as_bytes(), false, &page, "some-thing").unwrap();
        let from_json = read_page(json.to_string().as_bytes(), true, &page, "some-thing").unwrap();
        assert_eq!(from_html, from_json);
        assert_eq!(from_html.len(), 2);
        assert_eq!(from_html[0].sha256.as_deref(), Some(HASH));
        assert_eq!(from_html[0].metadata, Metadata::Digest(HASH.to_owned()));
        let url = Url::parse("http://index/f/Some_Thing-1.0-py3-none-any.whl").unwrap();
        assert_eq!(from_html[0].source, Source::Url(url));
        assert!(read_page(b"{", true, &page, "x").is_none());
    }

    #[test]
    fn files_belong_to_their_project() {
        assert_eq!(wheel("A_b-1.0-py3-none-any.whl"), Some(("a-b".to_owned(), "1.0".to_owned())));
        for (name, is_of) in [
            ("a_b-1.0-py3-none-any.whl", true),
            ("a_b-1.0-1-cp311-cp311-linux_x86_64.whl", true),
            ("a-b-1.0.tar.gz", true),
            ("a_b-1.0.whl", false),
            ("ab-1.0-py3-none-any.whl", false),
            ("a_b-1.0-py3-none-any.whl/../x", false),
            ("a_b-1.0.exe", false),
        ] {
            assert_eq!(is_file_of(name, "a-b"), is_of, "{name}");
        }
    }

    #[test]
    fn fuzz_pages() {
        const WORDS: &[&str] = &[
            "<a href='",
            "<a href=\"",
            "'>",
            "</a>",
            "<base href=",
            "<!--",
            "-->",
            "<",
            ">",
            "&amp;",
            "some_thing-1.0-py3-none-any.whl",
            "some-thing-1.0.tar.gz",
            "#sha256=",
            "data-yanked",
            "data-core-metadata=",
            "data-requires-python='&gt;=3'",
            "{\"files\":[",
            "\"filename\":",
            "\"url\":",
            "\"hashes\":{\"sha256\":",
            "../",
            "%2f",
            "file:///etc/passwd",
            "javascript:",
        ];
        let page = Url::parse("http://index.test/simple/some-thing/").unwrap();
        woma_fuzz::Target { name: "pages", words: WORDS }.run(move |bytes| {
            for is_json in [true, false] {
                for file in read_page(bytes, is_json, &page, "some-thing").unwrap_or_default() {
                    assert!(!file.name.contains(['/', '\\', '\0']), "{file:?}");
                    assert!(!file.name.is_empty() && !file.name.starts_with('.'), "{file:?}");
                    assert!(matches!(file.source, Source::Url(_)), "{file:?}");
                }
            }
        });
    }

    /// As long as a page may be, such text once took days.
    #[test]
    fn hostile_pages_take_linear_time() {
        let page = Url::parse("http://index.test/simple/some-thing/").unwrap();
        for unit in ["<", "<a href='", "<!--", "<a ", "<a href=x>", "'<\"", "< >"] {
            let read = |bytes: usize| {
                let text = unit.repeat(bytes / unit.len());
                let started = std::time::Instant::now();
                read_page(text.as_bytes(), false, &page, "some-thing").unwrap();
                started.elapsed()
            };
            let (short, long) = (read(1 << 18), read(1 << 20));
            let most = short * 12 + std::time::Duration::from_millis(200);
            assert!(long < most, "{unit:?}: {short:?} for a quarter, {long:?}");
        }
    }
}
