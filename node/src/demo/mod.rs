//! `keyraft demo`: real processes form a group, make keys, lose their primary by kill -9, carry on, and take the lost
//! one back. Ends with a count of what was really checked; with exit 0 only if every check passed.

mod group;
pub mod outside;
mod report;
mod story;
mod token;
mod uses;

use crate::cli::Demo;
use crate::exit::{Exit, Problem};
use crate::process;
use group::Group;
use report::Report;
use token::TokenKind;

/// Runs the demo. On a failure and on Ctrl-C every process ends and the folder goes, unless it is kept.
pub async fn run(options: &Demo, json: bool) -> Result<(), Problem> {
    let kind = TokenKind::find(&options.token)?;
    let mut group = Group::prepare(options, &kind)?;
    let mut report = Report::new(json);
    let told = tokio::select! {
        told = story::tell(options, &kind, &mut group, &mut report) => told,
        signal = process::stop_signal() => {
            Err(Problem::new(Exit::Interrupted, format!("{signal}: the demo ends, and every member with it"), ""))
        }
    };
    if let Err(problem) = told {
        if problem.exit != Exit::Interrupted {
            let words = group.last_words();
            if !words.is_empty() {
                eprintln!("What the members said last:\n{words}");
            }
        }
        if options.keep {
            eprintln!("The folder is kept: {}", group.folder().display());
        }
        return Err(problem);
    }
    let summary = report.summary();
    if json {
        crate::command::write_out(format!("{summary:#}\n").as_bytes())?;
    }
    if options.keep {
        keep(group, &report);
    }
    Ok(())
}

/// Lets the processes live on, and says how to talk to them.
fn keep(group: Group, report: &Report) {
    let program = std::env::current_exe().map_or_else(|_| "keyraft".into(), |p| p.display().to_string());
    let folder = group.folder().display().to_string();
    let config = group.members.first().map(|m| m.config().display().to_string()).unwrap_or_default();
    let client = group.client_config().display().to_string();
    let ids: Vec<String> = group.let_go().iter().map(u32::to_string).collect();
    report.put(&format!(
        "\nThe group is running. Talk to it:\n\
         \x20 export KEYRAFT_MEMBER_CONFIG={config}\n\
         \x20 {program} status\n\
         \x20 {program} key create ec:p256 --label mine\n\
         \x20 echo hello | {program} key sign mine\n\
         \x20 {program} coverage\n\
         Applications that load libkeyraft_pkcs11.so log in with the demo's PIN, and find the group by:\n\
         \x20 KEYRAFT_CONFIG={client}\n\
         End it and remove everything:\n\
         \x20 kill {}; rm -rf {folder}",
        ids.join(" ")
    ));
}
