//! Commands about keys: make, bring in, list, show, delete. What is done with them is in `uses`.

use super::keyring::{Keyring, Want};
use super::{streams, uses};
use crate::caller::{Ask, Caller, unexpected};
use crate::cli::{ImportKind, Key, KeyImport, KeyTraits, Usage};
use crate::exit::Problem;
use crate::output::{self, View};
use crate::text;
use keyraft_engine::domain::{
    AttributeType, AttributeValue, Attributes, KeyAlgorithm, ObjectClass, RequestId,
};
use keyraft_engine::wire::{
    Answer, ClientRequest, CreateKey, Deletion, ImportKey, KeyTemplate, ObjectRow, SecretBytes,
};
use serde_json::json;
use std::time::Duration;
use zeroize::Zeroizing;

pub(super) async fn run(ask: &dyn Ask, limit: Duration, command: &Key) -> Result<Option<View>, Problem> {
    let keyring = Keyring::new(ask, limit);
    let view = match command {
        Key::Create(create) => {
            let template = KeyTemplate {
                algorithm: create.algorithm,
                attributes: attributes(&create.traits, Purpose::New),
            };
            let rows = made(ask, limit, |request, watermark| {
                ClientRequest::Create(CreateKey { request, watermark, template: template.clone() })
            })
            .await?;
            output::objects(&rows, false)
        }
        Key::Import(import) => {
            let incoming = incoming(import)?;
            let rows = made(ask, limit, |request, watermark| incoming.request(request, watermark)).await?;
            output::objects(&rows, false)
        }
        Key::List { label, limit: max } => {
            let (rows, more) = keyring.list(label.as_deref(), *max as usize).await?;
            output::objects(&rows, more)
        }
        Key::Show { key, pem } => {
            let want = if *pem { Want::Any } else { Want::Private };
            let row = show(&keyring, key, want, *pem).await?;
            if *pem {
                super::write_out(pem_of(&row)?.as_bytes())?;
                return Ok(None);
            }
            output::object(&row)
        }
        Key::Delete { key } => delete(ask, limit, &keyring.family(key).await?).await?,
        Key::Sign(sign) => return uses::sign(ask, limit, sign).await,
        Key::Verify(verify) => return uses::verify(ask, limit, verify).await,
        Key::Encrypt(cipher) => return uses::encrypt(ask, limit, cipher).await,
        Key::Decrypt(cipher) => return uses::decrypt(ask, limit, cipher).await,
    };
    Ok(Some(view))
}

async fn made(
    ask: &dyn Ask,
    limit: Duration,
    make: impl Fn(RequestId, u64) -> ClientRequest,
) -> Result<Vec<ObjectRow>, Problem> {
    match Caller::begin(ask, limit).await?.change(make).await? {
        Answer::Created(rows) => Ok(rows),
        other => Err(unexpected(&other)),
    }
}

async fn delete(
    ask: &dyn Ask,
    limit: Duration,
    objects: &[keyraft_engine::domain::ObjectId],
) -> Result<View, Problem> {
    let answer = Caller::begin(ask, limit)
        .await?
        .change(|request, watermark| {
            ClientRequest::Delete(Deletion { request, watermark, objects: objects.to_vec() })
        })
        .await?;
    match answer {
        Answer::Done => {
            let ids: Vec<String> = objects.iter().map(|o| o.to_string()).collect();
            let deleted: Vec<u64> = objects.iter().map(|o| o.0).collect();
            Ok(View::line(format!("deleted {}", ids.join(" and ")), json!({"deleted": deleted})))
        }
        other => Err(unexpected(&other)),
    }
}

/// A label means the private half here, unless only something else bears it; PEM means the public half.
async fn show(keyring: &Keyring<'_>, name: &str, want: Want, pem: bool) -> Result<ObjectRow, Problem> {
    let first = if pem { Want::Public } else { want };
    let found = match keyring.find(name, first).await {
        Err(problem) if matches!(problem.exit, crate::exit::Exit::NotFound | crate::exit::Exit::Usage) => {
            keyring.find(name, Want::Any).await.map_err(|_| problem)?
        }
        other => other?,
    };
    // A list's rows have few attributes; the object itself has all.
    keyring.show(found.object).await
}

