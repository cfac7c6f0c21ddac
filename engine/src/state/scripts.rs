//! Golden scripts: stories of commands, outcomes and changed rows in `tests/scripts/state`, and the bytes of every
//! command and outcome in `tests/scripts/format`. `KEYRAFT_UPDATE_SCRIPTS=1 cargo test` rewrites them; read the
//! difference before you commit it, and never accept one in `format` once a version is released.

use super::properties::{bootstrap, card, envelope};
use super::*;
use crate::codec;
use crate::domain::{ClientId, ClientName, Fingerprint, Role, Version};
use data_encoding::HEXLOWER;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const UPDATE: &str = "KEYRAFT_UPDATE_SCRIPTS";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name)
}

fn compare(path: &Path, expected: &str, got: &str) {
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(path, got).expect("the script is writable");
    } else {
        assert!(expected == got, "{} differs; {UPDATE}=1 rewrites it. Now:\n{got}", path.display());
    }
}

#[test]
fn stories() {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder("state"))
        .expect("scripts are there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 10, "scripts went missing");
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("readable");
        let mut story = Story::default();
        let blocks: Vec<String> = text.trim().split("\n\n").map(|block| story.block(block)).collect();
        compare(&path, &text, &(blocks.join("\n\n") + "\n"));
    }
}

/// A state that a script talks to.
#[derive(Default)]
struct Story {
    state: State,
}

impl Story {
    /// Runs the commands of one block and gives the block with what came of them.
    fn block(&mut self, block: &str) -> String {
        let head: Vec<&str> = block.lines().take_while(|line| *line != "---").collect();
        let mut out = String::new();
        for line in head.iter().filter(|line| !line.starts_with('#')) {
            self.line(line, &mut out);
        }
        let head = head.join("\n");
        if out.is_empty() { head } else { format!("{head}\n---\n{}", out.trim_end()) }
    }

    fn line(&mut self, line: &str, out: &mut String) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "roster" => self.roster(out),
            "waits" => {
                let request = request(words[1]);
                let _ = writeln!(out, "{} waits for {:?}", words[1], self.state.waits_for(request));
            }
            _ => {
                let mut index = LogIndex(self.state.applied().0 + 1);
                if words[0] == "at" {
                    index = LogIndex(words[1].parse().expect("an index"));
                    words.drain(..2);
                }
                self.apply(index, command(&words), out);
            }
        }
    }

    fn apply(&mut self, index: LogIndex, command: Command, out: &mut String) {
        let before = self.state.clone();
        let effects = self.state.apply(index, command);
        let _ = writeln!(out, "{index} {:?}", effects.outcome);
        for (id, member) in self.state.members() {
            if before.member(id) != Some(member) {
                let _ = write!(out, "   member {id} {} {:?}", member.card.name, member.standing);
                out.push_str(&rest(member));
            }
        }
        for (id, member) in before.members() {
            if self.state.member(id).is_none() {
                let _ = writeln!(out, "   member {id} {} gone", member.card.name);
            }
        }
        for id in &effects.objects {
            match self.state.object(*id) {
                Some(object) => {
                    let _ = write!(out, "   object {id} {} {}", object.class, phase(&object.phase));
                    for (member, refusal) in &object.excluded {
                        let _ = write!(out, ", without {member}: {}", refusal.reason);
                    }
                    out.push('\n');
                }
                None => {
                    let _ = writeln!(out, "   object {id} gone");
                }
            }
        }
        for (key, _) in &effects.contents {
            let _ = writeln!(out, "   content {key}");
        }
    }

    fn roster(&self, out: &mut String) {
        for (id, member) in self.state.members() {
            let _ = write!(out, "{id} {} {} {:?}", member.card.name, member.card.address, member.standing);
            out.push_str(&rest(member));
        }
    }
}

/// What most rows do not have.
fn rest(member: &Member) -> String {
    let duty = if member.duty == Duty::Standby { ", standby" } else { "" };
    let tries = match member.way_back.tries {
        0 => String::new(),
        tries => format!(", tries {tries}"),
    };
    let called = if member.way_back.called { ", called" } else { "" };
    format!("{duty}{tries}{called}\n")
}

