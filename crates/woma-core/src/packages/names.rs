//! Requirements as callers write them, and the names that are refused.

use super::known_names::{KNOWN, POPULAR, STANDARD};
use crate::model::{PackageError, PackageProblem};

/// Characters of a name.
const NAME_CHARS_MAX: usize = 100;
/// Characters of one requirement.
const REQUIREMENT_CHARS_MAX: usize = 400;
/// Constraints of one request.
const CONSTRAINTS_MAX: usize = 1_000;
/// Requirements of one request.
const REQUIREMENTS_MAX: usize = 100;
/// Shortest name for which a name that differs in one letter is suspicious.
const POPULAR_CHARS_MIN: usize = 5;

/// The installers themselves, which programs like to upgrade: the session's own stay.
const INSTALLERS: &[&str] = &["pip", "uv"];

/// A requirement: a name, extras, versions and a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// As [`key`] writes it.
    pub(crate) key: String,
    /// The whole requirement, without spaces.
    pub(crate) text: String,
    /// Version of a requirement that has `==` and nothing else.
    pub(crate) exact: Option<String>,
    /// Whether it is a name and nothing else.
    pub(crate) is_bare: bool,
}

/// A name as indexes compare it: in lower case, with `-` for every separator.
pub(crate) fn key(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if key.ends_with('-') => {}
            '-' | '_' | '.' => key.push('-'),
            other => key.push(other.to_ascii_lowercase()),
        }
    }
    key
}

/// Reads the requirements of a request and checks their names.
pub(crate) fn requirements(
    texts: &[String],
    blocked: &[String],
) -> Result<Vec<Requirement>, PackageError> {
    let mut found: Vec<Requirement> = Vec::new();
    for text in texts.iter().flat_map(|text| split(text)) {
        let requirement = parse(&text)?;
        if INSTALLERS.contains(&requirement.key.as_str()) {
            continue;
        }
        check(&requirement, blocked)?;
        if !found.contains(&requirement) {
            found.push(requirement);
        }
        if found.len() > REQUIREMENTS_MAX {
            let message = format!("a request may name {REQUIREMENTS_MAX} packages");
            return Err(PackageError::new(PackageProblem::TooMany, message));
        }
    }
    Ok(found)
}

/// Checks the form of constraints. They install nothing, so any name may be in them.
pub(crate) fn check_constraints(texts: &[String]) -> Result<(), PackageError> {
    if texts.len() > CONSTRAINTS_MAX {
        let message = format!("a request may have {CONSTRAINTS_MAX} constraints");
        return Err(PackageError::new(PackageProblem::TooMany, message));
    }
    texts.iter().try_for_each(|text| parse(text).map(drop))
}

