//! The PKCS#11 module beside its rivals: SoftHSM in the application's own process, and p11-kit's remoting of it. All over
//! one token in one run, in rounds that take turns, by the same calls through the same client crate.

use crate::members::{Folder, Group, Process, in_time, write_private};
use crate::table::{self, say};
use crate::{Options, load};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::object::{Attribute, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use keyraft_engine::clock::Clock;
use keyraft_node::exit::{Exit, Problem};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The rival that takes calls to another process, as the module does.
const P11_KIT: &str = "p11-kit remoting";
/// Keys among which one is looked for.
const CROWD: usize = 1_000;
/// The user's PIN, of the token and of the group.
const PIN: &str = "1234";

/// Where the rivals of one run are: what the measuring process is told by its environment.
pub const RIVALS: &str = "KEYRAFT_BENCH_RIVALS";

/// Starts a group of one, and p11-kit over the same token; measures in a process of its own.
pub async fn run(options: &Options) -> Result<(), Problem> {
    say("the module: starting a group of one");
    let library = options.softhsm.display().to_string();
    let group = Group::form(&options.dir, &library, 1, options.log.as_deref()).await?;
    let folder = Folder::new(&options.dir, "module", options.log.is_some())?;
    group.set_pin(0, PIN).await?;
    let config = folder.path().join("client.toml");
    write_private(&config, &format!("[[group]]\nsockets = [{:?}]\n", group.socket_path(0)))?;
    let conf = group.home(0).join("softhsm2.conf");
    let (_server, address) = p11_kit(&options.softhsm, &conf, folder.path())?;
    let program = std::env::current_exe().map_err(|e| Problem::io("finding the own program", &e))?;
    let mut command = tokio::process::Command::new(program);
    command.env(RIVALS, "1").env("SOFTHSM2_CONF", conf).env("KEYRAFT_CONFIG", config);
    command.env("P11_KIT_SERVER_ADDRESS", address).kill_on_drop(true).stdin(Stdio::null());
    command.arg("--softhsm").arg(&options.softhsm);
    if options.quick {
        command.arg("--quick");
    }
    let status = command.status().await.map_err(|e| Problem::io("measuring the module", &e))?;
    if !status.success() {
        return Err(Problem::new(Exit::Unexpected, format!("measuring the module failed: {status}"), ""));
    }
    drop(group);
    Ok(())
}

/// p11-kit's server over SoftHSM, and the address that its client takes.
fn p11_kit(library: &Path, conf: &Path, folder: &Path) -> Result<(Process, String), Problem> {
    let socket = folder.join("p11-kit");
    let mut command = Command::new("p11-kit");
    command
        .args(["server", "--foreground", "--provider"])
        .arg(library)
        .arg("--name")
        .arg(&socket)
        .arg("pkcs11:");
    command.env("SOFTHSM2_CONF", conf).stdin(Stdio::null()).stdout(Stdio::null());
    let server = command.spawn().map_err(|e| {
        Problem::new(
            Exit::Usage,
            format!("p11-kit does not start: {e}"),
            "install it: apt-get install p11-kit",
        )
    })?;
    let server = Process(server);
    let begin = Clock.now();
    while !socket.exists() {
        in_time(begin, "p11-kit's server")?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((server, format!("unix:path={}", socket.display())))
}

/// One of the three.
struct Rival {
    name: &'static str,
    module: Pkcs11,
    slot: Slot,
    keys: Keys,
}

/// The keys that are used, and the label that is looked for.
#[derive(Clone, Copy)]
struct Keys {
    ec: ObjectHandle,
    hmac: ObjectHandle,
    rsa: ObjectHandle,
    aes: ObjectHandle,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Ecdsa,
    Hmac,
    Rsa,
    Gcm,
    Find,
}

impl Work {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Ecdsa, "ECDSA P-256 sign"),
        (Self::Hmac, "HMAC-SHA256 sign"),
        (Self::Rsa, "RSA-2048 sign"),
        (Self::Gcm, "AES-GCM encrypt 1 KiB"),
        (Self::Find, "find by label among 1,000"),
    ];
}