fn phase(phase: &Phase) -> String {
    match phase {
        Phase::Pending(request) => format!("pending {}", name(*request)),
        Phase::Settled => "settled".into(),
        Phase::Removing(request) => format!("removing {}", name(*request)),
    }
}

/// Clients are letters in scripts; `a` is born at index 1, `a@5` at index 5.
fn request(text: &str) -> RequestId {
    let (client, sequence) = text.split_once('.').expect("client.sequence");
    let (letter, born) = client.split_once('@').unwrap_or((client, "1"));
    let client =
        ClientId { born: LogIndex(born.parse().expect("a birth")), nonce: letter.as_bytes()[0].into() };
    RequestId { client, sequence: sequence.parse().expect("a sequence") }
}

fn name(request: RequestId) -> String {
    let letter = char::from(u8::try_from(request.client.nonce).expect("a letter"));
    format!("{letter}.{}", request.sequence)
}

fn member(text: &str) -> MemberId {
    MemberId(text.trim_start_matches('m').parse().expect("a member"))
}

fn number(text: &str) -> u64 {
    text.trim_start_matches('#').parse().expect("a number")
}

/// `key=value` words; the rest are positional.
fn option<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn refusals(words: &[&str]) -> BTreeMap<MemberId, Refusal> {
    let refusal = |text: &str| {
        let (who, why) = text.split_once(':').expect("member:reason");
        (member(who), Refusal { member: member(who), reason: why.into() })
    };
    option(words, "without").into_iter().map(refusal).collect()
}

fn context(words: &[&str]) -> RequestContext {
    RequestContext {
        id: request(words[1]),
        watermark: option(words, "watermark").map_or(0, number),
        parameters: [option(words, "parameters").map_or(0, number) as u8; 16],
    }
}

fn new_object(word: &str, words: &[&str]) -> NewObject {
    let (class, id) = word.split_once(':').expect("class:id");
    let class = match class {
        "secret" => ObjectClass::SecretKey,
        "private" => ObjectClass::PrivateKey,
        "public" => ObjectClass::PublicKey,
        "certificate" => ObjectClass::Certificate,
        other => panic!("no class {other}"),
    };
    let generation = Generation(option(words, "generation").map_or(1, number) as u32);
    let version = Version(option(words, "version").map_or(1, number) as u32);
    let content = ContentKey { object: ObjectId(number(id)), version, generation };
    NewObject { content, class, envelope: envelope(), excluded: refusals(words) }
}

fn invite_id(text: &str) -> InviteId {
    InviteId([text.as_bytes()[0]; 8])
}

