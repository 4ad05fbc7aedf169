//! Arguments of a call, from REST or MCP: lenient where the meaning is clear (`"30"` is a number,
//! null is absent), precise errors where it is not.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::units;

/// Invalid argument; the message says what is expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("`{name}` is missing: {what} is needed")]
    Missing { name: &'static str, what: &'static str },
    #[error("`{name}` must be {expected}, not {got}")]
    Wrong { name: &'static str, expected: &'static str, got: String },
    #[error("`{first}` and `{second}` are one argument and differ: send one of them")]
    Differ { first: &'static str, second: &'static str },
    #[error("`{name}` is in the query and in the body, and differs: send one of them")]
    Twice { name: &'static str },
}

/// Arguments, taken out one by one; the rest is unknown.
#[derive(Debug)]
pub(crate) struct Arguments(Map<String, Value>);

impl Arguments {
    pub(crate) fn new(map: Map<String, Value>) -> Self {
        // Some clients send null for every field that they leave unset.
        Self(map.into_iter().filter(|(_, value)| !value.is_null()).collect())
    }

    fn take(&mut self, names: &[&'static str]) -> Result<Option<(&'static str, Value)>, Problem> {
        let mut found: Option<(&'static str, Value)> = None;
        for name in names {
            let Some(value) = self.0.remove(*name) else { continue };
            match &found {
                Some((first, earlier)) if *earlier != value => {
                    return Err(Problem::Differ { first, second: name });
                }
                Some(_) => {}
                None => found = Some((name, value)),
            }
        }
        Ok(found)
    }

    /// Adds an argument that came by another way; one that is there already must be the same.
    pub(crate) fn add(&mut self, name: &'static str, text: String) -> Result<(), Problem> {
        let value = Value::String(text);
        match self.0.get(name) {
            Some(present) if *present != value => Err(Problem::Twice { name }),
            _ => {
                self.0.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The text of an argument, which stays.
    pub(crate) fn peek(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// The first of these names that is present, as text.
    pub(crate) fn text(&mut self, names: &[&'static str]) -> Result<Option<String>, Problem> {
        match self.take(names)? {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((_, Value::Number(number))) => Ok(Some(number.to_string())),
            Some((name, other)) => Err(wrong(name, "text", &other)),
        }
    }

    pub(crate) fn required(
        &mut self,
        names: &[&'static str],
        what: &'static str,
    ) -> Result<String, Problem> {
        let name = names.first().copied().unwrap_or_default();
        self.text(names)?.ok_or(Problem::Missing { name, what })
    }

    /// Python code, which must be text: a number is a mistake of the client.
    pub(crate) fn code(&mut self, what: &'static str) -> Result<String, Problem> {
        match self.0.get("code") {
            Some(number @ Value::Number(_)) => Err(wrong("code", "text", number)),
            _ => self.required(&["code"], what),
        }
    }

    pub(crate) fn number(&mut self, names: &[&'static str]) -> Result<Option<f64>, Problem> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number: &f64| number.is_finite());
        number.map(Some).ok_or_else(|| wrong(name, "a number", &value))
    }

    pub(crate) fn count(&mut self, names: &[&'static str]) -> Result<Option<u64>, Problem> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64())),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| wrong(name, "a whole number that is not negative", &value))
    }

    pub(crate) fn flag(&mut self, names: &[&'static str]) -> Result<Option<bool>, Problem> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let flag = match &value {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        };
        flag.map(Some).ok_or_else(|| wrong(name, "true or false", &value))
    }

    pub(crate) fn object(&mut self, names: &[&'static str]) -> Result<Map<String, Value>, Problem> {
        match self.take(names)? {
            None => Ok(Map::new()),
            Some((_, Value::Object(map))) => Ok(map),
            Some((name, other)) => Err(wrong(name, "an object of names and values", &other)),
        }
    }

    /// Any value.
    pub(crate) fn value(&mut self, names: &[&'static str]) -> Result<Option<Value>, Problem> {
        Ok(self.take(names)?.map(|(_, value)| value))
    }

    /// An object of texts.
    pub(crate) fn texts(
        &mut self,
        names: &[&'static str],
    ) -> Result<Option<BTreeMap<String, String>>, Problem> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let text =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let texts = value.as_object().and_then(|map| map.iter().map(text).collect());
        texts.map(Some).ok_or_else(|| wrong(name, "an object of names and texts", &value))
    }

    /// The arguments that no reader took.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A list of texts, or one text with commas.
    pub(crate) fn list(&mut self, names: &[&'static str]) -> Result<Option<Vec<String>>, Problem> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let list = match &value {
            Value::String(text) => {
                Some(text.split(',').map(|part| part.trim().to_owned()).collect())
            }
            Value::Array(items) => {
                items.iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            _ => None,
        };
        list.map(Some).ok_or_else(|| wrong(name, "a list of texts", &value))
    }

    /// Sizes as `"512m"`, or in megabytes as a bare number.
    pub(crate) fn bytes(&mut self, names: &[&'static str]) -> Result<Option<u64>, Problem> {
        let Some((name, value)) = self.take(names)? else { return Ok(None) };
        let text = match &value {
            Value::Number(number) => format!("{number}m"),
            Value::String(text) if text.trim().parse::<u64>().is_ok() => {
                format!("{}m", text.trim())
            }
            Value::String(text) => text.clone(),
            _ => String::new(),
        };
        units::bytes(&text).map(Some).ok_or_else(|| wrong(name, "a size such as \"512m\"", &value))
    }

    /// A warning for each argument that no reader took.
    pub(crate) fn unknown(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(name, _)| {
            let name: String = name.chars().take(64).collect();
            format!("the argument `{name}` is not known and was ignored")
        })
    }
}

fn whole(number: Option<f64>) -> Option<u64> {
    let number = number.filter(|n| n.fract() == 0.0 && (0.0..9.0e15).contains(n))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was checked"
    )]
    Some(number as u64)
}

fn wrong(name: &'static str, expected: &'static str, got: &Value) -> Problem {
    let got = match got {
        Value::String(text) => {
            format!("the text {:?}", text.chars().take(40).collect::<String>())
        }
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    };
    Problem::Wrong { name, expected, got }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Arguments;

    fn arguments(value: &serde_json::Value) -> Arguments {
        Arguments::new(value.as_object().unwrap().clone())
    }

    #[test]
    fn accepts_values_of_clear_meaning() {
        let mut given = arguments(&json!({
            "code": "1", "timeout": "30", "flag": "True", "n": 3.0, "memory": "256m", "mb": 64,
            "list": "a, b", "gone": null,
        }));
        assert_eq!(given.text(&["code"]).unwrap().unwrap(), "1");
        assert_eq!(given.number(&["timeout"]).unwrap(), Some(30.0));
        assert_eq!(given.flag(&["flag"]).unwrap(), Some(true));
        assert_eq!(given.count(&["n"]).unwrap(), Some(3));
        assert_eq!(given.bytes(&["memory"]).unwrap(), Some(256 << 20));
        assert_eq!(given.bytes(&["mb"]).unwrap(), Some(64 << 20));
        assert_eq!(given.list(&["list"]).unwrap().unwrap(), ["a", "b"]);
        assert_eq!(given.text(&["gone"]).unwrap(), None);
        assert_eq!(given.unknown().count(), 0);
    }

    #[test]
    fn errors_name_field_expectation_and_value() {
        let problem = |value| arguments(&value).number(&["timeout"]).unwrap_err().to_string();
        assert_eq!(
            problem(json!({"timeout": "abc"})),
            "`timeout` must be a number, not the text \"abc\""
        );
        assert_eq!(problem(json!({"timeout": [1]})), "`timeout` must be a number, not a list");
        let missing = arguments(&json!({})).required(&["code"], "the Python code to run");
        let text = missing.unwrap_err().to_string();
        assert_eq!(text, "`code` is missing: the Python code to run is needed");
        for bad in ["12q", "m", "", "-1m", "99999999999999g"] {
            assert!(arguments(&json!({"memory": bad})).bytes(&["memory"]).is_err(), "{bad}");
        }
    }

    #[test]
    fn two_names_of_one_argument_must_agree() {
        let same = json!({"variables": {"x": 1}, "context": {"x": 1}});
        assert_eq!(arguments(&same).object(&["variables", "context"]).unwrap()["x"], 1);
        let other = json!({"variables": {"x": 1}, "context": {"y": 2}});
        let problem = arguments(&other).object(&["variables", "context"]).unwrap_err();
        let text = "`variables` and `context` are one argument and differ: send one of them";
        assert_eq!(problem.to_string(), text);
    }

    #[test]
    fn unknown_arguments_are_reported() {
        let mut given = arguments(&json!({"code": "1", "colour": 1}));
        given.text(&["code"]).unwrap();
        let unknown: Vec<_> = given.unknown().collect();
        assert_eq!(unknown, ["the argument `colour` is not known and was ignored"]);
    }
}
