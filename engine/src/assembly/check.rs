//! Examines a member before it serves: its folder, its token, its place in the group. Changes nothing.

use super::engine::unlock;
use super::home;
use super::{MemberConfig, StartError, open_token};
use crate::domain::{CannotCarry, KeyAlgorithm};

/// Says what stands in the way of serving (errors) and what is worth knowing (notes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The member must not serve while one of these stands.
    pub errors: Vec<String>,
    /// The member serves; a person may want to know.
    pub notes: Vec<String>,
}

/// Examines the member of this configuration. The member must not be running.
pub async fn check(config: &MemberConfig) -> Findings {
    let mut findings = Findings::default();
    let identity = match home::load(&config.folder) {
        Ok(identity) => Some(identity),
        Err(error) => {
            findings.errors.push(error.to_string());
            None
        }
    };
    let token = match open_token(config.token.clone()).await {
        Ok(token) => token,
        Err(error) => {
            findings.errors.push(StartError::Token(error).to_string());
            return findings;
        }
    };
    let profile = token.profile().clone();
    let name = &profile.identity;
    findings.notes.push(format!("token: {} {} '{}'", name.manufacturer, name.model, name.label));
    let kinds = KeyAlgorithm::promised().map(|kind| (kind, format!("keys of kind {kind}")));
    let odd = (KeyAlgorithm::ODD_SECRET, "secrets whose length is not a multiple of 8 bytes".to_string());
    for (kind, named) in kinds.into_iter().chain([odd]) {
        match profile.can_carry(kind, false) {
            Ok(()) => {}
            Err(why @ CannotCarry::InMemoryOnly) => {
                findings.notes.push(format!("{named} can be held here only by value: {why}"));
            }
            Err(why) => findings.notes.push(format!("{named} cannot be held here: {why}")),
        }
    }
    if !profile.unwrap_template {
        findings.notes.push("the token does not enforce an unwrap template on the SMK".to_string());
    }
    if let Some(identity) = &identity {
        token.bind(identity.group);
        if let Err(error) = unlock(&token, identity).await {
            findings.errors.push(error.to_string());
        }
    }
    match token.inventory().await {
        Ok(found) => {
            for (group, count) in &found.other_groups {
                findings
                    .notes
                    .push(format!("{count} keys of another group ({group}) lie in the token; left alone"));
            }
            if found.foreign > 0 {
                let count = found.foreign;
                findings
                    .notes
                    .push(format!("{count} objects that are not keyraft's lie in the token; left alone"));
            }
        }
        Err(error) => findings.errors.push(StartError::Token(error).to_string()),
    }
    token.close().await;
    findings
}
