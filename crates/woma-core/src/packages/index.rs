//! The index of packages: pages that list the files of a project, and the files.
//!
//! Its own address is the operator's and may be private. What its pages link to elsewhere goes
//! through the guard of downloads, without the operator's credentials: to a public address, or to
//! one that the index has too, as in networks where one server stands for several.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderName};
use rustls::RootCertStore;
use serde::Deserialize;
use serde_json::Value;
use url::Url;
use woma_sandbox::sync::lock;

use super::PackageSettings;
use super::files::{FileCache, Kept, measured};
use super::html;
use super::names::key;
use crate::model::caller::CallerId;
use crate::model::{PackageError, PackageProblem};
use crate::net::fetch::{FetchError, FetchRules, Fetcher, Resolve, system_resolver};
use crate::net::tls;

/// Size of a page, in bytes.
const PAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Files of a page.
const PAGE_FILES_MAX: usize = 50_000;
/// Pages that are kept.
const PAGES_MAX: usize = 200;
/// Longest name of a file, in bytes.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Requests to the index at once, shared among callers.
const REQUESTS_AT_ONCE: usize = 32;
/// How long the index may send nothing.
const STALL_MAX: Duration = Duration::from_secs(20);
const PAGE_TYPES: &str = "application/vnd.pypi.simple.v1+json, \
     application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// The files of a project.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) files: Vec<IndexFile>,
}