/// The measuring process.
pub fn measure(options: &Options) -> Result<(), Problem> {
    rivals(options).map_err(|e| Problem::new(Exit::Token, e, ""))
}

fn rivals(options: &Options) -> Result<(), cryptoki::error::Error> {
    let own = own_module();
    let client = PathBuf::from("/usr/lib/x86_64-linux-gnu/pkcs11/p11-kit-client.so");
    say(format!("the module: making {CROWD} keys and more"));
    let direct = open("SoftHSM in process", &options.softhsm, None)?;
    let remote = open(P11_KIT, &client, Some(direct.keys))?;
    let ours = open("keyraft", &own, None)?;
    crowd(&ours)?;
    let rivals = [direct, remote, ours];
    let (rounds, length) = if options.quick { (1, 200) } else { (3, 1_000) };
    for threads in [1, 8] {
        let mut rows = Vec::new();
        for (work, name) in Work::ALL {
            say(format!("{name}, {threads} threads"));
            let mut all: Vec<Vec<load::Round>> = rivals.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (rival, runs) in rivals.iter().zip(&mut all) {
                    // p11-kit's protocol does not carry GCM's parameters.
                    if work == Work::Gcm && rival.name == P11_KIT {
                        continue;
                    }
                    runs.push(round(rival, work, threads, Duration::from_millis(length))?);
                }
            }
            rows.push(row(name, &mut all));
        }
        let names: Vec<&str> = rivals.iter().map(|rival| rival.name).collect();
        let mut columns = vec!["what"];
        columns.extend(&names);
        columns.extend(["keyraft / SoftHSM", "keyraft / p11-kit"]);
        let heading = format!("Through a PKCS#11 module, {threads} threads: calls a second (p50, p99)");
        table::print(&heading, &columns, &rows);
    }
    Ok(())
}

fn row(name: &str, all: &mut [Vec<load::Round>]) -> Vec<String> {
    let mut rates = Vec::new();
    let mut cells = vec![name.to_string()];
    for runs in all {
        runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        let Some(median) = runs.get(runs.len() / 2) else {
            rates.push(f64::NAN);
            cells.push("-".into());
            continue;
        };
        rates.push(median.rate());
        let micros = |q| format!("{:.0} us", median.quantile(q).as_secs_f64() * 1e6);
        cells.push(format!("{} ({}, {})", table::rate(median.rate()), micros(0.5), micros(0.99)));
    }
    for rival in &rates[..2] {
        cells.push(if rival.is_nan() { "-".into() } else { format!("{:.2}", rates[2] / rival) });
    }
    cells
}

/// The module beside this program.
pub fn own_module() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join("libkeyraft_pkcs11.so")
}

fn open(name: &'static str, library: &Path, keys: Option<Keys>) -> Result<Rival, cryptoki::error::Error> {
    let module = Pkcs11::new(library)?;
    module.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))?;
    let slot = module.get_slots_with_initialized_token()?[0];
    let session = session(&module, slot)?;
    session.login(UserType::User, Some(&AuthPin::new(PIN.into())))?;
    let keys = match keys {
        None => make(&session)?,
        Some(_) => find(&session)?,
    };
    // The login lasts as long as a session of the process does.
    std::mem::forget(session);
    Ok(Rival { name, module, slot, keys })
}

fn session(module: &Pkcs11, slot: Slot) -> Result<Session, cryptoki::error::Error> {
    module.open_rw_session(slot)
}

fn label(name: &str) -> Attribute {
    Attribute::Label(name.into())
}

