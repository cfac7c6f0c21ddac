//! What really lies in a stopped member's token, as others than the member see it: SoftHSM through OpenSC's
//! `pkcs11-tool` and through its own files, the embedded token through a second opening of its database.

use crate::TokenKind;
use crate::group::{Member, PIN, SOFTHSM};
use keyraft_engine::domain::GroupId;
use keyraft_engine::token::{ModuleSource, Pin, SlotChoice, Token, TokenConfig};
use std::fs;
use std::process::Command;

/// One object of a SoftHSM token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lying {
    /// What `pkcs11-tool` calls it: its class and kind.
    pub kind: String,
    /// CKA_LABEL.
    pub label: String,
    /// CKA_ID, as text if it is any.
    pub id: String,
    /// What may be done with its value.
    pub access: String,
}

/// Every object in a member's SoftHSM token. Panics if a file with anything in it lies there that is not one of them:
/// an object that answers nothing. Empty files do not count: a kill leaves one when SoftHSM has made it and not written
/// to it yet, SoftHSM shows it to nobody, and no PKCS#11 call removes it.
pub fn in_softhsm(member: &Member) -> Vec<Lying> {
    let mut command = Command::new("pkcs11-tool");
    command.env("SOFTHSM2_CONF", member.folder.join("softhsm2.conf"));
    command.args(["--module", SOFTHSM, "--token-label", &format!("token-{}", member.name)]);
    command.args(["--login", "--pin", PIN, "--list-objects"]);
    let output = command.output().expect("runs pkcs11-tool: apt-get install opensc");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "pkcs11-tool: {}{text}", String::from_utf8_lossy(&output.stderr));
    let objects = parse(&text);
    let mut files = 0;
    for token in fs::read_dir(member.token(TokenKind::SoftHsm)).expect("lists") {
        for file in fs::read_dir(token.expect("lists").path()).expect("lists") {
            let path = file.expect("lists").path();
            let object = path.extension().is_some_and(|e| e == "object") && !path.ends_with("token.object");
            files += usize::from(object && path.metadata().expect("is there").len() > 0);
        }
    }
    assert_eq!(files, objects.len(), "every file is an object that answers: {text}");
    objects
}

/// An object begins with a line that is not indented; its attributes follow, indented.
fn parse(text: &str) -> Vec<Lying> {
    let mut objects: Vec<Lying> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let Some(attribute) = line.strip_prefix("  ") else {
            // What the tool says of its choice of slot.
            if !line.starts_with("Using slot") {
                objects.push(Lying { kind: line.to_string(), ..Lying::default() });
            }
            continue;
        };
        let Some(object) = objects.last_mut() else { continue };
        match attribute.split_once(':').map(|(name, value)| (name.trim(), value.trim())) {
            Some(("label", value)) => object.label = value.to_string(),
            Some(("ID", value)) => {
                let bytes = data_encoding::HEXLOWER.decode(value.as_bytes()).unwrap_or_default();
                object.id = String::from_utf8(bytes).unwrap_or_else(|_| value.to_string());
            }
            Some(("Access", value)) => object.access = value.to_string(),
            _ => {}
        }
    }
    objects
}

/// What a member's embedded token holds besides its own three keys.
pub async fn in_embedded(member: &Member, group: GroupId) -> keyraft_engine::token::Inventory {
    let config = TokenConfig {
        source: ModuleSource::Embedded { folder: member.token(TokenKind::Embedded) },
        slot: SlotChoice::Only,
        pin: Some(Pin::new(PIN.to_string())),
        residency: None,
    };
    let opened = tokio::task::spawn_blocking(move || Token::open(config)).await.expect("does not panic");
    let token = opened.unwrap_or_else(|e| panic!("the token of {} opens: {e}", member.name));
    token.bind(group);
    let found = token.inventory().await.expect("lists");
    token.close().await;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pkcs11_tool_says() {
        let text = "Using slot 0 with a present token (0x1)\n\
                    Secret Key Object; AES length 32\n  label:      kr1:x\n  ID:         6b72313a78\n  \
                    Usage:      wrap, unwrap\n  Access:     sensitive, always sensitive\n\
                    Private Key Object; RSA \n  label:      \n";
        let key = Lying {
            kind: "Secret Key Object; AES length 32".into(),
            label: "kr1:x".into(),
            id: "kr1:x".into(),
            access: "sensitive, always sensitive".into(),
        };
        let bare = Lying { kind: "Private Key Object; RSA ".into(), ..Lying::default() };
        assert_eq!(parse(text), [key, bare]);
    }
}
