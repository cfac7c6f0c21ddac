//! Members are killed while programs work; all of them at once; and applications that behave badly. No program sees an
//! error that it did not cause, and none needs a restart.

use crate::{java, python, rust};
use keyraft_engine::clock::Clock;
use keyraft_tests::clients::{Battery, Target, finish, good, group, start};
use keyraft_tests::told::{ANSWER_LIMIT, Told};
use keyraft_tests::{Group, TokenKind, turn};
use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tempfile::TempDir;

/// How long the module may take to say that nobody is there, by its default, and some time of the test's own.
const ALL_DOWN_LIMIT: Duration = Duration::from_secs(25);

/// A running application that calls the module as it is told, in a folder of its own.
pub struct Application {
    told: Told,
    _folder: TempDir,
}

impl Application {
    pub fn start(target: &Target) -> Self {
        let folder = tempfile::tempdir().expect("makes a folder");
        let mut command = rust::program(&Battery::begin(target), "talk");
        command.current_dir(folder.path());
        Self { told: Told::start(command), _folder: folder }
    }
}

impl Deref for Application {
    type Target = Told;

    fn deref(&self) -> &Told {
        &self.told
    }
}

impl DerefMut for Application {
    fn deref_mut(&mut self) -> &mut Told {
        &mut self.told
    }
}

/// Runs blocking work beside the members, which the runtime waits for.
pub async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// How long the programs work, seconds.
const ROUNDS_FOR: u32 = 45;

/// A program that works for a while by itself and says at its end how many rounds it made. `loaded` is told once it has
/// said so (Java alone does).
fn rounds(what: &'static str, target: Target, loaded: Sender<()>) -> Result<(), String> {
    let b = Battery::begin(&target);
    let command = match what {
        "cryptoki" => rust::program(&b, &ROUNDS_FOR.to_string()),
        "python-pkcs11" => python::program(&b, &ROUNDS_FOR.to_string()),
        _ => {
            let words = java::program(&b, &ROUNDS_FOR.to_string());
            let mut command = b.command("java");
            command.args(words);
            command
        }
    };
    let (out, err) = (b.path("out"), b.path("err"));
    let mut child = start(command, Path::new(&out), Path::new(&err));
    let end = Clock.now() + 3 * ANSWER_LIMIT;
    let mut loaded = Some(loaded);
    let status = loop {
        if std::fs::read(&out).is_ok_and(|text| text.starts_with(b"loaded")) {
            loaded.take();
        }
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Clock.now() < end => std::thread::sleep(Duration::from_millis(20)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{what} hangs"));
            }
        }
    };
    let read = |name: &str| String::from_utf8_lossy(&b.read(name).unwrap_or_default()).into_owned();
    let (out, err) = (read("out"), read("err"));
    let count: Option<u32> =
        out.lines().find_map(|line| line.strip_suffix(" rounds")).and_then(|n| n.parse().ok());
    println!("{what}: {count:?} rounds");
    match count {
        Some(1..) if status.success() => Ok(()),
        _ => Err(format!("{what} ended with {status}: {out} {err}")),
    }
}

/// Programs that start anew each time, one after another, until they are told to stop.
fn short_programs(target: &Target, stop: &AtomicBool) -> Result<(), String> {
    let b = Battery::begin(target);
    let tool = format!(
        "--module {} --token-label {} --login --pin {}",
        target.module.display(),
        target.label,
        target.pin
    );
    let url = format!("pkcs11:token={}", target.label);
    b.file("data", "what is signed");
    b.file("block", [1_u8; 32]);
    b.file("pin", format!("{}:{}\n", target.label, target.pin));
    b.file(
        "engine.cnf",
        format!(
            "openssl_conf = start\n[start]\nengines = engines\n[engines]\npkcs11 = pkcs11\n[pkcs11]\n\
             engine_id = pkcs11\nMODULE_PATH = {}\nPIN = {}\ninit = 0\n",
            target.module.display(),
            target.pin
        ),
    );
    std::fs::create_dir(b.path("db")).map_err(|error| error.to_string())?;
    b.go("certutil", "-N -d sql:db --empty-password")?;
    b.go("modutil", &format!("-dbdir sql:db -add token -libfile {} -force", target.module.display()))?;
    b.go(
        "pkcs11-tool",
        &format!("{tool} --keypairgen --key-type rsa:2048 --id a1 --label short --usage-sign"),
    )?;
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let label = format!("short-{rounds}");
        b.go(
            "pkcs11-tool",
            &format!("{tool} --keygen --key-type AES:32 --id a2 --label {label} --sensitive"),
        )?;
        b.go("pkcs11-tool", &format!("{tool} --encrypt --id a2 -m AES-ECB -i @block -o @sealed"))?;
        b.go("pkcs11-tool", &format!("{tool} --delete-object --type secrkey --label {label}"))?;
        b.go("pkcs11-tool", &format!("{tool} --sign --id a1 -m SHA256-RSA-PKCS -i @data -o @signature"))?;
        let mut p11tool = b.command("p11tool");
        p11tool.env("GNUTLS_PIN", &target.pin).arg("--provider").arg(&target.module);
        p11tool.args(b.words(&format!("--batch --login --test-sign {url};object=short;type=private")));
        good(finish(p11tool)?)?;
        let mut openssl = b.command("openssl");
        openssl.env("OPENSSL_CONF", b.path("engine.cnf"));
        let key = format!("{url};object=short;type=private");
        openssl.args(
            b.words(&format!("dgst -engine pkcs11 -keyform engine -sha256 -sign {key} -out @sig @data")),
        );
        good(finish(openssl)?)?;
        b.go("ssh-keygen", &format!("-D {}", target.module.display()))?;
        b.go("certutil", &format!("-K -d sql:db -h {} -f @pin", target.label))?;
        rounds += 1;
    }
    println!("short programs: {rounds} rounds");
    if rounds > 0 { Ok(()) } else { Err("not one round".into()) }
}

