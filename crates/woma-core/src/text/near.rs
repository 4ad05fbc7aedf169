//! Names that resemble a name that does not exist.

/// Names that are suggested at most.
const SUGGESTED_MAX: usize = 3;
/// Names that are compared at most.
const COMPARED_MAX: usize = 1_000;
/// Characters of a name that are compared at most.
const NAME_CHARS_MAX: usize = 64;
/// Distance of two names that differ in nothing but their endings.
const OTHER_ENDING: usize = 1;

/// Paths whose last name resembles that of `wanted`, the nearest first. A file of the same name in
/// another folder comes first, then names that differ in case, ending, or a few characters.
pub fn paths<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted_name = last_name(wanted);
    let allowed = (wanted_name.chars().count() / 3).clamp(1, 4);
    let measured = known.take(COMPARED_MAX).filter(|path| *path != wanted).filter_map(|path| {
        let distance = distance(&wanted_name, &last_name(path), allowed)?;
        Some((distance, path))
    });
    let mut near: Vec<(usize, &str)> = measured.collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTED_MAX).map(|(_, path)| path.to_owned()).collect()
}

/// Levenshtein distance, with one row of memory.
pub fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.chars().enumerate() {
        let mut diagonal = line;
        let mut before = line + 1;
        let mut next = vec![before];
        for (to, above) in right.iter().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(from != *to);
            before = replaced.min(*above + 1).min(before + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

fn distance(wanted: &str, name: &str, allowed: usize) -> Option<usize> {
    let stem = |name: &'_ str| name.rsplit_once('.').map_or(name.len(), |(stem, _)| stem.len());
    let (wanted_stem, name_stem) = (wanted.get(..stem(wanted)), name.get(..stem(name)));
    if wanted == name {
        return Some(0);
    }
    if wanted_stem == name_stem && wanted_stem.is_some_and(|stem| !stem.is_empty()) {
        return Some(OTHER_ENDING);
    }
    if wanted.chars().count().abs_diff(name.chars().count()) > allowed {
        return None;
    }
    Some(edits(wanted, name)).filter(|edits| *edits <= allowed)
}

/// In lower case, as far as it is compared.
fn last_name(path: &str) -> String {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    name.chars().take(NAME_CHARS_MAX).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{SUGGESTED_MAX, edits, paths};

    #[test]
    fn edits_are_counted() {
        let rows = [("", "", 0), ("port", "port", 0), ("prot", "port", 2), ("pot", "port", 1)];
        for (left, right, count) in rows {
            assert_eq!((edits(left, right), edits(right, left)), (count, count), "{left} {right}");
        }
    }

    #[test]
    fn suggests_names_that_are_near() {
        let known = ["Report.csv", "out/report.csv", "report.xlsx", "sales_2024.csv", "x", ".env"];
        for (wanted, near) in [
            ("report.csv", vec!["Report.csv", "out/report.csv", "report.xlsx"]),
            ("data/repotr.csv", vec!["Report.csv", "out/report.csv"]),
            ("sales_2023.csv", vec!["sales_2024.csv"]),
            ("sales-2024.csv", vec!["sales_2024.csv"]),
            ("y", vec!["x"]),
            ("x", vec![]),
            ("nothing.json", vec![]),
            ("", vec!["x"]),
            (".git", vec![]),
        ] {
            assert_eq!(paths(wanted, known.into_iter()), near, "{wanted}");
        }
    }

    #[test]
    fn suggests_no_more_than_a_few() {
        let known: Vec<String> = (0..9).map(|n| format!("part{n}.csv")).collect();
        let near = paths("part.csv", known.iter().map(String::as_str));
        assert_eq!(near.len(), SUGGESTED_MAX);
    }
}