/// One file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexFile {
    pub(crate) name: String,
    source: Source,
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

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Url(Url),
    Path(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Index {
    /// Certificate authorities, or why they cannot be read.
    roots: Result<RootCertStore, String>,
    /// `None` until a cell has told which one the installer uses.
    upstream: Mutex<Option<Arc<Upstream>>>,
    wheelhouse: Option<PathBuf>,
    pages: Mutex<BTreeMap<String, (Instant, Arc<Page>)>>,
    /// Digests of files whose pages announce none, by address.
    seen: Mutex<BTreeMap<Url, (Instant, String)>>,
    files: Arc<FileCache>,
    fresh: Duration,
    rules: FetchRules,
}

#[derive(Debug)]
struct Upstream {
    url: Url,
    authorization: Option<String>,
    /// For its own origin.
    pages: Fetcher,
    files: Fetcher,
    /// For every other host.
    others: Fetcher,
    /// For other hosts at an address of the index.
    beside: Fetcher,
}

impl Index {
    pub(super) fn new(settings: &PackageSettings, cache: FileCache) -> Self {
        let rules = FetchRules {
            bytes_max: settings.bytes_max,
            time_max: settings.timeout,
            at_once_max: REQUESTS_AT_ONCE,
            grace: STALL_MAX.min(settings.timeout),
            ..FetchRules::default()
        };
        let roots = tls::roots_with(settings.ca_file.as_deref()).map_err(|why| {
            let why = format!("PACKAGE_CA_FILE {why}");
            tracing::warn!("Packages cannot be installed: {why}");
            why
        });
        let configured = settings.index_url.as_deref().and_then(|url| Url::parse(url).ok());
        let authorization = settings.authorization.clone();
        let configured = configured
            .zip(roots.as_ref().ok())
            .map(|(url, roots)| Arc::new(Upstream::new(url, authorization, &rules, roots)));
        Self {
            roots,
            upstream: Mutex::new(configured),
            wheelhouse: settings.wheelhouse.clone(),
            pages: Mutex::default(),
            seen: Mutex::default(),
            files: Arc::new(cache),
            fresh: settings.fresh,
            rules,
        }
    }

    /// Whether it is not known yet where packages come from.
    pub(crate) fn is_unknown(&self) -> bool {
        self.wheelhouse.is_none() && lock(&self.upstream).is_none()
    }

    /// Takes the index that the installer uses by itself. It must be a public one.
    pub(crate) fn set_default(&self, url: &str) -> Result<(), PackageError> {
        let url = Url::parse(url).ok().filter(|url| url.scheme() == "https");
        let Some(url) = url else {
            let error = PackageError::new(PackageProblem::Index, "there is no index of packages");
            return Err(error.with_hint("the operator sets PACKAGE_INDEX_URL"));
        };
        let roots = self.roots.as_ref().map_err(|why| index_error(why.clone()))?;
        let upstream = Upstream::new(url, None, &self.rules, roots);
        lock(&self.upstream).get_or_insert(Arc::new(upstream));
        Ok(())
    }

    /// The files of a project; none if there is no such project.
    pub(crate) async fn page(
        &self,
        owner: &CallerId,
        project: &str,
    ) -> Result<Arc<Page>, PackageError> {
        if let Some((at, page)) = lock(&self.pages).get(project)
            && at.elapsed() < self.fresh
        {
            return Ok(Arc::clone(page));
        }
        let mut page = Page::default();
        if let Some(folder) = self.wheelhouse.clone() {
            let project = project.to_owned();
            let listed = tokio::task::spawn_blocking(move || wheelhouse_files(&folder, &project));
            page.files = listed.await.unwrap_or_default();
        }
        let upstream = lock(&self.upstream).clone();
        if let Some(upstream) = upstream {
            page.files.extend(upstream.page(owner, project).await?);
        }
        let page = Arc::new(page);
        let mut pages = lock(&self.pages);
        if pages.len() >= PAGES_MAX {
            pages.retain(|_, (at, _)| at.elapsed() < self.fresh);
        }
        if pages.len() >= PAGES_MAX {
            pages.clear();
        }
        pages.insert(project.to_owned(), (Instant::now(), Arc::clone(&page)));
        Ok(page)
    }

    /// A file, checked against its digest. `tell` learns that it is being downloaded.
    pub(crate) async fn file(
        &self,
        owner: &CallerId,
        file: &IndexFile,
        tell: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Kept, PackageError> {
        let url = match &file.source {
            Source::Url(url) => url,
            Source::Path(path) => {
                let path = path.clone();
                let kept = tokio::task::spawn_blocking(move || measured(&path)).await;
                return kept.map_err(std::io::Error::other).flatten().map_err(|error| {
                    let name = &file.name;
                    index_error(format!("`{name}` of the wheelhouse cannot be read: {error}"))
                });
            }
        };
        let turn = self.files.turn(file.sha256.as_deref().unwrap_or(url.as_str())).await;
        if let Some(kept) = self.known(file, url).and_then(|sha256| self.files.find(&sha256)) {
            return Ok(kept);
        }
        let kept = self.download(owner, &file.name, url, tell).await?;
        if let Some(announced) = &file.sha256
            && !announced.eq_ignore_ascii_case(&kept.sha256)
        {
            return Err(index_error(format!(
                "the index announces `{}` with another content than it sends: the SHA-256 differs",
                file.name
            )));
        }
        if file.sha256.is_none() {
            let mut seen = lock(&self.seen);
            seen.retain(|_, (at, _)| at.elapsed() < self.fresh);
            seen.insert(url.clone(), (Instant::now(), kept.sha256.clone()));
        }
        drop(turn);
        Ok(kept)
    }

    /// The metadata of a wheel, where the index has it as a file.
    pub(crate) async fn metadata(
        &self,
        owner: &CallerId,
        file: &IndexFile,
    ) -> Result<Kept, PackageError> {
        let (url, sha256) = match (&file.source, &file.metadata) {
            (Source::Url(url), Metadata::Present) => (url, None),
            (Source::Url(url), Metadata::Digest(sha256)) => (url, Some(sha256.clone())),
            _ => return Err(index_error("there is no such file".to_owned())),
        };
        let mut url = url.clone();
        url.set_path(&format!("{}.metadata", url.path()));
        let metadata = IndexFile {
            name: format!("{}.metadata", file.name),
            source: Source::Url(url),
            sha256,
            ..file.clone()
        };
        self.file(owner, &metadata, &|_| {}).await
    }

    fn known(&self, file: &IndexFile, url: &Url) -> Option<String> {
        let seen = || {
            let seen = lock(&self.seen);
            let (at, sha256) = seen.get(url)?;
            (at.elapsed() < self.fresh).then(|| sha256.clone())
        };
        file.sha256.as_ref().map(|sha256| sha256.to_ascii_lowercase()).or_else(seen)
    }

    async fn download(
        &self,
        owner: &CallerId,
        name: &str,
        url: &Url,
        tell: &(dyn Fn(String) + Send + Sync),
    ) -> Result<Kept, PackageError> {
        let upstream = lock(&self.upstream).clone();
        let upstream = upstream.ok_or_else(|| index_error("there is no index".to_owned()))?;
        let failed = |error: FetchError| fetch_error(name, &error);
        let download = upstream.open(owner, url).await.map_err(failed)?;
        if !name.ends_with(".metadata") {
            tell(match download.length {
                Some(bytes) => format!("Downloading {name} ({})", human(bytes)),
                None => format!("Downloading {name}"),
            });
        }
        let (mut sink, source) = tokio::io::duplex(1 << 18);
        let saving = async move {
            let saved = download.save(&mut sink, &mut |_, _| {}).await;
            drop(sink);
            saved
        };
        let (saved, kept) = tokio::join!(saving, self.files.keep(source));
        // What was kept of a download that broke off has another digest, and is never asked for.
        saved.map_err(failed)?;
        kept.map_err(|error| index_error(format!("`{name}` cannot be stored: {error}")))
    }
}

impl Upstream {
    fn new(
        mut url: Url,
        authorization: Option<String>,
        rules: &FetchRules,
        roots: &RootCertStore,
    ) -> Self {
        let own = (!url.username().is_empty()).then(|| {
            let decoded = |text: &str| {
                percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
            };
            let (name, password) = (decoded(url.username()), url.password().map(decoded));
            let pair = format!("{name}:{}", password.unwrap_or_default());
            format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
        });
        // An address without a host has no user either, and is refused when it is requested.
        url.set_username("").unwrap_or_default();
        url.set_password(None).unwrap_or_default();
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let hosts = url.host_str().map(|host| vec![host.to_owned()]);
        let rules_of_own = FetchRules {
            allow_private: true,
            allowed_hosts: Some(hosts.unwrap_or_default()),
            ..rules.clone()
        };
        let of_pages = FetchRules { bytes_max: PAGE_BYTES_MAX, ..rules_of_own.clone() };
        let of_beside = FetchRules { allow_private: true, ..rules.clone() };
        let fetcher =
            |rules, resolve: Arc<Resolve>| Fetcher::with_roots(rules, resolve, roots.clone());
        Self {
            authorization: authorization.or(own),
            pages: fetcher(of_pages, Arc::new(system_resolver)),
            files: fetcher(rules_of_own, Arc::new(system_resolver)),
            others: fetcher(rules.clone(), Arc::new(system_resolver)),
            beside: fetcher(of_beside, addresses_of(&url)),
            url,
        }
    }

    fn headers(&self) -> Vec<(HeaderName, String)> {
        self.authorization.iter().map(|value| (AUTHORIZATION, value.clone())).collect()
    }

    async fn open(
        &self,
        owner: &CallerId,
        url: &Url,
    ) -> Result<crate::net::fetch::Download, FetchError> {
        match url.origin() == self.url.origin() {
            true => self.files.of(owner).open_with(url.as_str(), &self.headers()).await,
            false => match self.others.of(owner).open(url.as_str()).await {
                Err(error @ FetchError::AddressRefused { .. }) => {
                    match self.beside.of(owner).open(url.as_str()).await {
                        // It has another address: the reason is that one.
                        Err(FetchError::Resolution { .. }) => Err(error),
                        opened => opened,
                    }
                }
                opened => opened,
            },
        }
    }

    async fn page(&self, owner: &CallerId, project: &str) -> Result<Vec<IndexFile>, PackageError> {
        let url = self.url.join(&format!("{project}/"));
        let url = url.map_err(|error| index_error(format!("PACKAGE_INDEX_URL: {error}")))?;
        let mut headers = self.headers();
        headers.push((ACCEPT, PAGE_TYPES.to_owned()));
        let what = format!("the index's page of `{project}`");
        let download = match self.pages.of(owner).open_with(url.as_str(), &headers).await {
            // Some indexes refuse a project that they do not have.
            Err(FetchError::Status(403 | 404 | 410)) => return Ok(Vec::new()),
            other => other.map_err(|error| fetch_error(&what, &error))?,
        };
        let is_json = download.media_type.as_deref().is_some_and(|kind| kind.ends_with("json"));
        let mut body = Vec::new();
        let saved = download.save(&mut body, &mut |_, _| {}).await;
        let page = saved.map_err(|error| fetch_error(&what, &error))?.final_url;
        let page = Url::parse(&page).unwrap_or(url);
        let project = project.to_owned();
        let read = tokio::task::spawn_blocking(move || read_page(&body, is_json, &page, &project));
        let read = read.await.ok().flatten();
        read.ok_or_else(|| index_error(format!("{what} cannot be read")))
    }
}

/// A resolver that knows only names whose every address the host of this URL has too.
fn addresses_of(url: &Url) -> Arc<Resolve> {
    let own = url.host_str().unwrap_or_default().to_owned();
    Arc::new(move |name| {
        let (own, found) = (system_resolver(&own)?, system_resolver(name)?);
        match found.iter().all(|address| own.contains(address)) {
            true => Ok(found),
            false => Err(std::io::ErrorKind::NotFound.into()),
        }
    })
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

fn read_page(body: &[u8], is_json: bool, page: &Url, project: &str) -> Option<Vec<IndexFile>> {
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

fn wheelhouse_files(folder: &std::path::Path, project: &str) -> Vec<IndexFile> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
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
    named.take(PAGE_FILES_MAX).collect()
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

fn index_error(message: String) -> PackageError {
    PackageError::new(PackageProblem::Index, message)
}

fn fetch_error(what: &str, error: &FetchError) -> PackageError {
    // The index is the operator's: callers learn what failed, and not its address.
    let why = match error {
        FetchError::Status(401 | 403) => "the index refuses the server's credentials".to_owned(),
        FetchError::Status(status) => format!("the index answers with status {status}"),
        FetchError::TooLarge { limit_bytes } => format!("it is larger than {limit_bytes} bytes"),
        FetchError::TimedOut { .. } | FetchError::TooSlow(_) => "the index is too slow".to_owned(),
        FetchError::Tls { .. } => "the TLS handshake with the index failed".to_owned(),
        FetchError::Busy { .. } => "too many requests to the index are in progress".to_owned(),
        FetchError::Broken(_) => "the index's response is broken".to_owned(),
        FetchError::Resolution { .. } | FetchError::Connect { .. } => {
            "the index cannot be reached".to_owned()
        }
        _ => "its address is not allowed".to_owned(),
    };
    tracing::warn!(
        error = error as &dyn std::error::Error,
        what,
        "The index of packages has failed"
    );
    let problem = match error {
        FetchError::TooLarge { .. } => PackageProblem::TooLarge,
        _ => PackageProblem::Index,
    };
    PackageError::new(problem, format!("{what} cannot be had: {why}"))
}

/// A size as people read it.
pub(crate) fn human(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;

    use serde_json::json;
    use url::Url;

    use super::{Metadata, Source, Upstream, is_file_of, read_page, wheel};
    use crate::net::fetch::FetchRules;

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
    fn credentials_of_the_address_become_a_header() {
        let url = Url::parse("https://ann:p%40ss@index.example/simple").unwrap();
        let upstream = Upstream::new(url, None, &FetchRules::default(), &RootCertStore::empty());
        assert_eq!(upstream.url.as_str(), "https://index.example/simple/");
        assert_eq!(upstream.authorization.as_deref(), Some("Basic YW5uOnBAc3M="));
    }
}
