//! The header of a program (PEP 723): a comment block `# /// script` with the packages and the
//! Python that the program needs.

use serde::Deserialize;

/// Begins a block of the kind that is read here.
const START: &str = "# /// script";
const END: &str = "# ///";
/// Longest block, in bytes.
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// Needs of a program, as its header states them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScriptHeader {
    /// Requirements as for pip.
    pub dependencies: Vec<String>,
    pub requires_python: Option<PythonRange>,
}

/// Versions of Python that a program accepts, such as `>=3.11,<3.14`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonRange {
    text: String,
    clauses: Vec<Clause>,
}

/// A header that cannot be read; the sentence says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header `# /// script` of the program cannot be read: {0}")]
pub struct BadHeader(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
    Unequal,
    Compatible,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Clause {
    operator: Operator,
    numbers: Vec<u64>,
    /// Ends with `.*`.
    is_prefix: bool,
}

#[derive(Deserialize)]
struct Table {
    #[serde(default)]
    dependencies: Vec<String>,
    #[serde(rename = "requires-python")]
    requires_python: Option<String>,
}

/// The header of a program; `None` if it has none.
pub fn script_header(source: &str) -> Result<Option<ScriptHeader>, BadHeader> {
    if !source.contains(START) {
        return Ok(None);
    }
    let mut blocks = blocks(source).into_iter();
    let Some(block) = blocks.next() else { return Ok(None) };
    let bad = |reason: &str| Err(BadHeader(reason.to_owned()));
    if blocks.next().is_some() {
        return bad("there are two of them");
    }
    if block.len() > BLOCK_BYTES_MAX {
        return bad("it is longer than 64 KiB");
    }
    let table: Table = toml::from_str(&block).map_err(|error| {
        BadHeader(error.message().lines().next().unwrap_or("not TOML").to_owned())
    })?;
    let requires_python =
        table.requires_python.map(|text| PythonRange::parse(&text)).transpose()?;
    Ok(Some(ScriptHeader { dependencies: table.dependencies, requires_python }))
}

/// The contents of all blocks that begin and end. As the standard has it, a block ends at the last
/// `# ///` of its comment lines.
fn blocks(source: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim_end() != START {
            continue;
        }
        let mut content: Vec<&str> = Vec::new();
        let mut complete = None;
        while let Some(line) = lines.next_if(|line| is_comment(line) && line.trim_end() != START) {
            if line.trim_end() == END {
                complete = Some(content.len());
            }
            content.push(line.get(1..).map_or("", |rest| rest.strip_prefix(' ').unwrap_or(rest)));
        }
        if let Some(length) = complete {
            content.truncate(length);
            blocks.push(content.join("\n"));
        }
    }
    blocks
}

fn is_comment(line: &str) -> bool {
    line.trim_end() == "#" || line.starts_with("# ")
}

impl PythonRange {
    fn parse(text: &str) -> Result<Self, BadHeader> {
        let clauses = text.split(',').map(str::trim).filter(|clause| !clause.is_empty());
        let clauses: Option<Vec<Clause>> = clauses.map(Clause::parse).collect();
        let clauses = clauses.ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            BadHeader(format!("requires-python is `{shown}`, and not such as `>=3.11`"))
        })?;
        Ok(Self { text: text.to_owned(), clauses })
    }

    /// Whether this version of Python is in the range.
    pub fn accepts(&self, version: (u8, u8, u8)) -> bool {
        let numbers = [version.0, version.1, version.2].map(u64::from);
        self.clauses.iter().all(|clause| clause.accepts(&numbers))
    }
}

