//! Finds the key that a person means: by object id, or by a label that is not ambiguous.

use crate::caller::{Ask, repeat, unexpected};
use crate::exit::{Exit, Problem};
use keyraft_engine::domain::{ObjectClass, ObjectId};
use keyraft_engine::wire::{Answer, ClientRequest, ObjectRow};
use std::time::Duration;

/// Which half of a pair is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Sign, decrypt: a private or secret key.
    Private,
    /// Verify, encrypt: a public or secret key.
    Public,
    /// Whatever bears the name.
    Any,
}

impl Want {
    fn takes(self, class: ObjectClass) -> bool {
        match self {
            Self::Private => matches!(class, ObjectClass::PrivateKey | ObjectClass::SecretKey),
            Self::Public => matches!(class, ObjectClass::PublicKey | ObjectClass::SecretKey),
            Self::Any => true,
        }
    }
}

/// A name as a person gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Object(ObjectId),
    Label(String),
}

/// Digits are an object id; `label:` before them makes them a label.
fn parse(name: &str) -> Name {
    match (name.strip_prefix("label:"), name.parse()) {
        (Some(label), _) => Name::Label(label.into()),
        (None, Ok(number)) => Name::Object(ObjectId(number)),
        (None, Err(_)) => Name::Label(name.into()),
    }
}

/// Looks keys up.
pub struct Keyring<'a> {
    ask: &'a dyn Ask,
    limit: Duration,
}

impl<'a> Keyring<'a> {
    /// Looks keys up at a member.
    pub fn new(ask: &'a dyn Ask, limit: Duration) -> Self {
        Self { ask, limit }
    }

    /// One object with all its attributes.
    pub async fn show(&self, object: ObjectId) -> Result<ObjectRow, Problem> {
        match repeat(self.ask, self.limit, || ClientRequest::Show(object)).await? {
            Answer::Objects { rows, .. } => rows.into_iter().next().ok_or_else(|| none(&object.to_string())),
            other => Err(unexpected(&other)),
        }
    }

