//! The real binary, as a person uses it: one member with an embedded token, every command, good and bad input.
//! Bad input ends with the code that the table names, says what to do, and changes nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A member's folder and process; both go with it.
struct Member {
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn private(path: &Path, text: &str) {
    fs::write(path, text).expect("writes");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("sets the mode");
}

impl Member {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("makes a folder");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        private(&folder.path().join("pin"), "1234-test\n");
        private(&folder.path().join("so-pin"), "5678-test\n");
        private(&folder.path().join("group-pin"), "9012-group\n");
        private(&folder.path().join("secret"), "a secret of the whole group\n");
        let config = format!(
            "[member]\nname = \"a\"\ndata = \"data\"\nlisten = \"127.0.0.1:{port}\"\nsocket = \"sock\"\n\
             [token]\nmodule = \"embedded\"\npin_file = \"pin\"\n\
             [domain]\nname = \"d\"\nsecret_file = \"secret\"\n"
        );
        fs::write(folder.path().join("keyraft.toml"), config).expect("writes");
        Self { folder, child: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyraft"));
        command.current_dir(self.folder.path()).args(line.split_whitespace());
        command.env_remove("KEYRAFT_MEMBER_CONFIG").env_remove("KEYRAFT_SOCKET").env_remove("NOTIFY_SOCKET");
        command
    }

    fn run(&self, line: &str, input: &[u8]) -> Output {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("runs");
        // A command that reads no input may have closed it.
        let _ = child.stdin.take().expect("has input").write_all(input);
        child.wait_with_output().expect("ends")
    }

    /// A line that must succeed; gives what it printed.
    fn good(&self, line: &str, input: &[u8]) -> Vec<u8> {
        let output = self.run(line, input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "keyraft {line}: {}\n{said}", output.status);
        output.stdout
    }

    fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_slice(&self.good(&format!("--json {line}"), b"")).expect("prints JSON")
    }

    /// A line that must fail with this code and say this.
    fn bad(&self, line: &str, code: i32, says: &str) {
        let output = self.run(&format!("--deadline 2 {line}"), b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "keyraft {line}:\n{said}");
        assert!(said.contains(says), "keyraft {line} should say '{says}':\n{said}");
    }