fn make(session: &Session) -> Result<Keys, cryptoki::error::Error> {
    let token = Attribute::Token(true);
    let curve = Attribute::EcParams(vec![0x06, 0x08, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x03, 0x01, 0x07]);
    let sign = || vec![token.clone(), Attribute::Private(true), Attribute::Sign(true)];
    let with = |mut list: Vec<Attribute>, more: &[Attribute]| {
        list.extend_from_slice(more);
        list
    };
    let public = [token.clone(), curve, Attribute::Verify(true)];
    let (_, ec) =
        session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &with(sign(), &[label("bench-ec")]))?;
    let public =
        [token.clone(), Attribute::ModulusBits(2048.into()), Attribute::PublicExponent(vec![1, 0, 1])];
    let private = with(sign(), &[label("bench-rsa")]);
    let (_, rsa) = session.generate_key_pair(&Mechanism::RsaPkcsKeyPairGen, &public, &private)?;
    let length = Attribute::ValueLen(32.into());
    let hmac = with(sign(), &[length.clone(), Attribute::Verify(true), label("bench-hmac")]);
    let hmac = session.generate_key(&Mechanism::GenericSecretKeyGen, &hmac)?;
    let aes = [
        token.clone(),
        Attribute::Private(true),
        length,
        Attribute::Encrypt(true),
        Attribute::Decrypt(true),
        label("bench-aes"),
    ];
    let aes = session.generate_key(&Mechanism::AesKeyGen, &aes)?;
    Ok(Keys { ec, hmac, rsa, aes })
}

fn find(session: &Session) -> Result<Keys, cryptoki::error::Error> {
    let one = |name: &str, class| {
        let found = session.find_objects(&[label(name), Attribute::Class(class)])?;
        Ok::<_, cryptoki::error::Error>(found[0])
    };
    Ok(Keys {
        ec: one("bench-ec", ObjectClass::PRIVATE_KEY)?,
        hmac: one("bench-hmac", ObjectClass::SECRET_KEY)?,
        rsa: one("bench-rsa", ObjectClass::PRIVATE_KEY)?,
        aes: one("bench-aes", ObjectClass::SECRET_KEY)?,
    })
}

/// Keys of the group, which lie in the token as well: every rival looks among as many.
fn crowd(rival: &Rival) -> Result<(), cryptoki::error::Error> {
    let session = session(&rival.module, rival.slot)?;
    for index in 0..CROWD {
        let name = format!("crowd-{index}");
        let template =
            [Attribute::Token(true), Attribute::ValueLen(16.into()), label(&name), Attribute::Sign(true)];
        session.generate_key(&Mechanism::GenericSecretKeyGen, &template)?;
    }
    Ok(())
}

/// One round: so many threads, each in a session of its own, for so long.
fn round(
    rival: &Rival,
    work: Work,
    threads: usize,
    length: Duration,
) -> Result<load::Round, cryptoki::error::Error> {
    let begin = Clock.now();
    let until = begin + length;
    let each = std::thread::scope(|scope| {
        let run = || {
            let session = session(&rival.module, rival.slot)?;
            let mut times = Vec::new();
            loop {
                let start = Clock.now();
                if start >= until {
                    return Ok::<_, cryptoki::error::Error>(times);
                }
                once(&session, rival.keys, work)?;
                times.push(Clock.now() - start);
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined =
            running.into_iter().map(|thread| thread.join().expect("a measuring thread does not panic"));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    Ok(load::Round::new(each, Clock.now() - begin))
}

fn once(session: &Session, keys: Keys, work: Work) -> Result<(), cryptoki::error::Error> {
    match work {
        Work::Ecdsa => session.sign(&Mechanism::Ecdsa, keys.ec, &[7; 32]).map(drop),
        Work::Hmac => session.sign(&Mechanism::Sha256Hmac, keys.hmac, &[7; 32]).map(drop),
        Work::Rsa => session.sign(&Mechanism::Sha256RsaPkcs, keys.rsa, &[7; 32]).map(drop),
        Work::Gcm => {
            let mut iv = [9; 12];
            let parameters = GcmParams::new(&mut iv, &[], 128.into())?;
            session.encrypt(&Mechanism::AesGcm(parameters), keys.aes, &[7; 1024]).map(drop)
        }
        Work::Find => session.find_objects(&[label("bench-aes")]).map(drop),
    }
}