    /// The one object that a name means.
    pub async fn find(&self, name: &str, want: Want) -> Result<ObjectRow, Problem> {
        let label = match parse(name) {
            Name::Object(object) => {
                let row = self.show(object).await?;
                return if want.takes(row.class) { Ok(row) } else { Err(wrong_half(name, row.class)) };
            }
            Name::Label(label) => label,
        };
        let (mut rows, _) = self.list(Some(&label), usize::MAX).await?;
        rows.retain(|row| want.takes(row.class));
        match rows.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(none(name)),
            many => Err(ambiguous(name, many)),
        }
    }

    /// What a deletion by that name takes: one object by its id; by label a lone object or both halves of a pair.
    pub async fn family(&self, name: &str) -> Result<Vec<ObjectId>, Problem> {
        let label = match parse(name) {
            Name::Object(object) => return Ok(vec![object]),
            Name::Label(label) => label,
        };
        let (rows, _) = self.list(Some(&label), usize::MAX).await?;
        let pair = |a: &ObjectRow, b: &ObjectRow| {
            a.algorithm == b.algorithm
                && a.class == ObjectClass::PrivateKey
                && b.class == ObjectClass::PublicKey
        };
        match rows.as_slice() {
            [] => Err(none(name)),
            [one] => Ok(vec![one.object]),
            [a, b] if pair(a, b) || pair(b, a) => Ok(vec![a.object, b.object]),
            many => Err(ambiguous(name, many)),
        }
    }

    /// Objects with a label, or all; at most so many. True if there are more.
    pub async fn list(&self, label: Option<&str>, max: usize) -> Result<(Vec<ObjectRow>, bool), Problem> {
        let mut all: Vec<ObjectRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.object);
            let make = || ClientRequest::List { label: label.map(str::to_string), after };
            match repeat(self.ask, self.limit, make).await? {
                Answer::Objects { rows, more } => {
                    let end = rows.is_empty() || !more;
                    all.extend(rows);
                    if all.len() > max {
                        all.truncate(max);
                        return Ok((all, true));
                    }
                    if end {
                        return Ok((all, false));
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }
}

fn none(name: &str) -> Problem {
    Problem::new(
        Exit::NotFound,
        format!("there is no such key '{name}'"),
        "'keyraft key list' shows what there is",
    )
}

fn wrong_half(name: &str, class: ObjectClass) -> Problem {
    let what = format!("object {name} is a {class} object, which cannot do this");
    Problem::usage(what, "name the other half of the pair; 'keyraft key list' shows both")
}

fn ambiguous(name: &str, rows: &[ObjectRow]) -> Problem {
    let ids: Vec<String> = rows.iter().take(8).map(|row| row.object.to_string()).collect();
    let what = format!("{} objects are called '{name}'", rows.len());
    Problem::usage(what, format!("name one by its object id: {}", ids.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::BoxFuture;
    use keyraft_engine::domain::{Attributes, Curve, KeyAlgorithm};
    use keyraft_engine::wire::Failure;

    /// Answers List one row a page.
    struct Pages(Vec<ObjectRow>);

    impl Ask for Pages {
        fn ask(&self, request: ClientRequest, _: Duration) -> BoxFuture<'_, Result<Answer, Failure>> {
            let rows: Vec<ObjectRow> = match request {
                ClientRequest::List { after, .. } => {
                    self.0.iter().filter(|r| after.is_none_or(|a| r.object > a)).cloned().collect()
                }
                ClientRequest::Show(object) => {
                    self.0.iter().filter(|r| r.object == object).cloned().collect()
                }
                _ => Vec::new(),
            };
            let more = rows.len() > 1;
            Box::pin(async move { Ok(Answer::Objects { rows: rows.into_iter().take(1).collect(), more }) })
        }
    }

    fn pages(classes: &[ObjectClass]) -> Pages {
        let row = |(i, class): (usize, &ObjectClass)| ObjectRow {
            object: ObjectId(i as u64 + 1),
            class: *class,
            algorithm: Some(KeyAlgorithm::Ec(Curve::P256)),
            attributes: Attributes::new(),
        };
        Pages(classes.iter().enumerate().map(row).collect())
    }

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_pair_has_two_halves() {
        let ask = pages(&[ObjectClass::PrivateKey, ObjectClass::PublicKey]);
        let keyring = Keyring::new(&ask, LIMIT);
        assert_eq!(keyring.find("x", Want::Private).await.map(|r| r.object), Ok(ObjectId(1)));
        assert_eq!(keyring.find("x", Want::Public).await.map(|r| r.object), Ok(ObjectId(2)));
        assert_eq!(keyring.find("2", Want::Private).await.expect_err("is public").exit, Exit::Usage);
        assert_eq!(keyring.family("x").await, Ok(vec![ObjectId(1), ObjectId(2)]));
        assert_eq!(keyring.family("2").await, Ok(vec![ObjectId(2)]));
        assert_eq!(keyring.list(None, 1).await.map(|(rows, more)| (rows.len(), more)), Ok((1, true)));
        assert_eq!(keyring.list(None, 2).await.map(|(rows, more)| (rows.len(), more)), Ok((2, false)));
    }

    #[tokio::test]
    async fn ambiguity_and_absence_are_named() {
        let ask = pages(&[ObjectClass::SecretKey, ObjectClass::SecretKey]);
        let keyring = Keyring::new(&ask, LIMIT);
        let problem = keyring.family("x").await.expect_err("is ambiguous");
        assert!(problem.remedy.contains("1, 2"), "{problem}");
        let nothing = pages(&[]);
        let problem = Keyring::new(&nothing, LIMIT).find("7", Want::Any).await.expect_err("is absent");
        assert_eq!(problem.exit, Exit::NotFound);
    }

    #[test]
    fn digits_are_an_id() {
        assert_eq!(parse("7"), Name::Object(ObjectId(7)));
        assert_eq!(parse("label:7"), Name::Label("7".into()));
        assert_eq!(parse("pay"), Name::Label("pay".into()));
    }
}
