//! Examines a member before it serves: its folder, its token, its place in the group. Changes nothing.

use super::engine::unlock;
use super::home;
use super::{MemberConfig, StartError, open_token};
use crate::domain::KeyAlgorithm;

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
    for kind in KeyAlgorithm::promised() {
        if let Err(why) = profile.can_carry(kind, false) {
            findings.notes.push(format!("keys of kind {kind} cannot be held here: {why}"));
        }
    }
    if let Err(why) = profile.can_carry(KeyAlgorithm::ODD_SECRET, false) {
        let kind = "secrets whose length is not a multiple of 8 bytes";
        findings.notes.push(format!("{kind} cannot be held here: {why}"));
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
