//! How objects in a token are told apart. CKA_ID is the one attribute that every token keeps and finds by; an
//! application's own CKA_ID lives in the record.

use crate::domain::{ContentKey, Generation, GroupId, ObjectId, Version};

const PREFIX: &str = "kr1:";

/// What an object in a token is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tag {
    /// A group's key.
    Key(GroupId, ContentKey),
    /// A group's SMK.
    Smk(GroupId, Generation),
    /// This member's transport key.
    Transport,
    /// This member's unlock key.
    Unlock,
    /// The key whose use proves that the token works.
    Canary,
}

impl Tag {
    /// The text that goes into CKA_ID and CKA_LABEL.
    pub fn text(&self) -> String {
        match self {
            Self::Key(group, name) => {
                format!("{PREFIX}{group}:{}.{}.{}", name.object.0, name.version.0, name.generation.0)
            }
            Self::Smk(group, generation) => format!("{PREFIX}{group}:smk.{}", generation.0),
            Self::Transport => format!("{PREFIX}transport"),
            Self::Unlock => format!("{PREFIX}unlock"),
            Self::Canary => format!("{PREFIX}canary"),
        }
    }

    /// Reads a CKA_ID; None if it is not one of ours.
    pub fn parse(id: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(id).ok()?;
        let tag = match text.strip_prefix(PREFIX)? {
            "transport" => Self::Transport,
            "unlock" => Self::Unlock,
            "canary" => Self::Canary,
            rest => {
                let (group, name) = rest.split_once(':')?;
                let group = data_encoding::HEXLOWER.decode(group.as_bytes()).ok()?;
                let group = GroupId(group.try_into().ok()?);
                match name.strip_prefix("smk.") {
                    Some(generation) => Self::Smk(group, Generation(generation.parse().ok()?)),
                    None => Self::Key(group, content_key(name)?),
                }
            }
        };
        // One spelling only: a number with a plus sign or leading zeros is not ours.
        (tag.text() == text).then_some(tag)
    }
}

fn content_key(name: &str) -> Option<ContentKey> {
    let mut numbers = name.split('.');
    let key = ContentKey {
        object: ObjectId(numbers.next()?.parse().ok()?),
        version: Version(numbers.next()?.parse().ok()?),
        generation: Generation(numbers.next()?.parse().ok()?),
    };
    numbers.next().is_none().then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_round_trip_and_strangers_are_left_alone() {
        let group = GroupId([0xAB; 8]);
        let name = ContentKey { object: ObjectId(77), version: Version(2), generation: Generation(3) };
        for tag in
            [Tag::Key(group, name), Tag::Smk(group, Generation(9)), Tag::Transport, Tag::Unlock, Tag::Canary]
        {
            assert_eq!(Tag::parse(tag.text().as_bytes()), Some(tag));
        }
        assert_eq!(Tag::Key(group, name).text(), "kr1:abababababababab:77.2.3");
        for stranger in ["", "kr1:", "kr1:x", "kr1:abababababababab:+77.2.3", "kr1:abab:1.1.1", "kr1:canary2"]
        {
            assert_eq!(Tag::parse(stranger.as_bytes()), None, "{stranger}");
        }
        assert_eq!(Tag::parse(&[0xFF, 0xFE]), None);
    }
}