impl std::fmt::Display for PythonRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Clause {
    fn parse(text: &str) -> Option<Self> {
        const OPERATORS: [(&str, Operator); 8] = [
            ("===", Operator::Equal),
            (">=", Operator::AtLeast),
            ("<=", Operator::AtMost),
            ("==", Operator::Equal),
            ("!=", Operator::Unequal),
            ("~=", Operator::Compatible),
            (">", Operator::Above),
            ("<", Operator::Below),
        ];
        let (operator, rest) = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?.trim())))?;
        let (rest, is_prefix) = match rest.strip_suffix(".*") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let numbers: Option<Vec<u64>> = rest.split('.').map(|part| part.parse().ok()).collect();
        let may_be_prefix = matches!(operator, Operator::Equal | Operator::Unequal);
        let numbers = numbers.filter(|numbers| {
            (!is_prefix || may_be_prefix) && (operator != Operator::Compatible || numbers.len() > 1)
        })?;
        Some(Self { operator, numbers, is_prefix })
    }

    fn accepts(&self, version: &[u64; 3]) -> bool {
        let length = version.len().max(self.numbers.len());
        let padded = |numbers: &[u64]| -> Vec<u64> {
            numbers.iter().copied().chain(std::iter::repeat(0)).take(length).collect()
        };
        let (is, named) = (padded(version), padded(&self.numbers));
        let begins_with = |prefix: &[u64]| version.starts_with(prefix.get(..3).unwrap_or(prefix));
        let is_equal = if self.is_prefix { begins_with(&self.numbers) } else { is == named };
        match self.operator {
            Operator::AtLeast => is >= named,
            Operator::AtMost => is <= named,
            Operator::Above => is > named,
            Operator::Below => is < named,
            Operator::Equal => is_equal,
            Operator::Unequal => !is_equal,
            Operator::Compatible => {
                let (_, prefix) = self.numbers.split_last().unwrap_or((&0, &[]));
                is >= named && begins_with(prefix)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        let source = "#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11\"\n\
                      # dependencies = [\n#   \"requests<3\",\n#\n#   \"rich\",\n# ]\n# ///\nprint(1)\n";
        let header = script_header(source).unwrap().unwrap();
        assert_eq!(header.dependencies, ["requests<3", "rich"]);
        assert!(header.requires_python.unwrap().accepts((3, 11, 2)));
        for none in [
            "print(1)",
            "# /// script\nprint(1)",
            "text = '# /// script'",
            "# /// other\n# a = 1\n# ///\n",
            "  # /// script\n  # ///\n",
        ] {
            assert_eq!(script_header(none), Ok(None), "{none}");
        }
        let empty = script_header("# /// script\r\n# [tool.x]\r\n# a = 1\r\n# ///\r\n").unwrap();
        assert_eq!(empty, Some(ScriptHeader::default()));
        // The last end counts.
        let nested = "# /// script\n# ///\n# dependencies = ['x']\n# ///\n";
        assert!(script_header(nested).is_err());
    }

    #[test]
    fn mistakes_in_headers_are_named() {
        for (source, part) in [
            ("# /// script\n# a = 1\n# ///\n\n# /// script\n# ///\n", "two of them"),
            ("# /// script\n# dependencies = 'x'\n# ///\n", "invalid type"),
            ("# /// script\n# dependencies = [\n# ///\n", ""),
            ("# /// script\n# requires-python = 'new'\n# ///\n", "requires-python is `new`"),
            ("# /// script\n# requires-python = '>=3.*'\n# ///\n", "requires-python"),
        ] {
            let error = script_header(source).unwrap_err().to_string();
            assert!(error.contains(part), "{source}: {error}");
        }
        let long = format!("# /// script\n# a = '{}'\n# ///\n", "x".repeat(BLOCK_BYTES_MAX));
        assert!(script_header(&long).unwrap_err().to_string().contains("64 KiB"));
    }

    #[test]
    fn ranges_accept_versions_as_pip_does() {
        for (range, accepted, refused) in [
            (">=3.11", vec![(3, 11, 0), (3, 12, 1)], vec![(3, 10, 9)]),
            (">=3.11,<3.13", vec![(3, 12, 9)], vec![(3, 13, 0), (3, 10, 0)]),
            ("==3.12.*", vec![(3, 12, 0), (3, 12, 9)], vec![(3, 11, 0), (3, 1, 2)]),
            ("==3.12", vec![(3, 12, 0)], vec![(3, 12, 1)]),
            ("!=3.12.*", vec![(3, 11, 0)], vec![(3, 12, 4)]),
            ("~=3.11", vec![(3, 11, 0), (3, 14, 0)], vec![(3, 10, 0), (4, 0, 0)]),
            ("~=3.11.2", vec![(3, 11, 2)], vec![(3, 12, 0), (3, 11, 1)]),
            (">3.11, <=3.12", vec![(3, 11, 1), (3, 12, 0)], vec![(3, 11, 0), (3, 12, 1)]),
            ("", vec![(3, 10, 0)], vec![]),
        ] {
            let range = PythonRange::parse(range).unwrap();
            assert!(accepted.iter().all(|version| range.accepts(*version)), "{range}");
            assert!(!refused.iter().any(|version| range.accepts(*version)), "{range}");
        }
    }
}