fn command(words: &[&str]) -> Command {
    let positional: Vec<&str> = words.iter().skip(2).filter(|word| !word.contains('=')).copied().collect();
    let millis = |key| UnixMillis(option(words, key).map_or(0, number));
    match words[0] {
        "bootstrap" => bootstrap(),
        "invite" => Command::Invite {
            id: invite_id(words[1]),
            secret_hash: [0; 32],
            expires: millis("expires"),
            at: millis("at"),
            duty: if words.contains(&"standby") { Duty::Standby } else { Duty::Active },
        },
        "admit" => Command::Admit {
            invite: invite_id(words[1]),
            at: millis("at"),
            card: Box::new(card(positional[0])),
        },
        "announce" => Command::Announce { member: member(words[1]), card: Box::new(card(positional[0])) },
        "remove-member" => Command::RemoveMember { member: member(words[1]) },
        "enter" => Command::EnterInSync { member: member(words[1]) },
        "reach" => {
            Command::ReachInSync { member: member(words[1]), reached: LogIndex(number(positional[0])) }
        }
        "leave" => Command::LeaveInSync {
            member: member(words[1]),
            reason: match positional[0] {
                "unreachable" => LeaveReason::Unreachable,
                "stopped" => LeaveReason::Stopped,
                why => LeaveReason::TokenFailed(why.into()),
            },
        },
        "reserve" => Command::ReserveIds { member: member(words[1]), count: number(positional[0]) },
        "put" => Command::Put {
            request: context(words),
            objects: positional.iter().map(|word| new_object(word, words)).collect(),
        },
        "remove" => Command::Remove {
            request: context(words),
            objects: positional.iter().map(|word| ObjectId(number(word))).collect(),
        },
        "replace" => Command::Replace { request: context(words), object: new_object(positional[0], words) },
        "differ" => Command::Differ {
            request: context(words),
            object: ObjectId(number(positional[0])),
            version: Version(option(words, "version").map_or(1, number) as u32),
        },
        "done" => {
            let holders = positional.iter().map(|word| member(word)).collect();
            settle(words[1], Verdict::Done { holders, excluded: refusals(words) })
        }
        "abort" => {
            let reason = positional[1..].join(" ");
            settle(words[1], Verdict::Aborted(Refusal { member: member(positional[0]), reason }))
        }
        "partial-keys" => Command::SetOption(GroupOption::PartialKeys(match words[1] {
            "allow" => PartialKeys::Allow,
            _ => PartialKeys::Refuse,
        })),
        "set-pin" => Command::SetPin {
            role: role(words[1]),
            hash: positional.first().map(|hash| PinHash((*hash).into())),
            follows: option(words, "follows").map_or(0, number) as u32,
            by: option(words, "by").map(request),
        },
        "charge-pin" => Command::ChargePin {
            who: ClientName(words[1].into()),
            role: role(positional[0]),
            attempt: request(positional[1]),
            tag: [option(words, "tag").map_or(0, number) as u8; 16],
        },
        "clear-pin" => Command::ClearPin { who: ClientName(words[1].into()), role: role(positional[0]) },
        "add-client" => Command::AddClient {
            name: words[1].parse().expect("a name"),
            tls: Fingerprint([number(positional[0]) as u8; 32]),
        },
        "duty" => Command::SetDuty {
            member: member(words[1]),
            duty: match positional[0] {
                "standby" => Duty::Standby,
                _ => Duty::Active,
            },
        },
        "count-retry" => Command::CountRetry { member: member(words[1]) },
        "recover" => Command::Recover { member: member(words[1]) },
        "auto-recovery" => Command::SetOption(GroupOption::AutoRecovery(AutoRecovery {
            retries: words[1].parse().expect("a number"),
            interval_seconds: option(words, "interval").map_or(60, number) as u32,
        })),
        "remove-client" => Command::RemoveClient { name: words[1].parse().expect("a name") },
        other => panic!("no command {other}"),
    }
}

fn role(text: &str) -> Role {
    match text {
        "user" => Role::User,
        "so" => Role::SecurityOfficer,
        other => panic!("no role {other}"),
    }
}

fn settle(id: &str, verdict: Verdict) -> Command {
    Command::Settle { settlements: vec![Settlement { request: request(id), verdict }] }
}

#[test]
fn format() {
    let path = folder("format").join("commands.txt");
    let mut got = String::from("# The bytes of every command, behind the format version.\n");
    for command in every_command() {
        let bytes = codec::encode(&command).expect("encodes");
        assert_eq!(codec::decode::<Command>(&bytes, bytes.len()), Ok(command.clone()));
        let _ = writeln!(got, "{command}\n  {}", HEXLOWER.encode(&bytes));
    }
    compare(&path, &std::fs::read_to_string(&path).unwrap_or_default(), &got);
    let path = folder("format").join("outcomes.txt");
    let mut got = String::from("# The bytes of every outcome, behind the format version.\n");
    for outcome in every_outcome() {
        let bytes = codec::encode(&outcome).expect("encodes");
        assert_eq!(codec::decode::<Outcome>(&bytes, bytes.len()), Ok(outcome.clone()));
        let _ = writeln!(got, "{outcome:?}\n  {}", HEXLOWER.encode(&bytes));
    }
    compare(&path, &std::fs::read_to_string(&path).unwrap_or_default(), &got);
}

