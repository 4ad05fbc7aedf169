//! Deserializers for strings, lists and JSON of hostile frames. Input beyond a limit is skipped and
//! never stored.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Minimum memory of one JSON value in a tree, in bytes.
const VALUE_BYTES: usize = 80;
/// Memory of a list or object without its members, in bytes.
const NEST_BYTES: usize = 400;

/// Well-formed JSON, kept as text.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Validates and keeps the text; `None` if it is not JSON.
    pub fn parse(text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(Self)
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Upper bound of its memory as a tree of values.
    fn tree_bytes(&self) -> usize {
        let (mut bytes, mut is_text, mut is_escaped) = (VALUE_BYTES, false, false);
        for byte in self.text().bytes() {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = is_text,
                b'"' => is_text = !is_text,
                b',' | b':' if !is_text => bytes += VALUE_BYTES,
                b'[' | b'{' if !is_text => bytes += NEST_BYTES,
                _ => {}
            }
        }
        bytes.saturating_add(self.text().len())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// The first `MAX` bytes of a string.
pub(crate) struct Truncated<const MAX: usize>(pub(crate) String);

impl<'de, const MAX: usize> Deserialize<'de> for Truncated<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Beginning<const MAX: usize>;

        impl<const MAX: usize> Visitor<'_> for Beginning<MAX> {
            type Value = Truncated<MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                let end = text.floor_char_boundary(MAX);
                Ok(Truncated(text.get(..end).unwrap_or_default().to_owned()))
            }
        }
        deserializer.deserialize_str(Beginning)
    }
}

pub(crate) fn text<'de, const MAX: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<String, D::Error> {
    Truncated::<MAX>::deserialize(deserializer).map(|cut| cut.0)
}

pub(crate) fn text_maybe<'de, const MAX: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Option::<Truncated<MAX>>::deserialize(deserializer).map(|cut| cut.map(|cut| cut.0))
}

/// The first `MAX` items of a list.
pub(crate) fn list<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct First<const MAX: usize, T>(PhantomData<T>);

    impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for First<MAX, T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < MAX {
                match items.next_element()? {
                    Some(item) => kept.push(item),
                    None => return Ok(kept),
                }
            }
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }
    deserializer.deserialize_seq(First::<MAX, T>(PhantomData))
}

/// The first `MAX` strings of a list, of `LENGTH` bytes each.
pub(crate) fn texts<'de, const MAX: usize, const LENGTH: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let cut = list::<MAX, Truncated<LENGTH>, D>(deserializer)?;
    Ok(cut.into_iter().map(|cut| cut.0).collect())
}

/// The first `MAX` members of an object and one more, so that an excess is noticed.
pub(crate) fn members<'de, const MAX: usize, const LENGTH: usize, T, D>(
    deserializer: D,
) -> Result<Vec<(String, T)>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct First<const MAX: usize, const LENGTH: usize, T>(PhantomData<T>);

    impl<'de, const MAX: usize, const LENGTH: usize, T> Visitor<'de> for First<MAX, LENGTH, T>
    where
        T: Deserialize<'de>,
    {
        type Value = Vec<(String, T)>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut kept = Vec::new();
            while kept.len() <= MAX {
                match members.next_key::<Truncated<LENGTH>>()? {
                    Some(key) => kept.push((key.0, members.next_value()?)),
                    None => return Ok(kept),
                }
            }
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }
    deserializer.deserialize_map(First::<MAX, LENGTH, T>(PhantomData))
}

/// JSON that takes at most `MAX` bytes as a tree of values; larger JSON is left out.
pub(crate) fn tree<'de, const MAX: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json>, D::Error> {
    let json = Option::<Json>::deserialize(deserializer)?;
    Ok(json.filter(|json| json.tree_bytes() <= MAX))
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn estimates_the_memory_of_json_trees() {
        let bytes = |text: &str| Json::parse(text.to_owned()).unwrap().tree_bytes();
        assert_eq!(bytes("1"), 81);
        assert_eq!(bytes(r#""[[,,{\"[""#), 80 + 10, "text is not a value");
        assert!(bytes(r#"[{"a":{}},{"a":{}}]"#) > 5 * 400);
        assert!(Json::parse("[1".to_owned()).is_none());
    }
}
