//! Paths of files as callers write them, parsed once into a path below the workspace. Parsing does
//! not access the file; [`super::Folder`] opens it without following links.

use std::fmt;

use crate::steward::template::{ALIASES, SESSIONS, WORKSPACE};

/// Longest name of one file or folder, in bytes: what Linux allows.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 4095;
/// Most nested folders.
pub const LEVELS_MAX: usize = 64;
/// Prefix of our own temporary files.
pub(super) const OWN_PREFIX: &str = ".woma-";

/// Path of a file or folder below the workspace: names joined by `/`, without `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspacePath(String);

/// Why a text is not a path below the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("the path is empty")]
    Empty,
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("a name in the path is longer than {NAME_BYTES_MAX} bytes")]
    NameTooLong,
    #[error("the path has more than {LEVELS_MAX} levels")]
    TooDeep,
    #[error("the path has a `..`")]
    Upwards,
    #[error("the path is outside of the session's folder")]
    Outside,
    #[error("the path names another session")]
    OtherSession,
    #[error("the path contains a character that is not allowed in a name")]
    Character,
    #[error("the name is reserved")]
    Reserved,
}

impl WorkspacePath {
    /// Parses paths as people and models write them: relative, below any name of the workspace,
    /// with `~`, as `sandbox:` links, and Windows paths, of which only the last name is used.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        Self::parse_any(text, None)
    }

    /// As [`Self::parse`], but rejects the folder of any session other than the named one.
    pub fn parse_for(text: &str, session: &str) -> Result<Self, BadPath> {
        Self::parse_any(text, Some(session))
    }

    fn parse_any(text: &str, session: Option<&str>) -> Result<Self, BadPath> {
        if text.len() > 2 * PATH_BYTES_MAX {
            return Err(BadPath::TooLong);
        }
        let text = text.strip_prefix("sandbox:").unwrap_or(text);
        let text = text.strip_prefix("file://").unwrap_or(text);
        if is_windows(text) {
            return Self::of_names(basename(text));
        }
        if let Some(below) = text.strip_prefix('~')
            && (below.is_empty() || below.starts_with('/'))
        {
            return Self::of_names(below);
        }
        if !text.starts_with('/') {
            return Self::of_names(text);
        }
        let absolute = Self::of_names(text)?;
        let mut known = ALIASES.iter().copied().chain([WORKSPACE]);
        let below = known.find_map(|alias| below(&absolute.0, alias));
        if let Some(below) = below {
            return Self::of_names(below);
        }
        let Some(named) = self::below(&absolute.0, SESSIONS) else { return Err(BadPath::Outside) };
        let (name, below) = named.split_once('/').unwrap_or((named, ""));
        match session {
            Some(session) if session != name => Err(BadPath::OtherSession),
            _ => Self::of_names(below),
        }
    }

    fn of_names(text: &str) -> Result<Self, BadPath> {
        let mut path = String::with_capacity(text.len());
        let mut levels = 0;
        for name in text.split('/').filter(|name| !matches!(*name, "" | ".")) {
            check_name(name)?;
            levels += 1;
            if levels > 1 {
                path.push('/');
            }
            path.push_str(name);
        }
        match path.len() {
            0 => Err(BadPath::Empty),
            length if length > PATH_BYTES_MAX => Err(BadPath::TooLong),
            _ if levels > LEVELS_MAX => Err(BadPath::TooDeep),
            _ => Ok(Self(path)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.split().1
    }

    /// The folders above, outermost first.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.split().0.split('/').filter(|name| !name.is_empty())
    }

    /// Parent folder, empty for the workspace itself, and the last name.
    pub(super) fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn check_name(name: &str) -> Result<(), BadPath> {
    if name == ".." {
        return Err(BadPath::Upwards);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(BadPath::NameTooLong);
    }
    if name.starts_with(OWN_PREFIX) {
        return Err(BadPath::Reserved);
    }
    if name.contains(|character| character == '\\' || is_deceptive(character)) {
        return Err(BadPath::Character);
    }
    Ok(())
}

/// Characters that break a line, a terminal, or the order in which a name is read.
fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// `C:\x`, `c:/x`, `\\server\x`.
fn is_windows(text: &str) -> bool {
    let bytes = text.as_bytes();
    let drive = matches!(bytes, [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    drive || text.starts_with("\\\\")
}

fn basename(text: &str) -> &str {
    text.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// Path relative to a folder; both are absolute, the first without its leading slash.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_start_matches('/'))?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

/// Safe name for an uploaded file: its last component, without control characters and shortened to
/// the longest allowed name. `None` if nothing is left or the name is hidden.
pub fn sanitised(name: &str) -> Option<String> {
    let kept: String = basename(name).chars().filter(|c| !is_deceptive(*c)).collect();
    let kept = kept.trim();
    if kept.is_empty() || kept.starts_with('.') {
        return None;
    }
    Some(shortened(kept))
}

/// Shortens a name to the allowed length; keeps the extension.
fn shortened(name: &str) -> String {
    const EXTENSION_BYTES_MAX: usize = 16;
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let extension = match name.rsplit_once('.') {
        Some((_, extension)) if extension.len() < EXTENSION_BYTES_MAX => format!(".{extension}"),
        _ => String::new(),
    };
    let stem = name.floor_char_boundary(NAME_BYTES_MAX - extension.len());
    name.get(..stem).unwrap_or_default().to_owned() + &extension
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_paths_as_people_write_them() {
        for (text, path) in [
            ("x.csv", "x.csv"),
            ("./x.csv", "x.csv"),
            ("sub//x.csv", "sub/x.csv"),
            ("sub/", "sub"),
            ("/tmp/x", "x"),
            ("/tmp/a/x.csv", "a/x.csv"),
            ("/var/tmp/x", "x"),
            ("/temp/x", "x"),
            ("/mnt/data/x", "x"),
            ("//mnt/./data/x", "x"),
            ("/workspace/a/b", "a/b"),
            ("/content/x", "x"),
            ("/mnt/user-data/outputs/x", "x"),
            ("/data/x", "x"),
            ("/home/user/x", "x"),
            ("/app/sandbox_data/any-session/a/x", "a/x"),
            ("~/x", "x"),
            ("~$open.xlsx", "~$open.xlsx"),
            ("sandbox:/mnt/data/chart 1.png", "chart 1.png"),
            ("file:///tmp/x", "x"),
            (r"C:\Users\me\x.csv", "x.csv"),
            ("c:/Users/me/x.csv", "x.csv"),
            (r"\\server\share\x.csv", "x.csv"),
            ("报告 📈.csv", "报告 📈.csv"),
            ("...", "..."),
            ("-rf", "-rf"),
            (".hidden", ".hidden"),
            ("tmp/x", "tmp/x"),
        ] {
            let parsed = WorkspacePath::parse(text);
            assert_eq!(parsed.as_ref().map(WorkspacePath::as_str), Ok(path), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_paths() {
        let long_name = "a".repeat(256);
        let deep = "a/".repeat(65);
        let long = vec!["a".repeat(200); 21].join("/");
        for (text, why) in [
            ("", BadPath::Empty),
            ("/", BadPath::Empty),
            (".", BadPath::Empty),
            ("/tmp", BadPath::Empty),
            ("/tmp/", BadPath::Empty),
            ("/app/sandbox_data/x", BadPath::Empty),
            (r"C:\", BadPath::Empty),
            ("..", BadPath::Upwards),
            ("a/../b", BadPath::Upwards),
            ("/tmp/../etc/passwd", BadPath::Upwards),
            (r"C:\..", BadPath::Upwards),
            ("/etc/passwd", BadPath::Outside),
            ("/tmpfoo", BadPath::Outside),
            ("/app/sandbox_database/x/y", BadPath::Outside),
            ("/proc/self/mem", BadPath::Outside),
            ("a\0b", BadPath::Character),
            ("a\nb", BadPath::Character),
            ("\u{1b}[2J", BadPath::Character),
            ("\u{202e}gnp.exe", BadPath::Character),
            (r"a\b", BadPath::Character),
            (".woma-1", BadPath::Reserved),
            (&long_name, BadPath::NameTooLong),
            (&deep, BadPath::TooDeep),
            (&long, BadPath::TooLong),
        ] {
            assert_eq!(WorkspacePath::parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn rejects_paths_of_other_sessions() {
        let parse = |text| WorkspacePath::parse_for(text, "mine").map(|path| path.0);
        assert_eq!(parse("/app/sandbox_data/mine/x"), Ok("x".to_owned()));
        assert_eq!(parse("/app/sandbox_data/yours/x"), Err(BadPath::OtherSession));
        assert_eq!(parse("yours/x"), Ok("yours/x".to_owned()));
    }

    #[test]
    fn parts() {
        let path = WorkspacePath::parse("a/b/c.txt").unwrap();
        assert_eq!((path.name(), path.folders().collect::<Vec<_>>()), ("c.txt", vec!["a", "b"]));
        let path = WorkspacePath::parse("c.txt").unwrap();
        assert_eq!((path.name(), path.folders().count()), ("c.txt", 0));
    }

    #[test]
    fn sanitises_names_of_uploads() {
        let long = "é".repeat(200) + ".csv";
        let shortened = "é".repeat(125) + ".csv";
        for (name, safe) in [
            ("x.csv", Some("x.csv")),
            ("../../etc/cron.d/x", Some("x")),
            (r"C:\Users\me\x.csv", Some("x.csv")),
            ("a\r\nb\u{202e}.csv", Some("ab.csv")),
            ("  spaced.csv ", Some("spaced.csv")),
            ("..", None),
            (".bashrc", None),
            ("", None),
            ("a/", None),
            ("\0", None),
            (&long, Some(shortened.as_str())),
        ] {
            assert_eq!(sanitised(name).as_deref(), safe, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn accepted_paths_stay_below_the_workspace(text in "\\PC*|[./~a\\\\:]{0,24}|(/tmp|/app/sandbox_data|C:)[./a\\\\]{0,12}") {
            if let Ok(path) = WorkspacePath::parse(&text) {
                prop_assert!(!path.as_str().starts_with('/') && !path.as_str().is_empty());
                prop_assert!(path.as_str().split('/').all(|name| !matches!(name, "" | "." | "..")));
                prop_assert!(!path.as_str().contains(['\0', '\\', '\n']));
                prop_assert_eq!(WorkspacePath::parse(&format!("./{path}")), Ok(path));
            }
            if let Some(name) = sanitised(&text) {
                prop_assert_eq!(WorkspacePath::parse(&format!("./{name}")).map(|p| p.0), Ok(name));
            }
        }
    }

    #[test]
    fn fuzz_paths() {
        const WORDS: &[&str] = &[
            "..",
            "/",
            "//",
            "./",
            "~",
            "~/",
            "sandbox:",
            "file://",
            "/tmp",
            "/mnt/data",
            "C:\\",
            "\\\\",
            "/app/sandbox_data/",
            "mine",
            ".woma-",
            "\u{202e}",
            "\u{0}",
            "%2e%2e",
            "é",
        ];
        woma_fuzz::Target { name: "paths", words: WORDS }.run(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            for path in [WorkspacePath::parse(&text), WorkspacePath::parse_for(&text, "mine")] {
                let Ok(path) = path else { continue };
                let shown = path.as_str();
                assert!(!shown.is_empty() && shown.len() <= PATH_BYTES_MAX, "{shown:?}");
                assert!(shown.split('/').count() <= LEVELS_MAX, "{shown:?}");
                for name in shown.split('/') {
                    assert!(!matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX);
                    assert!(!name.starts_with(OWN_PREFIX) && !name.contains(is_deceptive));
                }
                assert_eq!(WorkspacePath::parse(&format!("./{path}")), Ok(path));
            }
            if let Some(name) = sanitised(&text) {
                assert!(
                    !name.contains('/') && !name.starts_with('.') && name.len() <= NAME_BYTES_MAX
                );
                assert!(!name.contains(is_deceptive), "{name:?}");
            }
        });
    }
}
