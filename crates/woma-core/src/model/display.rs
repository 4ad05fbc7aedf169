//! Objects that code displayed, as a session's client gets them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use woma_sandbox::protocol::{Form, Json, Role};

/// A displayed object.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub data: BTreeMap<String, Representation>,
    /// A JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Representation>,
    #[serde(skip)]
    pub pictures: Vec<Picture>,
}

/// A value or a representation as the cell sent it. JSON is not taken apart here, and what is
/// binary becomes base64 only while it is written: neither takes more than it did on its way.
#[derive(Debug, Clone)]
pub enum Representation {
    Text(Arc<String>),
    Json(Arc<Json>),
    Binary(bytes::Bytes),
}

impl Representation {
    pub fn text(text: String) -> Self {
        Self::Text(Arc::new(text))
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Json(_) | Self::Binary(_) => None,
        }
    }

    /// How long it is at least as JSON, in bytes.
    pub fn bytes_least(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Json(json) => json.text().len(),
            Self::Binary(bytes) => bytes.len().saturating_mul(4) / 3,
        }
    }

    /// As people read it.
    pub fn to_readable(&self) -> String {
        match self {
            Self::Text(text) => text.as_ref().clone(),
            Self::Json(json) => json.text().to_owned(),
            Self::Binary(bytes) => format!("{} bytes", bytes.len()),
        }
    }
}

impl From<Form> for Representation {
    fn from(form: Form) -> Self {
        match form {
            Form::Text(text) => Self::text(text),
            Form::Json(json) => Self::Json(Arc::new(json)),
        }
    }
}

impl Serialize for Representation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::display::Base64Display;
        use base64::engine::general_purpose::STANDARD;
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Json(json) => json.serialize(serializer),
            Self::Binary(bytes) => serializer.collect_str(&Base64Display::new(bytes, &STANDARD)),
        }
    }
}

impl Shown {
    /// Its text in the most readable form: Markdown before plain text, and HTML where the
    /// plain text is nothing but the name of a class.
    pub fn text(&self) -> Option<&str> {
        let said = |kind: &str| self.data.get(kind).and_then(Representation::as_text);
        let plain = said("text/plain");
        let is_opaque = plain.is_none_or(|text| text.starts_with('<') && text.ends_with("object>"));
        let html = || said("text/html").or_else(|| said("text/latex")).filter(|_| is_opaque);
        said("text/markdown").or_else(html).or(plain)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub media_type: String,
    pub bytes: bytes::Bytes,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use woma_sandbox::protocol::{Form, Json, Role};

    use super::{Representation, Shown};

    fn json() -> Json {
        Json::parse("[1, 2]".to_owned()).unwrap()
    }

    #[test]
    fn a_representation_knows_its_text_its_length_and_its_json() {
        let table = [
            (Representation::text("a\"b".to_owned()), Some("a\"b"), 3, "a\"b", r#""a\"b""#),
            (Representation::Json(Arc::new(json())), None, 6, "[1, 2]", "[1, 2]"),
            (Representation::Binary(vec![0; 6].into()), None, 8, "6 bytes", r#""AAAAAAAA""#),
        ];
        for (form, text, least, readable, written) in table {
            assert_eq!(form.as_text(), text);
            assert_eq!(form.bytes_least(), least);
            assert_eq!(form.to_readable(), readable);
            assert_eq!(serde_json::to_string(&form).unwrap(), written);
        }
        let form = Representation::from(Form::Json(json()));
        assert_eq!((form.as_text(), form.to_readable()), (None, "[1, 2]".to_owned()));
        assert_eq!(Representation::from(Form::Text("t".to_owned())).as_text(), Some("t"));
    }

    /// The text of an object that was displayed in these forms.
    fn text_of(forms: &[(&str, &str)]) -> Option<String> {
        let form = |(kind, text): &(&str, &str)| {
            ((*kind).to_owned(), Representation::text((*text).into()))
        };
        let data: BTreeMap<_, _> = forms.iter().map(form).collect();
        let (role, pictures) = (Role::Display, Vec::new());
        let shown = Shown { role, id: None, data, metadata: None, pictures };
        shown.text().map(str::to_owned)
    }

    #[test]
    fn the_most_readable_text_is_chosen() {
        let (html, latex, markdown) =
            (("text/html", "h"), ("text/latex", "l"), ("text/markdown", "m"));
        let plain = |text| ("text/plain", text);
        let opaque = plain("<pandas.Styler object>");
        assert_eq!(text_of(&[]), None);
        assert_eq!(text_of(&[plain("p")]).as_deref(), Some("p"));
        assert_eq!(text_of(&[opaque]).as_deref(), Some("<pandas.Styler object>"));
        assert_eq!(text_of(&[plain("p"), markdown, html]).as_deref(), Some("m"));
        assert_eq!(text_of(&[opaque, html, latex]).as_deref(), Some("h"));
        assert_eq!(text_of(&[latex]).as_deref(), Some("l"));
        // Plain text that is more than the name of a class.
        for text in ["p", "<b>", "an object>"] {
            assert_eq!(text_of(&[plain(text), html]).as_deref(), Some(text));
        }
    }
}