fn pem_of(row: &ObjectRow) -> Result<String, Problem> {
    let bytes = |which| match row.attributes.get(&which) {
        Some(AttributeValue::Bytes(bytes)) if !bytes.is_empty() => Some(bytes.as_slice()),
        _ => None,
    };
    let found = match row.class {
        ObjectClass::PublicKey | ObjectClass::PrivateKey => {
            bytes(AttributeType::PUBLIC_KEY_INFO).map(|der| text::to_pem("PUBLIC KEY", der))
        }
        ObjectClass::Certificate => bytes(AttributeType::VALUE).map(|der| text::to_pem("CERTIFICATE", der)),
        _ => None,
    };
    found.ok_or_else(|| {
        Problem::usage(format!("object {} has no public key to print", row.object), "leave --pem away")
    })
}

/// New keys and brought-in ones differ in what their template may say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    New,
    Key,
    Record,
}

const USAGES: [(Usage, AttributeType); 7] = [
    (Usage::Sign, AttributeType::SIGN),
    (Usage::Verify, AttributeType::VERIFY),
    (Usage::Encrypt, AttributeType::ENCRYPT),
    (Usage::Decrypt, AttributeType::DECRYPT),
    (Usage::Wrap, AttributeType::WRAP),
    (Usage::Unwrap, AttributeType::UNWRAP),
    (Usage::Derive, AttributeType::DERIVE),
];

/// Only what was said: the group fills in its defaults.
fn attributes(traits: &KeyTraits, purpose: Purpose) -> Attributes {
    let mut out = Attributes::new();
    if let Some(label) = &traits.label {
        out.insert(AttributeType::LABEL, AttributeValue::Bytes(label.clone().into_bytes()));
    }
    if let Some(id) = &traits.id {
        out.insert(AttributeType::ID, AttributeValue::Bytes(id.0.clone()));
    }
    if traits.no_modifiable {
        out.insert(AttributeType::MODIFIABLE, AttributeValue::Bool(false));
    }
    if purpose == Purpose::Record {
        return out;
    }
    if traits.extractable {
        out.insert(AttributeType::EXTRACTABLE, AttributeValue::Bool(true));
    }
    if traits.no_sensitive {
        out.insert(AttributeType::SENSITIVE, AttributeValue::Bool(false));
    }
    if !traits.only.is_empty() {
        for (usage, which) in USAGES {
            out.insert(which, AttributeValue::Bool(traits.only.contains(&usage)));
        }
    }
    out
}

/// An import, ready to be asked for.
struct Incoming {
    class: ObjectClass,
    algorithm: Option<KeyAlgorithm>,
    attributes: Attributes,
    value: Zeroizing<Vec<u8>>,
}

impl Incoming {
    fn request(&self, request: RequestId, watermark: u64) -> ClientRequest {
        ClientRequest::Import(ImportKey {
            request,
            watermark,
            class: self.class,
            algorithm: self.algorithm,
            attributes: self.attributes.clone(),
            value: SecretBytes(self.value.clone()),
        })
    }
}

fn incoming(import: &KeyImport) -> Result<Incoming, Problem> {
    let (class, algorithm) = match import.kind {
        ImportKind::Certificate => (ObjectClass::Certificate, None),
        ImportKind::Data => (ObjectClass::Data, None),
        ImportKind::Key(kind) if import.public && kind.is_pair() => (ObjectClass::PublicKey, Some(kind)),
        ImportKind::Key(kind) if kind.is_pair() => (ObjectClass::PrivateKey, Some(kind)),
        ImportKind::Key(kind) => (ObjectClass::SecretKey, Some(kind)),
    };
    if import.public && class != ObjectClass::PublicKey {
        return Err(Problem::usage(
            "--public is for halves of a pair",
            "leave it away, or name an rsa, ec or ed25519 kind",
        ));
    }
    let value = value_of(import, class, &streams::read(import.input.as_deref())?)?;
    if value.is_empty() {
        return Err(Problem::usage(
            "there is no value to bring in",
            "give it by --in FILE or on standard input",
        ));
    }
    let record = matches!(class, ObjectClass::Certificate | ObjectClass::Data);
    let purpose = if record { Purpose::Record } else { Purpose::Key };
    Ok(Incoming { class, algorithm, attributes: attributes(&import.traits, purpose), value })
}

