//! `force-quorum`: says what will be lost, asks, and lets one survivor begin a new history.

use crate::cli::ForceQuorum;
use crate::config::Config;
use crate::engine;
use crate::exit::{Exit, Problem};
use crate::output::View;
use serde_json::json;
use std::io::BufRead;

/// Runs it on the store of the configured member, which must not be running.
pub async fn run(config: &Config, options: &ForceQuorum) -> Result<View, Problem> {
    let survivor = engine::survivor(config).await?;
    let survey = survivor.survey().clone();
    eprint!("{survey}");
    if !options.yes_this_loses_the_others {
        confirm(&survey.group.to_string(), std::io::stdin().lock())?;
    }
    let done = engine::begin_anew(survivor, config).await?;
    let text = format!(
        "{} is the only member of group {}, in its history {}: start it with 'keyraft serve'. Clear the data folders of \
         the others, and let them join by new invitations",
        done.member, done.group, done.next
    );
    let lost: Vec<_> = done
        .lost
        .iter()
        .map(|(id, name, address, answers)| {
            json!({"member": id.to_string(), "name": name, "address": address, "answers": answers})
        })
        .collect();
    let json = json!({
        "group": done.group.to_string(),
        "member": done.member.to_string(),
        "lineage": done.next.0,
        "objects": done.objects,
        "lost": lost,
        "warnings": done.warnings,
    });
    Ok(View::line(text, json))
}

/// Lets a person type the group's id.
fn confirm(group: &str, mut input: impl BufRead) -> Result<(), Problem> {
    eprint!("Nothing was changed yet. Type the group's id to go on: ");
    let mut typed = String::new();
    input.read_line(&mut typed).map_err(|e| Problem::io("reading standard input", &e))?;
    if typed.trim() == group {
        return Ok(());
    }
    Err(Problem::new(
        Exit::Refused,
        "that is not the group's id: nothing was changed",
        "type it as shown above, or give --yes-this-loses-the-others",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_groups_id_goes_on() {
        assert_eq!(confirm("00ff", &b"00ff\n"[..]), Ok(()));
        for typed in ["", "\n", "yes\n", "00fe\n"] {
            let problem = confirm("00ff", typed.as_bytes()).expect_err(typed);
            assert!(problem.exit == Exit::Refused && problem.what.contains("nothing was changed"));
        }
    }
}