fn every_command() -> Vec<Command> {
    let lines = [
        "bootstrap",
        "invite a expires=300 at=2",
        "admit a two at=5",
        "announce m2 three",
        "remove-member m2",
        "enter m2",
        "reach m2 #9",
        "leave m2 unreachable",
        "leave m2 broken",
        "leave m2 stopped",
        "reserve m1 256",
        "put a.1 secret:7 watermark=1 parameters=9 without=m3:full",
        "put a.1 private:8 public:9",
        "put a.1 certificate:10",
        "done a.1 m1 m2 without=m3:full",
        "abort a.1 m2 full",
        "remove a.2 8 9",
        "partial-keys refuse",
        "partial-keys allow",
    ];
    let mut commands: Vec<Command> =
        lines.iter().map(|line| command(&line.split_whitespace().collect::<Vec<_>>())).collect();
    commands.extend([
        Command::SetOption(GroupOption::AllowInmemoryImport(true)),
        Command::SetOption(GroupOption::IsolatedService(IsolatedService::Serve)),
        Command::SetOption(GroupOption::IsolatedService(IsolatedService::Fence)),
        command(&["replace", "a.3", "secret:7", "version=2"]),
    ]);
    let Command::Bootstrap(mut bootstrap) = bootstrap() else { panic!("not a bootstrap") };
    bootstrap.smk.recovery =
        Some(RecoveryCopy { recipient: vec![6; 2], smk: vec![7; 2], envelope_key: vec![8; 2] });
    commands.push(Command::Bootstrap(bootstrap));
    commands.push(Command::SetOption(GroupOption::AllowInitToken(true)));
    let later = [
        "set-pin user hash follows=1",
        "set-pin so follows=2 by=a.1",
        "charge-pin uid:5 user a.1 tag=9",
        "clear-pin uid:5 so",
        "add-client web 5",
        "remove-client web",
        "duty m2 standby",
        "duty m2 active",
        "count-retry m2",
        "recover m2",
        "auto-recovery -1 interval=60",
        "auto-recovery 5 interval=1",
        "invite a standby expires=300 at=2",
    ];
    commands.extend(later.iter().map(|line| command(&line.split_whitespace().collect::<Vec<_>>())));
    commands.push(Command::SetOption(GroupOption::PrimaryOverride(true)));
    commands.push(Command::SetOption(GroupOption::UptimeMargin(300)));
    commands.push(Command::SetPriority { member: MemberId(2), priority: 1 });
    commands.push(Command::ConfirmFence { member: MemberId(2), since: LogIndex(9) });
    commands.extend(
        [DirectChanges::Undo, DirectChanges::Adopt]
            .map(|value| Command::SetOption(GroupOption::DirectChanges(value))),
    );
    commands.push(command(&["differ", "a.4", "7", "version=2"]));
    commands
}

fn every_outcome() -> Vec<Outcome> {
    let id = ObjectId(7);
    let rejections = [
        Rejection::AlreadyBootstrapped,
        Rejection::NotBootstrapped,
        Rejection::NoSuchMember(MemberId(2)),
        Rejection::TooManyMembers,
        Rejection::MemberExists("two".into()),
        Rejection::InviteInvalid,
        Rejection::TooManyInvites,
        Rejection::LastInSync(MemberId(2)),
        Rejection::WrongStanding(MemberId(2)),
        Rejection::IdNotFree(id),
        Rejection::StaleGeneration(Generation(1)),
        Rejection::NoSuchObject(id),
        Rejection::Expired,
        Rejection::ParametersDiffer,
        Rejection::TooManyRequests,
        Rejection::Malformed("so".into()),
        Rejection::PinLocked,
        Rejection::PinNotSet(Role::User),
        Rejection::PinChanged(Role::SecurityOfficer),
        Rejection::Superseded(Version(2)),
        Rejection::ClientExists("web".parse().expect("a name")),
        Rejection::NoSuchClient("web".parse().expect("a name")),
        Rejection::TooManyClients,
        Rejection::LastActive(MemberId(2)),
    ];
    let requests = [
        RequestState::Creating(vec![id]),
        RequestState::Removing(vec![id]),
        RequestState::Created(vec![id, ObjectId(8)]),
        RequestState::Removed(vec![id]),
        RequestState::Aborted(Refusal { member: MemberId(2), reason: "full".into() }),
        RequestState::Rejected(Rejection::NoSuchObject(id)),
        RequestState::Replaced(id),
        RequestState::Differs(id),
    ];
    let mut outcomes = vec![
        Outcome::Applied,
        Outcome::Admitted(MemberId(2)),
        Outcome::Reserved { first: id, count: 256 },
        Outcome::Settled(vec![true, false]),
    ];
    outcomes.push(Outcome::Charged(2));
    outcomes.extend(requests.map(Outcome::Request));
    outcomes.extend(rejections.map(Outcome::Rejected));
    outcomes
}