/// Every member is killed and comes back while all programs work: the primary, and so the member that each of them
/// uses.
async fn killed_under(kind: TokenKind) {
    let _turn = turn().await;
    let mut group = group(kind).await;
    let target = Target::group("a group whose members are killed", &group);
    let mut first = Application::start(&target);
    let (slot, serial) = (first.good("slot"), first.good("serial"));
    // What Java's loop signs with.
    let prepared = target.clone();
    beside(move || java::prepare(&Battery::begin(&prepared))).await.expect("a key for Java");
    let stop = Arc::new(AtomicBool::new(false));
    let run = |what| {
        let (loaded, is_loaded) = channel();
        let target = target.clone();
        (tokio::task::spawn_blocking(move || rounds(what, target, loaded)), is_loaded)
    };
    // SunPKCS11 lists all objects and then reads each: on any token it fails if one is deleted in between. So it comes
    // first, and the programs that delete once it is done. The channel's end is the word.
    let (java, is_loaded) = run("Java");
    beside(move || is_loaded.recv()).await.expect_err("nothing is sent");
    let long = [java, run("cryptoki").0, run("python-pkcs11").0];
    let (own, told) = (target.clone(), stop.clone());
    let short = tokio::task::spawn_blocking(move || short_programs(&own, &told));
    let begun = Clock.now();
    tokio::time::sleep(Duration::from_secs(4)).await;
    for _ in 0..2 {
        let primary = group.primary(0).await;
        kill_and_return(&mut group, primary).await;
        // The first of the sockets is what an application without a reason uses.
        kill_and_return(&mut group, 0).await;
    }
    let took = Clock.now().saturating_duration_since(begun).as_secs();
    assert!(took < ROUNDS_FOR.into(), "the last member came back after {took} s: the programs had ended");
    for running in long {
        running.await.expect("does not panic").unwrap_or_else(|why| panic!("{why}"));
    }
    stop.store(true, Ordering::Relaxed);
    short.await.expect("does not panic").unwrap_or_else(|why| panic!("{why}"));
    // The same slot and the same serial, here and in a new process.
    let mut second = Application::start(&target);
    for application in [&mut first, &mut second] {
        assert_eq!((application.good("slot"), application.good("serial")), (slot.clone(), serial.clone()));
    }
}