/// Splits `pandas requests >= 2` into its requirements.
fn split(text: &str) -> Vec<String> {
    const OPERATORS: [char; 5] = ['=', '<', '>', '!', '~'];
    let has_version = |part: &str| part.contains(OPERATORS) || part.contains('[');
    let mut parts: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if let Some(last) = parts.last_mut() {
            let has_marker = last.contains(';');
            let is_open = last.ends_with(OPERATORS)
                || last.ends_with('[')
                || (last.ends_with(',') && has_version(last));
            if has_marker || is_open || word.starts_with(OPERATORS) || word.starts_with(['[', ';'])
            {
                if has_marker {
                    last.push(' ');
                }
                last.push_str(word);
                continue;
            }
        }
        match has_version(word) {
            true => parts.push(word.to_owned()),
            // `a, b` is a list as well.
            false => parts.extend(word.split(',').map(str::to_owned)),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn parse(text: &str) -> Result<Requirement, PackageError> {
    let shown: String = text.chars().take(NAME_CHARS_MAX).collect();
    let refused = |why: &str| {
        PackageError::new(
            PackageProblem::BadName,
            format!("`{shown}` is not the name of a package: {why}"),
        )
        .with_hint("name packages as their index does, such as `requests` or `requests>=2.28.0`")
    };
    if text.starts_with('-') {
        return Err(refused("options are not accepted"));
    }
    if text.contains("://")
        || text.contains('@')
        || text.contains(['/', '\\'])
        || text.starts_with('.')
    {
        return Err(refused("addresses and paths are not accepted"));
    }
    if text.chars().count() > REQUIREMENT_CHARS_MAX || !text.is_ascii() {
        return Err(refused("it has characters that no name has, or too many"));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let ends = |c: char| c.is_ascii_alphanumeric();
    if name.is_empty() || name.len() > NAME_CHARS_MAX {
        return Err(refused("a name has 1 to 100 letters, digits, `-`, `_` and `.`"));
    }
    if !name.starts_with(ends) || !name.ends_with(ends) {
        return Err(refused("a name begins and ends with a letter or a digit"));
    }
    let (versions, marker) = rest.split_once(';').unwrap_or((rest, ""));
    let is_of_version = |c: char| c.is_ascii_alphanumeric() || "[]=<>!~.,*+-_() ".contains(c);
    let is_of_marker = |c: char| c.is_ascii_alphanumeric() || "=<>!~.,*+-_()'\" ".contains(c);
    if !versions.chars().all(is_of_version) || !marker.chars().all(is_of_marker) {
        return Err(refused("what follows it is not a version"));
    }
    let exact = versions.strip_prefix("==").filter(|version| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_' | '!');
        !version.is_empty() && marker.is_empty() && version.chars().all(plain)
    });
    Ok(Requirement {
        key: key(name),
        exact: exact.map(str::to_owned),
        is_bare: rest.is_empty(),
        text: text.to_owned(),
    })
}

fn check(requirement: &Requirement, blocked: &[String]) -> Result<(), PackageError> {
    let name = requirement.key.as_str();
    if blocked.iter().any(|one| key(one) == name) {
        let message = format!("Package {name} is blocked for security reasons");
        let error = PackageError::new(PackageProblem::Blocked, message);
        return Err(match STANDARD.contains(&name) {
            true => error.with_hint(format!("`{name}` is a part of Python: import it")),
            false => error.with_hint("the operator's BLOCKED_PACKAGES has it"),
        });
    }
    if STANDARD.contains(&name) {
        let message = format!("`{name}` is a part of Python: there is nothing to install");
        let error = PackageError::new(PackageProblem::Blocked, message);
        return Err(error.with_hint(format!("import {name}")));
    }
    match imitated(name) {
        // An exact version is no slip of the pen.
        Some(popular) if requirement.exact.is_none() => {
            let message = format!(
                "`{name}` looks like a misspelling of `{popular}`; packages with such names have \
                 stolen data"
            );
            let hint = format!("install `{popular}`, or name a version of it: `{name}==…`");
            Err(PackageError::new(PackageProblem::Blocked, message).with_hint(hint))
        }
        _ => Ok(()),
    }
}

/// The popular name that this one differs from in one letter, or in two that are swapped.
fn imitated(name: &str) -> Option<&'static str> {
    if name.len() < POPULAR_CHARS_MIN || POPULAR.contains(&name) || KNOWN.contains(&name) {
        return None;
    }
    let is_near =
        |popular: &&&str| popular.len() >= POPULAR_CHARS_MIN && differ_once(name, popular);
    POPULAR.iter().find(is_near).copied()
}

fn differ_once(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let start = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let (left, right) = (&left[start..], &right[start..]);
    let after = |text: &'_ [u8], count: usize| text.get(count..).map(<[u8]>::to_vec);
    let same = |a: usize, b: usize| {
        let (a, b) = (after(left, a), after(right, b));
        a.is_some() && a == b
    };
    let is_swapped = left.len() >= 2
        && right.len() >= 2
        && left[0] == right[1]
        && left[1] == right[0]
        && same(2, 2);
    same(1, 1) || same(1, 0) || same(0, 1) || is_swapped
}

#[cfg(test)]
mod tests {
    use super::{CONSTRAINTS_MAX, check_constraints, differ_once, key, requirements};
    use crate::model::PackageProblem;

    fn texts(text: &str) -> Vec<String> {
        let found = requirements(&[text.to_owned()], &[]).unwrap();
        found.into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn one_text_may_have_several_requirements() {
        for (text, expected) in [
            ("numpy", vec!["numpy"]),
            ("pandas matplotlib  seaborn", vec!["pandas", "matplotlib", "seaborn"]),
            ("pandas, matplotlib,seaborn", vec!["pandas", "matplotlib", "seaborn"]),
            ("requests>=2.28.0", vec!["requests>=2.28.0"]),
            ("requests >= 2.28.0, < 3 flask", vec!["requests>=2.28.0,<3", "flask"]),
            ("httpx[http2] rich==13.*", vec!["httpx[http2]", "rich==13.*"]),
            ("a; python_version < '3'", vec!["a; python_version < '3'"]),
            ("pip setuptools", vec!["setuptools"]),
            ("numpy numpy", vec!["numpy"]),
        ] {
            assert_eq!(texts(text), expected, "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_name() {
        let long = "a".repeat(101);
        for text in [
            "-rf",
            "--index-url=x",
            "git+https://x/y",
            "./x",
            "/etc/passwd",
            "x @ file",
            "..",
            "a/b",
            "a\\b",
            "x$(id)",
            "x|y",
            "x`id`",
            "é",
            "_x",
            "x_",
            "",
            &long,
            "x==1;os.system(1)&",
        ] {
            let found = requirements(&[text.to_owned()], &[]);
            match text {
                "" => assert_eq!(found.unwrap(), []),
                _ => assert_eq!(found.unwrap_err().problem, PackageProblem::BadName, "{text}"),
            }
        }
        assert!(requirements(&["a".repeat(100)], &[]).is_ok());
        let many: Vec<String> = (0..101).map(|number| format!("a{number}")).collect();
        assert_eq!(requirements(&many, &[]).unwrap_err().problem, PackageProblem::TooMany);
    }

    #[test]
    fn refuses_blocked_standard_and_imitated_names_with_the_reason() {
        let blocked = ["ctypes".to_owned(), "Crypto_Locker".to_owned()];
        let refused = |text: &str| {
            let error = requirements(&[text.to_owned()], &blocked).unwrap_err();
            assert_eq!(error.problem, PackageProblem::Blocked, "{text}");
            error.message
        };
        assert_eq!(
            refused("crypto-locker"),
            "Package crypto-locker is blocked for security reasons"
        );
        assert_eq!(refused("ctypes==1"), "Package ctypes is blocked for security reasons");
        assert!(refused("json").contains("part of Python"));
        for name in ["reqeusts", "requestss", "numpi", "panda5"] {
            assert!(refused(name).contains("misspelling"), "{name}");
        }
        for name in ["requests", "numpy", "reqeusts==1.0", "rich", "attrs", "pytest-mock", "polar"]
        {
            let found = requirements(&[name.to_owned()], &blocked);
            assert_eq!(found.is_ok(), name != "polar", "{name}");
        }
    }

    #[test]
    fn constraints_are_requirements_of_any_name() {
        let texts =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert!(
            check_constraints(&texts(&["six<2", "os==1", "a-b>=1,<2 ; sys_platform == 'x'"]))
                .is_ok()
        );
        for wrong in ["--index-url x", "six @ file:///x", "../six", ""] {
            assert!(check_constraints(&texts(&[wrong])).is_err(), "{wrong}");
        }
        let many = vec!["six".to_owned(); CONSTRAINTS_MAX + 1];
        let error = check_constraints(&many).unwrap_err();
        assert_eq!(error.problem, PackageProblem::TooMany);
        assert!(check_constraints(&many[1..]).is_ok());
    }

    #[test]
    fn names_compare_without_case_and_separators() {
        assert_eq!(key("Typing_Extensions"), "typing-extensions");
        assert_eq!(key("a-._b"), "a-b");
        assert!(differ_once("abc", "acb") && differ_once("abc", "ab") && differ_once("abc", "abd"));
        assert!(!differ_once("abc", "abc") && !differ_once("abc", "cab"));
    }

    #[test]
    fn fuzz_names() {
        const WORDS: &[&str] = &[
            "requests",
            ">=2.28",
            "==1.0",
            "[socks]",
            ";",
            "python_version<'3'",
            "--index-url",
            "-r",
            "https://",
            "@",
            "../",
            "git+",
            " ",
            ",",
            "~=",
            "!=",
            "-e",
            "\u{0}",
            "PIP",
            "_.-",
        ];
        woma_fuzz::Target { name: "names", words: WORDS }.run(|bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            let Ok(found) = super::requirements(&[text], &["blocked".to_owned()]) else { return };
            assert!(found.len() <= super::REQUIREMENTS_MAX);
            for one in found {
                // What reaches the installer is one argument that is neither option nor address.
                assert!(one.text.is_ascii() && !one.text.starts_with('-'), "{one:?}");
                assert!(
                    !one.text.contains("://") && !one.text.contains(['@', '/', '\\', '\n']),
                    "{one:?}"
                );
                let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                assert!(!one.key.is_empty() && one.key.chars().all(is_key), "{one:?}");
                assert_ne!(one.key, "blocked");
            }
        });
    }
}
