//! Values of histories, and the little of EDN (<https://github.com/edn-format/edn>) that histories are written in: nil,
//! booleans, integers, strings, keywords, vectors, lists, sets and maps. Tags are passed over; fractions, characters and symbols
//! are refused.

use crate::limits;
use std::fmt;

/// A value in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// nil
    #[default]
    Nil,
    /// true, false
    Bool(bool),
    /// 7
    Int(i64),
    /// "text"
    Text(String),
    /// :word, without its colon
    Word(String),
    /// [1 2]; lists and sets are read as this too
    List(Vec<Value>),
    /// {:a 1}, in the order of the text
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// A keyword.
    pub fn word(text: &str) -> Self {
        Self::Word(text.into())
    }

    /// A map with keywords for keys.
    pub fn map<const N: usize>(rows: [(&str, Value); N]) -> Self {
        Self::Map(rows.into_iter().map(|(key, value)| (Self::word(key), value)).collect())
    }

    /// A list of numbers.
    pub fn numbers(numbers: impl IntoIterator<Item = i64>) -> Self {
        Self::List(numbers.into_iter().map(Self::Int).collect())
    }

    /// The number, if it is one.
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    /// The text, if it is a string or a keyword.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Word(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub fn list(&self) -> Option<&[Value]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// The numbers, if it is a list of numbers.
    pub fn ints(&self) -> Option<Vec<i64>> {
        self.list()?.iter().map(Self::int).collect()
    }

    /// What a map has under a keyword.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Self::Map(rows) = self else { return None };
        rows.iter().find(|(name, _)| matches!(name, Self::Word(word) if word == key)).map(|(_, value)| value)
    }

    /// A number under a keyword.
    pub fn int_at(&self, key: &str) -> Option<i64> {
        self.get(key)?.int()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Text(text) => quoted(f, text),
            Self::Word(word) => write!(f, ":{word}"),
            Self::List(list) => {
                f.write_str("[")?;
                for (at, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if at == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            Self::Map(rows) => {
                f.write_str("{")?;
                for (at, (key, value)) in rows.iter().enumerate() {
                    write!(f, "{}{key} {value}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            '\r' => f.write_str("\\r")?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

/// Why a text is no EDN that we read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct EdnError {
    /// From 1.
    pub line: usize,
    /// For people.
    pub why: String,
}

/// Reads one value after another from a text.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

type Read<T> = Result<T, EdnError>;

impl<'a> Reader<'a> {
    /// Begins at the start of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), at: 0, line: 1 }
    }

    /// The line that is read next, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The next value; None at the end of the text.
    ///
    /// # Errors
    /// What stands there is no value that we know.
    pub fn next_value(&mut self) -> Read<Option<Value>> {
        self.skip()?;
        if self.peek().is_none() { Ok(None) } else { self.value(0).map(Some) }
    }

    /// Passes over blanks, commas and comments; the first byte of what comes then, None at the end of the text.
    ///
    /// # Errors
    /// Something that shall be passed over is broken.
    pub fn look(&mut self) -> Read<Option<u8>> {
        self.skip()?;
        Ok(self.peek())
    }

    /// Passes over one byte that [`look`](Self::look) has shown.
    pub fn pass(&mut self) {
        self.bump();
    }

    fn fail<T>(&self, why: impl Into<String>) -> Read<T> {
        Err(EdnError { line: self.line, why: why.into() })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn bump(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    fn skip(&mut self) -> Read<()> {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b',' => {
                    self.bump();
                }
                b';' => while self.bump().is_some_and(|byte| byte != b'\n') {},
                b'#' if self.text.get(self.at + 1) == Some(&b'_') => {
                    self.at += 2;
                    self.skip()?;
                    self.value(0)?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        if depth > limits::DEPTH_MAX {
            return self.fail(format!("more than {} brackets within brackets", limits::DEPTH_MAX));
        }
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'[') => self.list(b']', depth),
            Some(b'(') => self.list(b')', depth),
            Some(b'{') => self.map(depth),
            Some(b'#') => {
                self.at += 1;
                if self.peek() == Some(b'{') {
                    return self.list(b'}', depth);
                }
                // A tag says what the next value means; histories mean the value itself.
                self.token()?;
                self.skip()?;
                self.value(depth + 1)
            }
            Some(_) => self.atom(),
            None => self.fail("the text ends within a value"),
        }
    }

    fn list(&mut self, close: u8, depth: usize) -> Read<Value> {
        let from = self.line;
        self.at += 1;
        let mut list = Vec::new();
        loop {
            self.skip()?;
            match self.peek() {
                Some(byte) if byte == close => {
                    self.at += 1;
                    return Ok(Value::List(list));
                }
                None => return self.fail(format!("what is opened in line {from} is not closed")),
                Some(_) => list.push(self.value(depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Read<Value> {
        let Value::List(flat) = self.list(b'}', depth)? else { return self.fail("no map") };
        if flat.len() % 2 == 1 {
            return self.fail("a map has a key without a value");
        }
        let mut rows: Vec<(Value, Value)> = Vec::with_capacity(flat.len() / 2);
        let mut flat = flat.into_iter();
        while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
            if rows.iter().any(|(known, _)| *known == key) {
                return self.fail(format!("a map has {key} twice"));
            }
            rows.push((key, value));
        }
        Ok(Value::Map(rows))
    }

    fn string(&mut self) -> Read<Value> {
        let from = self.line;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.bump() {
                Some(b'"') => break,
                Some(b'\\') => match self.bump() {
                    Some(b'n') => bytes.push(b'\n'),
                    Some(b't') => bytes.push(b'\t'),
                    Some(b'r') => bytes.push(b'\r'),
                    Some(byte @ (b'"' | b'\\')) => bytes.push(byte),
                    _ => return self.fail("an escape in a string is none of \\n \\t \\r \\\" \\\\"),
                },
                Some(byte) => bytes.push(byte),
                None => return self.fail(format!("the string of line {from} is not closed")),
            }
        }
        // The text was UTF-8, and only ASCII bytes were taken out of it.
        String::from_utf8(bytes).map(Value::Text).or_else(|_| self.fail("a string is no UTF-8"))
    }

    fn token(&mut self) -> Read<&'a str> {
        let start = self.at;
        while self.peek().is_some_and(|b| !b.is_ascii_whitespace() && !b",[](){}\";".contains(&b)) {
            self.at += 1;
        }
        match std::str::from_utf8(&self.text[start..self.at]) {
            Ok("") => self.fail(match self.peek() {
                Some(byte) => format!("'{}' stands where a value should", byte.escape_ascii()),
                None => "the text ends where a value should stand".into(),
            }),
            Ok(token) => Ok(token),
            Err(_) => self.fail("a word is no UTF-8"),
        }
    }

    fn atom(&mut self) -> Read<Value> {
        let token = self.token()?;
        match token {
            "nil" => return Ok(Value::Nil),
            "true" => return Ok(Value::Bool(true)),
            "false" => return Ok(Value::Bool(false)),
            _ => {}
        }
        if let Some(word) = token.strip_prefix(':').filter(|word| !word.is_empty()) {
            return Ok(Value::word(word));
        }
        token.parse().map(Value::Int).or_else(|_| {
            self.fail(format!("'{token}' is neither nil, true, false, an integer, a string nor a keyword"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> Result<Value, EdnError> {
        let mut reader = Reader::new(text);
        let value = reader.next_value()?.expect("there is a value");
        assert_eq!(reader.next_value()?, None);
        Ok(value)
    }

    #[test]
    fn what_histories_hold_is_read() {
        let text = "; a comment\n#jepsen.history.Op{:process 0, :f :cas #_ :not-this\n :value [3 nil], :key \"a\\\"b\" :set #{1 2} :l (true)}";
        let value = one(text).expect("is read");
        assert_eq!(value.int_at("process"), Some(0));
        assert_eq!(value.get("value"), Some(&Value::List(vec![Value::Int(3), Value::Nil])));
        assert_eq!(value.get("key").and_then(Value::text), Some("a\"b"));
        assert_eq!(value.get("set"), Some(&Value::numbers([1, 2])));
        assert_eq!(value.get("l"), Some(&Value::List(vec![Value::Bool(true)])));
    }

    #[test]
    fn what_is_broken_is_refused_with_its_line() {
        for (text, line, why) in [
            ("{:a 1\n:b}", 2, "without a value"),
            ("{:a 1\n :a 2}", 2, "twice"),
            ("[1\n\n", 3, "not closed"),
            ("\n\"abc", 2, "not closed"),
            ("\n1.5", 2, "1.5"),
            ("]", 1, "stands where"),
            ("\"\\x\"", 1, "escape"),
            ("99999999999999999999", 1, "integer"),
            ("#", 1, "ends"),
            (&"[".repeat(100), 1, "brackets"),
        ] {
            let error = one(text).expect_err(text);
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.why.contains(why), "{text}: {error}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::Int),
            ".{0,12}".prop_map(Value::Text),
            "[a-z][a-z-]{0,8}".prop_map(Value::Word),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
                prop::collection::btree_map(inner.clone(), inner, 0..4)
                    .prop_map(|map| Value::Map(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in values()) {
            prop_assert_eq!(one(&value.to_string()), Ok(value));
        }

        #[test]
        fn anything_is_read_or_refused(text in ".{0,64}") {
            let mut reader = Reader::new(&text);
            while let Ok(Some(_)) = reader.next_value() {}
        }
    }
}
