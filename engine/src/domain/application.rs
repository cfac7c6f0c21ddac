//! Applications that prove who they are by a certificate.

use crate::limits::APPLICATION_NAME_MAX_BYTES;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of an application that has a certificate: 1 to 64 of `a-z0-9-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ApplicationName(Arc<str>);

impl FromStr for ApplicationName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if text.is_empty() || text.len() > APPLICATION_NAME_MAX_BYTES || !text.bytes().all(allowed) {
            return Err(BadName);
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for ApplicationName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        text.parse()
    }
}

impl From<ApplicationName> for String {
    fn from(name: ApplicationName) -> Self {
        name.0.to_string()
    }
}

impl fmt::Display for ApplicationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ApplicationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a client's name is 1 to {APPLICATION_NAME_MAX_BYTES} of a to z, 0 to 9 and '-'")]
pub struct BadName;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "web-1", &"x".repeat(64)] {
            assert_eq!(good.parse::<ApplicationName>().map(String::from), Ok(good.to_string()));
        }
        for bad in ["", "Web", "a b", "a/b", "a.b", "ä", "a\n", &"x".repeat(65)] {
            assert_eq!(bad.parse::<ApplicationName>(), Err(BadName), "{bad}");
        }
    }
}
