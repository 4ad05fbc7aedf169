//! Links of an HTML page of a simple index.

use url::Url;

/// Attributes of a tag that are read: a tag may be as long as its page.
const ATTRIBUTES_MAX: usize = 32;

/// A link: its address, its text, and attributes with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) address: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Link {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The links of a page, and the base of their addresses. Everything but `<a>` and `<base>` is
/// skipped; a tag that does not end is no tag. Takes time in proportion to the text: a tag whose
/// quotes do not end is looked for once, and quotes mean nothing in what follows it.
pub(crate) fn links(text: &str, page: &Url, most: usize) -> (Url, Vec<Link>) {
    let (mut base, mut links) = (page.clone(), Vec::new());
    let mut has_quotes = true;
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = rest.get(start + 1..).unwrap_or_default();
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        let mut found = tag(rest, has_quotes);
        if found.is_none() && has_quotes {
            has_quotes = false;
            found = tag(rest, has_quotes);
        }
        // Without quotes, no tag ends from here on.
        let Some((tag, after)) = found else { break };
        rest = after;
        let end = tag.find(|c: char| c.is_ascii_whitespace()).unwrap_or(tag.len());
        let (name, attributes) = tag.split_at(end);
        let is_base = name.eq_ignore_ascii_case("base");
        if !is_base && !name.eq_ignore_ascii_case("a") {
            continue;
        }
        let attributes = read_attributes(attributes);
        let address = attributes.iter().find(|(name, _)| name == "href").map(|(_, value)| value);
        let Some(address) = address.cloned() else { continue };
        match is_base {
            true => base = page.join(&address).unwrap_or(base),
            false => links.push(Link { address, attributes }),
        }
        if links.len() >= most {
            break;
        }
    }
    (base, links)
}

/// The inside of a tag, and what follows it. A `>` in quotes does not end it, if there are quotes.
fn tag(text: &str, has_quotes: bool) -> Option<(&str, &str)> {
    let mut quote = None;
    for (place, c) in text.char_indices() {
        match (quote, c) {
            (None, '>') => return Some((text.get(..place)?, text.get(place + 1..)?)),
            (None, '"' | '\'') if has_quotes => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

fn read_attributes(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && found.len() < ATTRIBUTES_MAX {
        let end = rest.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('=').map(str::trim_start) {
            None => ("", after),
            Some(value) => match value.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    let value = value.get(1..).unwrap_or_default();
                    value.split_once(quote).unwrap_or((value, ""))
                }
                _ => {
                    let end = value.find(|c: char| c.is_ascii_whitespace());
                    value.split_at(end.unwrap_or(value.len()))
                }
            },
        };
        if !name.is_empty() {
            found.push((name.to_ascii_lowercase(), unescaped(value)));
        }
        rest = after.trim_start_matches('=').trim_start();
    }
    found
}

/// Decodes the references that addresses and versions have.
fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (name, c) in
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'")]
    {
        if text.contains(name) {
            text = text.replace(name, c);
        }
    }
    // Last, so that nothing is decoded twice.
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{ATTRIBUTES_MAX, links};

    #[test]
    fn attributes_of_a_tag_have_a_number() {
        let page = Url::parse("http://index/simple/x/").unwrap();
        let text = format!("<a href=x {}>", "a ".repeat(100_000));
        assert_eq!(links(&text, &page, 10).1[0].attributes.len(), ATTRIBUTES_MAX);
    }

    #[test]
    fn a_tag_whose_quotes_do_not_end_hides_no_later_link() {
        let page = Url::parse("http://index/simple/x/").unwrap();
        let found = links("<a href='x> <p> <a href=y>", &page, 10).1;
        assert_eq!(found.last().map(|link| link.address.as_str()), Some("y"), "{found:?}");
    }

    #[test]
    fn finds_links_and_their_attributes() {
        let page = Url::parse("http://index/simple/x/").unwrap();
        let text = r#"<!doctype html><html><!-- <a href="no"> --><body><A class=q
            HREF='../x-1.whl#sha256=ab&amp;c' data-requires-python="&gt;=3.8,&lt;4" data-yanked>x > 1</A>
            <a name=none>no</a><a href=plain>y</a> <p a="<a href='in'>"> <a href="open"#;
        let (base, found) = links(text, &page, 10);
        assert_eq!(base, page);
        let addresses: Vec<&str> = found.iter().map(|link| link.address.as_str()).collect();
        assert_eq!(addresses, ["../x-1.whl#sha256=ab&c", "plain"]);
        assert_eq!(found[0].attribute("data-requires-python"), Some(">=3.8,<4"));
        assert_eq!(found[0].attribute("data-yanked"), Some(""));
        assert_eq!(links(text, &page, 1).1.len(), 1);
        let (base, _) = links("<base href='/files/'><a href=x>", &page, 10);
        assert_eq!(base.as_str(), "http://index/files/");
        for strange in
            ["<", "<a", "<a href", "<a href=", "<a href='", "<a =>", "<a ==x>", "<!--", "é<é>"]
        {
            assert!(links(strange, &page, 10).1.len() <= 1, "{strange}");
        }
    }
}