    fn serve(&mut self) {
        let log = fs::File::create(self.path("log")).expect("makes a log");
        let child = self.command("serve").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.child = Some(child.expect("starts"));
        let start = now();
        while !self.run("status", b"").status.success() {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(start.elapsed() < Duration::from_secs(30), "the member does not answer:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// SIGTERM; gives the exit code.
    fn stop(&mut self) -> Option<i32> {
        let mut child = self.child.take().expect("runs");
        let id = child.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("runs kill").success());
        child.wait().expect("ends").code()
    }

    fn labels(&self) -> Vec<String> {
        let list = self.json("key list");
        let rows = list["objects"].as_array().expect("has rows").iter();
        rows.map(|row| {
            format!("{} {}", row["class"].as_str().unwrap_or(""), row["label"].as_str().unwrap_or(""))
        })
        .collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a test waits for real processes")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_member_from_init_to_its_end() {
    let mut member = Member::new();
    before_there_is_a_group(&member);
    let begun =
        member.json("init --create-token --so-pin-file so-pin --label test --group-pin-file group-pin");
    assert_eq!((begun["member"].as_str(), begun["recoverable"].as_bool()), (Some("m1"), Some(false)));
    member.bad("init", 4, "a member lives in");
    member.bad("join invitation", 2, "cannot read the invitation");
    member.bad("status", 7, "keyraft serve");
    assert!(member.json("check")["errors"].as_array().is_some_and(Vec::is_empty));

    member.serve();
    the_group(&member);
    keys_of_each_kind(&member);
    sign_and_verify(&member);
    encrypt_and_decrypt(&member);
    import(&member);
    bad_lines_change_nothing(&member);
    member.bad("serve", 4, "in use by another process");

    let before = member.labels();
    assert_eq!(member.stop(), Some(0));
    let log = fs::read_to_string(member.path("log")).expect("has a log");
    assert!(
        !log.contains("1234-test")
            && !log.contains("9012-group")
            && !log.contains("secret of the whole group"),
        "{log}"
    );
    member.serve();
    assert_eq!(member.labels(), before);
    let signature = member.good("key sign pay", b"after a restart");
    fs::write(member.path("s"), signature).expect("writes");
    member.good("key verify pay --signature s", b"after a restart");
    assert_eq!(member.stop(), Some(0));
}

fn before_there_is_a_group(member: &Member) {
    member.bad("serve", 4, "keyraft init");
    assert!(!member.path("data").exists(), "a refused serve makes no folder");
    member.bad("init --create-token", 2, "--so-pin-file");
    fs::set_permissions(member.path("pin"), fs::Permissions::from_mode(0o644)).expect("sets the mode");
    member.bad("init --create-token --so-pin-file so-pin", 3, "chmod 600");
    fs::set_permissions(member.path("pin"), fs::Permissions::from_mode(0o600)).expect("sets the mode");
    member.bad("init --recovery-key pin --create-token --so-pin-file so-pin", 2, "openssl");
    private(&member.path("short"), "123");
    member.bad("init --create-token --so-pin-file so-pin --group-pin-file short", 2, "4 to 255");
    member.bad("init", 8, "token");
    member.bad("--config nowhere.toml status", 3, "config example");
    assert!(!member.path("data/identity").exists(), "nothing has begun");
}

fn the_group(member: &Member) {
    let status = member.json("status");
    assert_eq!((status["label"].as_str(), status["primary"].as_str()), (Some("test"), Some("m1")));
    assert_eq!(member.json("member list")[0]["in_sync"], true);
    let invitation = member.json("invite --life 60");
    assert!(invitation["invitation"].as_str().is_some_and(|text| text.starts_with("kr1-")));
    assert!(member.json("check")["findings"].as_array().is_some_and(Vec::is_empty));
    member.good("synchronize", b"");
    member.good("recover", b"");
    member.good("option set partial_keys allow", b"");
    assert_eq!(member.json("option show")["partial_keys"], "allow");
    member.good("option set partial_keys refuse", b"");
    member.good("option set isolated_service fence", b"");
    assert_eq!(member.json("option show")["isolated_service"], "fence");
    member.good("option set isolated_service serve", b"");
    assert_eq!(member.json("option show")["isolated_service"], "serve");
    pins(member);
}

fn pins(member: &Member) {
    let set = |status: &serde_json::Value| (status["user_pin"] == true, status["so_pin"] == true);
    assert_eq!(set(&member.json("status")), (true, false));
    member.bad("pin set --role so --pin-file short", 2, "4 to 255");
    member.bad("pin set --role so", 2, "--pin-file");
    member.good("pin set --role so --pin-file group-pin", b"");
    assert_eq!(set(&member.json("status")), (true, true));
    let config = String::from_utf8(member.good("client config sock", b"")).expect("is text");
    assert!(config.starts_with("[[group]]\nsockets = [\"/") && config.ends_with("sock\"]\n"), "{config}");
}

fn keys_of_each_kind(member: &Member) {
    for (kind, label) in [
        ("ec:p256", "pay"),
        ("ec:p521", "long"),
        ("rsa:2048", "doc"),
        ("ed25519", "shell"),
        ("aes:256", "vault"),
        ("secret:32", "mac"),
    ] {
        let made = member.json(&format!("key create {kind} --label {label} --id 0a0b"));
        assert_eq!(made["objects"][0]["kind"], kind);
        assert_eq!(made["objects"][0]["id"], "0a0b");
    }
    assert_eq!(member.labels().len(), 10);
    let shown = member.json("key show pay");
    assert_eq!(shown["attributes"]["CKA_SENSITIVE"], true);
    assert_eq!(shown["attributes"]["CKA_EXTRACTABLE"], false);
    let pem = member.good("key show pay --pem", b"");
    assert!(pem.starts_with(b"-----BEGIN PUBLIC KEY-----"));
    let coverage = member.json("coverage");
    let rows = coverage.as_array().expect("has rows");
    assert!(rows.len() == 10 && rows.iter().all(|row| row["members"]["m1"]["state"] == "present"));
}

fn sign_and_verify(member: &Member) {
    for (key, options) in [
        ("pay", ""),
        ("pay", "--format raw --encoding hex"),
        ("long", ""),
        ("doc", ""),
        ("doc", "--mechanism rsa-pkcs-sha512 --encoding raw"),
        ("shell", ""),
        ("mac", ""),
    ] {
        let signature = member.good(&format!("key sign {key} {options}"), b"data");
        fs::write(member.path("s"), &signature).expect("writes");
        member.good(&format!("key verify {key} {options} --signature s"), b"data");
        let other = member.run(&format!("key verify {key} {options} --signature s"), b"other");
        assert_eq!(other.status.code(), Some(10), "{key} {options}");
    }
}

fn encrypt_and_decrypt(member: &Member) {
    for (key, options) in
        [("vault", "--aad x"), ("vault", "--mechanism aes-cbc-pad --encoding hex"), ("doc", "--encoding raw")]
    {
        member.good(&format!("key encrypt {key} {options} --out c"), b"clear");
        assert!(!fs::read(member.path("c")).expect("is written").windows(5).any(|w| w == b"clear"));
        assert_eq!(member.good(&format!("key decrypt {key} {options} --in c"), b""), b"clear");
    }
    member.good("key encrypt vault --out c", b"clear");
    member.bad("key decrypt vault --in c --aad wrong", 4, "help");
    member.bad("key decrypt vault --in sock", 2, "cannot read");
    member.bad("key decrypt vault --in pin", 2, "base64");
}

fn import(member: &Member) {
    fs::write(member.path("k"), [7; 32]).expect("writes");
    member.good("key import aes:256 --in k --label brought", b"");
    member.bad("key import aes:128 --in k --label brought2", 2, "");
    member.bad("key import aes:128 --in missing", 2, "cannot read");
    member.good("key import data --label note", b"a note");
    let shown = member.json("key show brought");
    assert_eq!(shown["attributes"]["CKA_LOCAL"], false);
    assert!(shown["attributes"].get("CKA_VALUE").is_none(), "a sensitive value is never told");
}

fn bad_lines_change_nothing(member: &Member) {
    let before = (member.labels(), member.json("option show"));
    for (line, code, says) in [
        ("key create ec:p999", 2, "aes:128"),
        ("key show 999999", 5, "key list"),
        ("key show nothing", 5, "key list"),
        ("key delete nothing", 5, "key list"),
        ("key delete 999999", 5, "key list"),
        ("key sign vault --in k", 2, "--mechanism"),
        ("key sign nothing --in k", 5, "key list"),
        ("key sign pay --in k --mechanism rsa-oaep", 2, "ecdsa-sha256"),
        ("key sign pay --in k --mechanism eddsa", 4, "help"),
        ("key sign pay --in k --at m7", 5, "member list"),
        ("key encrypt pay --in k", 2, "another key"),
        ("key encrypt doc --in k --aad x", 2, "aes-gcm"),
        ("key verify pay --in k --signature missing", 2, "cannot read"),
        ("key verify pay --in k --signature k", 2, "base64"),
        ("key verify pay --in k --signature k --encoding raw", 2, "--format raw"),
        ("key verify pay --in k --signature k --encoding raw --format raw", 10, "not good"),
        ("option set partial_keys maybe", 2, "refuse or allow"),
        ("option set nothing x", 2, "partial_keys"),
        ("member remove m7", 5, "member list"),
        ("step-down --to m7", 4, "keyraft status"),
        ("--socket nowhere status", 7, "--socket"),
    ] {
        member.bad(line, code, says);
    }
    assert_eq!((member.labels(), member.json("option show")), before);
    member.good("key delete note", b"");
    member.good("key delete doc", b"");
    assert!(!member.labels().iter().any(|label| label.ends_with(" doc") || label.ends_with(" note")));
}

#[test]
fn help_and_the_example_need_nothing() {
    let member = Member::new();
    let help = String::from_utf8(member.good("--help", b"")).expect("is text");
    assert!(help.contains("Exit codes:") && help.contains("no member answers"), "{help}");
    fs::write(member.path("example.toml"), member.good("config example", b"")).expect("writes");
    member.bad("--config example.toml status", 7, "keyraft serve");
    member.bad("fly", 2, "Usage");
    member.bad("demo --token nothing.so", 5, "apt-get install softhsm2");
    member.bad("demo --dir .", 2, "not empty");
}
