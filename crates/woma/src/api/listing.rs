//! Pages of listings: `limit`, the `cursor` of the page before, and `next` where there is more.

use super::arguments::{Arguments, Problem};

/// Largest page.
pub(crate) const ROWS_MAX: usize = 1_000;

/// The part of a listing that a request asks for.
#[derive(Debug, Default)]
pub(crate) struct PageRequest {
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
}

impl PageRequest {
    pub(crate) fn read(query: &mut Arguments) -> Result<Self, Problem> {
        let limit = query.count(&["limit"])?.map(rows).transpose()?;
        Ok(Self { limit, cursor: query.text(&["cursor", "before"])? })
    }

    /// The page of a list that is sorted by `key`, and the cursor of the next one.
    pub(crate) fn of<T>(&self, all: Vec<T>, key: impl Fn(&T) -> &str) -> (Vec<T>, Option<String>) {
        let cursor = self.cursor.as_deref();
        let rest = all.into_iter().filter(|one| cursor.is_none_or(|cursor| key(one) > cursor));
        page(rest.collect(), self.limit.unwrap_or(usize::MAX), |last| key(last).to_owned())
    }
}

/// A checked `limit`.
pub(crate) fn rows(limit: u64) -> Result<usize, Problem> {
    let found = usize::try_from(limit).ok().filter(|limit| (1..=ROWS_MAX).contains(limit));
    let (name, expected) = ("limit", "a whole number from 1 to 1000");
    found.ok_or_else(|| Problem::Wrong { name, expected, got: limit.to_string() })
}

/// The first `limit` rows, and the cursor of the next page if there are more.
pub(crate) fn page<T>(
    mut rows: Vec<T>,
    limit: usize,
    cursor: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(cursor);
    (rows, next)
}

#[cfg(test)]
mod tests {
    use super::{PageRequest, rows};

    #[test]
    fn pages_follow_each_other_and_end() {
        let all = || ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let mut request = PageRequest { limit: Some(2), cursor: None };
        let mut seen = Vec::new();
        loop {
            let (page, next) = request.of(all(), |name| name);
            assert!(page.len() <= 2);
            seen.extend(page);
            match next {
                Some(next) => request.cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, all());
        assert_eq!(PageRequest::default().of(all(), |name| name), (all(), None));
        let beyond = PageRequest { limit: Some(5), cursor: Some("e".to_owned()) };
        assert_eq!(beyond.of(all(), |name| name), (Vec::new(), None));
    }

    #[test]
    fn a_limit_is_from_1_to_1000() {
        for (limit, is_fit) in [(0, false), (1, true), (1_000, true), (1_001, false)] {
            assert_eq!(rows(limit).is_ok(), is_fit, "{limit}");
        }
    }
}