fn value_of(import: &KeyImport, class: ObjectClass, given: &[u8]) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let wanted = match class {
        ObjectClass::PrivateKey => "PRIVATE KEY",
        ObjectClass::PublicKey => "PUBLIC KEY",
        ObjectClass::Certificate => "CERTIFICATE",
        _ => return import.encoding.decode(given, "the value").map(Zeroizing::new),
    };
    match text::from_pem(given) {
        Some((label, der)) if label == wanted => Ok(Zeroizing::new(der)),
        Some((label, _)) => Err(Problem::usage(
            format!("the PEM holds a {label}, not a {wanted}"),
            "convert it, for example by 'openssl pkcs8 -topk8 -nocrypt' or 'openssl pkey -pubout'",
        )),
        None => import.encoding.decode(given, "the value").map(Zeroizing::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Bytes, Cli, Command};
    use clap::Parser;

    fn import(line: &str, value: &[u8]) -> Result<Incoming, Problem> {
        let file = tempfile::NamedTempFile::new().expect("makes a file");
        std::fs::write(file.path(), value).expect("writes");
        let path = file.path().display().to_string();
        let words = ["keyraft", "key", "import"].into_iter().chain(line.split(' ')).chain(["--in", &path]);
        let cli = Cli::try_parse_from(words).expect("parses");
        let Command::Key(Key::Import(import)) = cli.command else { panic!("is an import") };
        incoming(&import)
    }

    #[test]
    fn kinds_become_classes() {
        let cases = [
            ("aes:256", ObjectClass::SecretKey),
            ("rsa:2048", ObjectClass::PrivateKey),
            ("ec:p256 --public", ObjectClass::PublicKey),
            ("data", ObjectClass::Data),
            ("certificate", ObjectClass::Certificate),
        ];
        for (line, class) in cases {
            assert_eq!(import(line, b"x").map(|i| i.class).expect(line), class);
        }
        assert!(import("aes:128 --public", b"x").is_err());
        assert!(import("aes:128", b"").is_err());
    }

    #[test]
    fn pem_is_recognised_and_the_wrong_one_refused() {
        let pem = text::to_pem("PRIVATE KEY", &[1, 2]);
        assert_eq!(*import("rsa:2048", pem.as_bytes()).expect("is read").value, [1, 2]);
        let problem = import("rsa:2048 --public", pem.as_bytes()).map(|_| ()).expect_err("is refused");
        assert!(problem.remedy.contains("openssl"), "{problem}");
        assert_eq!(*import("secret:2 --encoding hex", b"0102\n").expect("is read").value, [1, 2]);
    }

    #[test]
    fn only_what_was_said_is_in_the_template() {
        let traits = KeyTraits {
            label: Some("x".into()),
            id: Some(Bytes(vec![1])),
            extractable: true,
            no_sensitive: false,
            no_modifiable: false,
            only: vec![Usage::Sign],
        };
        let made = attributes(&traits, Purpose::New);
        assert_eq!(made.get(&AttributeType::SIGN), Some(&AttributeValue::Bool(true)));
        assert_eq!(made.get(&AttributeType::DECRYPT), Some(&AttributeValue::Bool(false)));
        assert!(!made.contains_key(&AttributeType::SENSITIVE));
        assert_eq!(attributes(&traits, Purpose::Record).len(), 2);
    }
}