async fn kill_and_return(group: &mut Group, index: usize) {
    group.kill(index);
    tokio::time::sleep(Duration::from_secs(2)).await;
    group.start(index).await;
    group.wait_in_sync().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_members_on_softhsm() {
    killed_under(TokenKind::SoftHsm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_members_on_embedded() {
    killed_under(TokenKind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_down_and_back() {
    let _turn = turn().await;
    let mut group = group(TokenKind::Embedded).await;
    let target = Target::group("a group that goes down", &group);
    let mut application = Application::start(&target);
    let session = application.login();
    let stored = application.good(&format!("ec {session} token stays"));
    let fleeting = application.good(&format!("aes {session} session fleeting"));
    let sealed = application.good(&format!("seal {session} {fleeting}"));
    application.good(&format!("sign {session} {stored}"));
    (0..3).for_each(|index| group.kill(index));
    for line in [
        format!("sign {session} {stored}"),
        format!("seal {session} {fleeting}"),
        format!("find {session} stays"),
    ] {
        let begun = Clock.now();
        assert_eq!(application.refused(&line), "0x32", "CKR_DEVICE_REMOVED by '{line}'");
        let took = Clock.now().saturating_duration_since(begun);
        assert!(took < ALL_DOWN_LIMIT, "'{line}' took {took:?}");
    }
    for index in 0..3 {
        group.spawn(index);
    }
    let handle = format!("[{stored}]");
    let mut found = application.ask(&format!("find {session} stays"));
    for _ in 0..10 {
        if found.starts_with("ok") {
            break;
        }
        found = application.ask(&format!("find {session} stays"));
    }
    assert!(found.starts_with("ok") && found.contains(&stored), "found {found}, made {handle}");
    application.good(&format!("sign {session} {stored}"));
    assert_eq!(
        application.good(&format!("seal {session} {fleeting}")),
        sealed,
        "the session key is another one"
    );
    assert_eq!(application.good(&format!("state {session}")), "3", "CKS_RW_USER_FUNCTIONS");
    let mut other = Application::start(&target);
    let session = other.login();
    other.good(&format!("sign {session} {stored}"));
}

/// What one application does, and does to others, with all members up.
#[tokio::test(flavor = "multi_thread")]
async fn applications_are_apart() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    let target = Target::group("a group with several applications", &group);
    beside(move || {
        logins_are_apart(&target);
        killed_while_logged_in(&target);
        forked(&target);
    })
    .await;
}

fn logins_are_apart(target: &Target) {
    let (mut one, mut two) = (Application::start(target), Application::start(target));
    let (here, there) = (one.login(), two.good("open"));
    assert_eq!(one.good(&format!("state {here}")), "3", "CKS_RW_USER_FUNCTIONS");
    assert_eq!(two.good(&format!("state {there}")), "2", "CKS_RW_PUBLIC_SESSION");
    let reading = two.good("open ro");
    assert_eq!(two.refused(&format!("so {there} {}", target.so_pin)), "0xb7", "CKR_SESSION_READ_ONLY_EXISTS");
    two.good(&format!("close {reading}"));
    two.good(&format!("so {there} {}", target.so_pin));
    assert_eq!(two.good(&format!("state {there}")), "4", "CKS_RW_SO_FUNCTIONS");
    let key = one.good(&format!("aes {here} session private"));
    assert_eq!(two.good(&format!("find {there} private")), "[]", "another application's session object");
    two.good(&format!("logout {there}"));
    assert_eq!(one.good(&format!("state {here}")), "3", "another application's logout");
    one.good(&format!("seal {here} {key}"));
    one.good(&format!("close {here}"));
    let again = one.good("open");
    assert_eq!(one.good(&format!("state {again}")), "2", "the last session's end is the login's");
    assert_eq!(one.refused(&format!("seal {again} {key}")), "0x60", "the key has gone with its session");
}

fn killed_while_logged_in(target: &Target) {
    let (mut one, mut two) = (Application::start(target), Application::start(target));
    let (here, there) = (one.login(), two.login());
    one.good(&format!("aes {here} session fleeting"));
    let key = one.good(&format!("ec {here} token outlives"));
    one.kill();
    two.good(&format!("sign {there} {key}"));
    let mut three = Application::start(target);
    let session = three.good("open");
    assert_eq!(three.good(&format!("state {session}")), "2", "nobody is logged in here");
    three.good(&format!("login {session}"));
    assert_eq!(
        three.good(&format!("find {session} fleeting")),
        "[]",
        "the dead application's session object"
    );
    three.good(&format!("sign {session} {key}"));
    three.good(&format!("destroy {session} {key}"));
}

fn forked(target: &Target) {
    let mut application = Application::start(target);
    let session = application.login();
    let key = application.good(&format!("ec {session} token forks"));
    assert_eq!(
        application.good(&format!("fork {session} {key}")),
        "63",
        "a bit is missing for what is wrong"
    );
    assert_eq!(application.good(&format!("fork {session} {key}")), "63", "the second child");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_threads_and_sessions() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    let target = Target::group("a group with many sessions", &group);
    beside(move || {
        let mut application = Application::start(&target);
        let session = application.login();
        let key = application.good(&format!("ec {session} token busy"));
        assert_eq!(application.good(&format!("threads 64 5 {key}")), "64");
        assert_eq!(application.good(&format!("many 10000 {key}")), "101");
        application.good(&format!("sign {session} {key}"));
    })
    .await;
}

/// Garbage of every kind on the socket harms neither the member nor who else is connected.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_the_socket() {
    let _turn = turn().await;
    let group = group(TokenKind::Embedded).await;
    let target = Target::group("a group that is sent garbage", &group);
    let sockets: Vec<_> = group.members.iter().map(|member| member.folder.join("sock")).collect();
    beside(move || {
        let mut application = Application::start(&target);
        let session = application.login();
        let key = application.good(&format!("ec {session} token unharmed"));
        let mut dice = keyraft_tests::Dice::new(7);
        let mut open = Vec::new();
        for round in 0..60 {
            for socket in &sockets {
                let mut stream = UnixStream::connect(socket).expect("a member listens");
                stream.set_write_timeout(Some(Duration::from_secs(5))).expect("is a timeout");
                let length = [1, 4, 64, 100_000][round % 4];
                let mut bytes: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
                match round % 3 {
                    // The length of a frame that is far too long, and of one that never comes.
                    0 => bytes.iter_mut().take(4).for_each(|byte| *byte = 0xff),
                    1 => bytes.iter_mut().take(4).zip([0, 0, 1, 0]).for_each(|(byte, length)| *byte = length),
                    _ => {}
                }
                // The member may hang up in the middle; that is its right.
                let _ = stream.write_all(&bytes);
                open.push(stream);
            }
            application.good(&format!("sign {session} {key}"));
        }
        drop(open);
        application.good(&format!("aes {session} token after"));
        let mut other = Application::start(&target);
        let session = other.login();
        other.good(&format!("sign {session} {key}"));
    })
    .await;
    for index in 0..3 {
        assert!(group.status(index).await.primary.is_some(), "member {index} knows no primary");
    }
}
