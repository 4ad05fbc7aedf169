//! The index of packages: pages that list the files of a project, and the files.
//!
//! Its own address is the operator's and may be private. What its pages link to elsewhere goes
//! through the guard of downloads, without the operator's credentials: to a public address, or to
//! one that the index has too, at its port, as in networks where one server stands for several.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderName};
use rustls::RootCertStore;
use url::Url;
use woma_sandbox::sync::lock;

use super::PackageSettings;
use super::files::{FileCache, Kept, measured};
use super::page::{self, IndexFile, Metadata, Page, Source, read_page};
use crate::model::caller::CallerId;
use crate::model::{PackageError, PackageProblem};
use crate::net::fetch::{FetchError, FetchRules, Fetcher, Resolve, system_resolver};
use crate::net::tls;

/// Size of a page, in bytes.
const PAGE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Pages that are kept.
const PAGES_MAX: usize = 200;
/// Requests to the index at once, shared among callers.
const REQUESTS_AT_ONCE: usize = 32;
/// How long the index may send nothing.
const STALL_MAX: Duration = Duration::from_secs(20);
const PAGE_TYPES: &str = "application/vnd.pypi.simple.v1+json, \
     application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

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
            let listing = move || page::of_folder(&folder, &project);
            let listed = tokio::task::spawn_blocking(listing).await;
            page.files = listed.map_err(std::io::Error::other).flatten().map_err(|error| {
                index_error(format!("PACKAGE_WHEELHOUSE cannot be read: {error}"))
            })?;
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
                Err(error @ FetchError::AddressRefused { .. })
                    if url.port_or_known_default() == self.url.port_or_known_default() =>
                {
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

    use url::Url;

    use super::Upstream;
    use crate::net::fetch::FetchRules;

    #[test]
    fn credentials_of_the_address_become_a_header() {
        let url = Url::parse("https://ann:p%40ss@index.example/simple").unwrap();
        let upstream = Upstream::new(url, None, &FetchRules::default(), &RootCertStore::empty());
        assert_eq!(upstream.url.as_str(), "https://index.example/simple/");
        assert_eq!(upstream.authorization.as_deref(), Some("Basic YW5uOnBAc3M="));
    }
}
