//! OpenSC's pkcs11-tool. What it signs and encrypts is checked by OpenSSL where that knows how.

use keyraft_tests::clients::{Battery, compare, finish, same, says};
use keyraft_tests::group::Ended;

#[tokio::test(flavor = "multi_thread")]
async fn pkcs11_tool() {
    compare("pkcs11-tool", battery).await;
}

fn battery(b: &mut Battery<'_>) {
    b.file("data", "what is signed");
    b.file("block", [7_u8; 32]);
    looks(b);
    key_pairs(b);
    secret_keys(b);
    rsa(b);
    curves(b);
    ciphers(b);
    macs(b);
    wrapping(b);
    objects(b);
    pins(b);
    tests_of_its_own(b);
}

/// Without a login. `@name` in the words is a file of the battery.
fn open(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    b.run("pkcs11-tool", all_words(b, "", words))
}

/// Logged in as the user.
fn user(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    b.run("pkcs11-tool", all_words(b, &format!("--login --pin {}", b.target.pin), words))
}

fn all_words(b: &Battery<'_>, login: &str, words: &str) -> Vec<String> {
    b.words(&format!(
        "--module {} --token-label {} {login} {words}",
        b.target.module.display(),
        b.target.label
    ))
}

fn openssl(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    b.go("openssl", words)
}

fn looks(b: &mut Battery<'_>) {
    b.step("-I", |b| says(&open(b, "-I")?, "Cryptoki version"));
    b.step("-L", |b| says(&open(b, "-L")?, &b.target.label));
    b.step("-T", |b| says(&open(b, "-T")?, "PIN initialized"));
    b.step("-M", |b| {
        let said = open(b, "-M")?;
        for name in ["SHA256-RSA-PKCS", "ECDSA", "AES-GCM", "AES-CBC-PAD", "RSA-PKCS-OAEP", "ECDH1-DERIVE"] {
            says(&said, name)?;
        }
        Ok(())
    });
    b.step("-O", |b| open(b, "-O").map(drop));
    b.step("random", |b| {
        user(b, "--generate-random 64 -o @random")?;
        same(&b.read("random")?.len(), &64, "random bytes")
    });
    b.step("hash", |b| {
        user(b, "--hash -m SHA256 -i @data -o @hash")?;
        openssl(b, "dgst -sha256 -binary -out @hash.openssl @data")?;
        same(&b.read("hash")?, &b.read("hash.openssl")?, "SHA-256")
    });
    b.step("wrong PIN", |b| match b.run("pkcs11-tool", all_words(b, "--login --pin wrong-pin-9999", "-O")) {
        Ok(_) => Err("is taken".into()),
        Err(why) if why.contains("CKR_PIN_INCORRECT") => Ok(()),
        Err(why) => Err(why),
    });
}

const PAIRS: &[(&str, &str, &str)] = &[
    ("rsa:2048", "10", "r2048"),
    ("rsa:3072", "11", "r3072"),
    ("rsa:4096", "12", "r4096"),
    ("EC:secp256r1", "20", "p256"),
    ("EC:secp384r1", "21", "p384"),
    ("EC:secp521r1", "22", "p521"),
    ("EC:edwards25519", "30", "ed"),
];

fn key_pairs(b: &mut Battery<'_>) {
    for (kind, id, label) in PAIRS {
        b.step(&format!("make {kind}"), |b| {
            let usage = if kind.starts_with("rsa") { "--usage-sign --usage-decrypt" } else { "--usage-sign" };
            user(b, &format!("--keypairgen --key-type {kind} --id {id} --label {label} {usage}"))?;
            let said = user(b, &format!("-O --type privkey --id {id}"))?;
            says(&said, label)?;
            says(&said, "always sensitive, never extractable, local")
        });
        b.step(&format!("read the public key of {kind}"), |b| {
            open(b, &format!("--read-object --type pubkey --id {id} -o @{label}.der"))?;
            openssl(b, &format!("pkey -pubin -inform DER -in @{label}.der -out @{label}.pem")).map(drop)
        });
    }
}

fn secret_keys(b: &mut Battery<'_>) {
    let kinds = [("AES:16", "40", "aes128"), ("AES:24", "41", "aes192"), ("AES:32", "42", "aes256")];
    for (kind, id, label) in
        kinds.into_iter().chain([("GENERIC:32", "43", "generic"), ("GENERIC:64", "44", "generic64")])
    {
        b.step(&format!("make {kind}"), |b| {
            user(b, &format!("--keygen --key-type {kind} --id {id} --label {label} --sensitive"))?;
            let said = user(b, &format!("-O --type secrkey --id {id}"))?;
            says(&said, label)?;
            says(&said, "always sensitive, never extractable, local")
        });
    }
    b.step("a key that may be read is read", |b| {
        user(b, "--keygen --key-type AES:32 --id 45 --label open --extractable")?;
        user(b, "--read-object --type secrkey --id 45 -o @open")?;
        same(&b.read("open")?.len(), &32, "bytes of a key")
    });
    b.step("a key that must not be read is not", |b| {
        match user(b, "--read-object --type secrkey --id 42 -o @closed") {
            Ok(_) if b.read("closed").is_ok_and(|bytes| !bytes.is_empty()) => Err("it is read".into()),
            _ => Ok(()),
        }
    });
}

/// Signs a file, and lets the module and OpenSSL verify it.
fn sign(b: &Battery<'_>, id: &str, mechanism: &str, extra: &str, input: &str) -> Result<(), String> {
    user(b, &format!("--sign --id {id} -m {mechanism} {extra} -i @{input} -o @signature"))?;
    let said = user(
        b,
        &format!("--verify --id {id} -m {mechanism} {extra} -i @{input} --signature-file @signature"),
    )?;
    says(&said, "Signature is valid")?;
    let mut bytes = b.read("signature")?;
    *bytes.last_mut().ok_or("the signature is empty")? ^= 1;
    b.file("forged", bytes);
    match user(b, &format!("--verify --id {id} -m {mechanism} {extra} -i @{input} --signature-file @forged"))
    {
        Ok(said) => says(&said, "Invalid signature").map_err(|e| format!("a forged signature is taken: {e}")),
        Err(why) => says(&Ended { code: 1, out: why, err: String::new() }, "nvalid"),
    }
}

fn rsa(b: &mut Battery<'_>) {
    for (id, label) in [("10", "r2048"), ("11", "r3072"), ("12", "r4096")] {
        b.step(&format!("{label}: SHA256-RSA-PKCS"), |b| {
            sign(b, id, "SHA256-RSA-PKCS", "", "data")?;
            openssl(b, &format!("dgst -sha256 -verify @{label}.pem -signature @signature @data")).map(drop)
        });
    }
    for hash in ["SHA1", "SHA384", "SHA512"] {
        b.step(&format!("r2048: {hash}-RSA-PKCS"), |b| {
            sign(b, "10", &format!("{hash}-RSA-PKCS"), "", "data")?;
            openssl(
                b,
                &format!("dgst -{} -verify @r2048.pem -signature @signature @data", hash.to_lowercase()),
            )
            .map(drop)
        });
    }
    b.step("r2048: RSA-PKCS", |b| {
        sign(b, "10", "RSA-PKCS", "", "data")?;
        openssl(b, "pkeyutl -verify -pubin -inkey @r2048.pem -sigfile @signature -in @data").map(drop)
    });
    b.step("r2048: RSA-PKCS-PSS", |b| {
        openssl(b, "dgst -sha256 -binary -out @hash @data")?;
        sign(b, "10", "RSA-PKCS-PSS", "--hash-algorithm SHA256 --mgf MGF1-SHA256", "hash")
    });
    for hash in ["SHA256", "SHA384", "SHA512"] {
        b.step(&format!("r2048: {hash}-RSA-PKCS-PSS"), |b| {
            sign(b, "10", &format!("{hash}-RSA-PKCS-PSS"), "", "data")?;
            let options = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1";
            let hash = hash.to_lowercase();
            openssl(b, &format!("dgst -{hash} {options} -verify @r2048.pem -signature @signature @data"))
                .map(drop)
        });
    }
    b.step("r2048: decrypt RSA-PKCS", |b| {
        openssl(b, "pkeyutl -encrypt -pubin -inkey @r2048.pem -in @data -out @sealed")?;
        user(b, "--decrypt --id 10 -m RSA-PKCS -i @sealed -o @opened")?;
        same(&b.read("opened")?, &b.read("data")?, "decrypted")
    });
    for hash in ["SHA-1", "SHA256", "SHA384"] {
        b.step(&format!("r2048: decrypt RSA-PKCS-OAEP {hash}"), |b| {
            let digest = hash.replace('-', "").to_lowercase();
            let padding = format!("-pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:{digest}");
            openssl(
                b,
                &format!("pkeyutl -encrypt -pubin -inkey @r2048.pem {padding} -in @data -out @sealed"),
            )?;
            let mgf = format!("--mgf MGF1-{}", hash.replace('-', ""));
            user(
                b,
                &format!(
                    "--decrypt --id 10 -m RSA-PKCS-OAEP --hash-algorithm {hash} {mgf} -i @sealed -o @opened"
                ),
            )?;
            same(&b.read("opened")?, &b.read("data")?, "decrypted")
        });
    }
}

fn curves(b: &mut Battery<'_>) {
    for (id, label) in [("20", "p256"), ("21", "p384"), ("22", "p521")] {
        b.step(&format!("{label}: ECDSA"), |b| {
            openssl(b, "dgst -sha256 -binary -out @hash @data")?;
            sign(b, id, "ECDSA", "--signature-format openssl", "hash")?;
            if !readable(b, label) {
                return Ok(());
            }
            openssl(b, &format!("pkeyutl -verify -pubin -inkey @{label}.pem -sigfile @signature -in @hash"))
                .map(drop)
        });
        for hash in ["SHA256", "SHA384"] {
            b.step(&format!("{label}: ECDSA-{hash}"), |b| {
                sign(b, id, &format!("ECDSA-{hash}"), "--signature-format openssl", "data")?;
                if !readable(b, label) {
                    return Ok(());
                }
                let hash = hash.to_lowercase();
                openssl(b, &format!("dgst -{hash} -verify @{label}.pem -signature @signature @data"))
                    .map(drop)
            });
        }
    }
    b.step("ed: EDDSA", |b| sign(b, "30", "EDDSA", "", "data"));
    for (curve, id) in [("secp256r1", "23"), ("secp384r1", "24"), ("secp521r1", "25")] {
        b.step(&format!("ECDH on {curve}"), |b| {
            user(b, &format!("--keypairgen --key-type EC:{curve} --id {id} --label dh --usage-derive"))?;
            open(b, &format!("--read-object --type pubkey --id {id} -o @ours.der"))?;
            openssl(b, "pkey -pubin -inform DER -in @ours.der -out @ours.pem")?;
            openssl(b, &format!("ecparam -name {} -genkey -noout -out @peer.pem", openssl_name(curve)))?;
            openssl(b, "pkey -in @peer.pem -pubout -outform DER -out @peer.der")?;
            openssl(b, "pkeyutl -derive -inkey @peer.pem -peerkey @ours.pem -out @theirs")?;
            user(
                b,
                &format!("--derive -m ECDH1-DERIVE --id {id} --input-file @peer.der --output-file @derived"),
            )?;
            same(&b.read("derived")?, &b.read("theirs")?, "the secret that both derive")
        });
    }
}

/// False for P-384: OpenSC 0.23 cannot write such a public key, whatever the module; the step that reads it says so.
fn readable(b: &Battery<'_>, label: &str) -> bool {
    b.read(&format!("{label}.pem")).is_ok()
}

fn openssl_name(curve: &str) -> &str {
    if curve == "secp256r1" { "prime256v1" } else { curve }
}

fn ciphers(b: &mut Battery<'_>) {
    let iv = "--iv 000102030405060708090a0b0c0d0e0f";
    let modes = [("AES-ECB", "", "block"), ("AES-CBC", iv, "block"), ("AES-CBC-PAD", iv, "data")];
    for (mode, extra, input) in modes {
        for id in ["40", "41", "42"] {
            b.step(&format!("{mode} with key {id}"), |b| {
                user(b, &format!("--encrypt --id {id} -m {mode} {extra} -i @{input} -o @sealed"))?;
                if b.read("sealed")?.starts_with(&b.read(input)?) {
                    return Err("nothing is encrypted".into());
                }
                user(b, &format!("--decrypt --id {id} -m {mode} {extra} -i @sealed -o @opened"))?;
                same(&b.read("opened")?, &b.read(input)?, "decrypted")
            });
        }
    }
    b.step("AES-CBC-PAD of a key that was read, as OpenSSL does it", |b| {
        let key = hex(&b.read("open")?);
        user(b, &format!("--encrypt --id 45 -m AES-CBC-PAD {iv} -i @data -o @sealed"))?;
        openssl(
            b,
            &format!("enc -aes-256-cbc -K {key} {} -in @data -out @theirs", iv.replace("--iv", "-iv")),
        )?;
        same(&b.read("sealed")?, &b.read("theirs")?, "encrypted")
    });
    b.step("a long file, encrypted and decrypted", |b| {
        b.file("long", vec![0x5a; 1_000_001]);
        user(b, &format!("--encrypt --id 42 -m AES-CBC-PAD {iv} -i @long -o @sealed"))?;
        user(b, &format!("--decrypt --id 42 -m AES-CBC-PAD {iv} -i @sealed -o @opened"))?;
        if b.read("opened")? == b.read("long")? { Ok(()) } else { Err("is not what it was".into()) }
    });
}

fn macs(b: &mut Battery<'_>) {
    for (hash, id) in [("SHA-1", "43"), ("SHA256", "43"), ("SHA384", "44"), ("SHA512", "44")] {
        b.step(&format!("{hash}-HMAC"), |b| mac(b, id, &format!("{hash}-HMAC")));
    }
    b.step("SHA256-HMAC of a key that was read, as OpenSSL does it", |b| {
        user(b, "--keygen --key-type GENERIC:32 --id 46 --label open-mac --extractable")?;
        user(b, "--read-object --type secrkey --id 46 -o @mac.key")?;
        user(b, "--sign --id 46 -m SHA256-HMAC -i @data -o @mac")?;
        let key = hex(&b.read("mac.key")?);
        openssl(b, &format!("mac -digest SHA256 -macopt hexkey:{key} -binary -in @data -out @theirs HMAC"))?;
        same(&b.read("mac")?, &b.read("theirs")?, "the HMAC")
    });
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(b: &Battery<'_>, id: &str, mechanism: &str) -> Result<(), String> {
    user(b, &format!("--sign --id {id} -m {mechanism} -i @data -o @mac"))?;
    let said = user(b, &format!("--verify --id {id} -m {mechanism} -i @data --signature-file @mac"))?;
    says(&said, "Signature is valid")
}

fn wrapping(b: &mut Battery<'_>) {
    b.step("wrap and unwrap a secret key", |b| {
        user(b, "--keygen --key-type AES:32 --id 50 --label wraps --usage-wrap --usage-decrypt")?;
        user(b, "--wrap -m AES-KEY-WRAP --id 50 --application-id 45 -o @wrapped")?;
        user(b, "--unwrap -m AES-KEY-WRAP --id 50 -i @wrapped --key-type AES: --application-id 51 --application-label back --extractable")?;
        user(b, "--read-object --type secrkey --id 51 -o @back")?;
        same(&b.read("back")?, &b.read("open")?, "the key that came back")
    });
    b.step("unwrap with RSA-PKCS", |b| {
        b.file("plain", [0x42; 32]);
        user(b, "--keypairgen --key-type rsa:2048 --id 52 --label rsa-wraps --usage-wrap --usage-decrypt")?;
        open(b, "--read-object --type pubkey --id 52 -o @wraps.der")?;
        openssl(b, "pkey -pubin -inform DER -in @wraps.der -out @wraps.pem")?;
        openssl(b, "pkeyutl -encrypt -pubin -inkey @wraps.pem -in @plain -out @wrapped")?;
        user(b, "--unwrap -m RSA-PKCS --id 52 -i @wrapped --key-type AES: --application-id 53 --application-label in --extractable")?;
        user(b, "--read-object --type secrkey --id 53 -o @back")?;
        same(&b.read("back")?, &b.read("plain")?, "the key that came in")
    });
}

fn objects(b: &mut Battery<'_>) {
    b.step("write a data object", |b| {
        user(b, "--write-object @data --type data --label note --application-label tests --private")?;
        user(b, "--read-object --type data --label note -o @note")?;
        same(&b.read("note")?, &b.read("data")?, "the data object")
    });
    b.step("a private object is hidden before a login", |b| {
        match says(&open(b, "-O --type data")?, "note") {
            Ok(()) => Err("it is shown".into()),
            Err(_) => Ok(()),
        }
    });
    b.step("write a certificate", |b| {
        openssl(
            b,
            "req -x509 -newkey rsa:2048 -nodes -keyout @soft.pem -subj /CN=soft -days 30 -out @cert.pem",
        )?;
        openssl(b, "x509 -in @cert.pem -outform DER -out @cert.der")?;
        user(b, "--write-object @cert.der --type cert --id 60 --label cert")?;
        says(&open(b, "-O --type cert")?, "CN=soft")?;
        open(b, "--read-object --type cert --id 60 -o @cert.back")?;
        same(&b.read("cert.back")?, &b.read("cert.der")?, "the certificate")
    });
    b.step("write a private key and use it", |b| {
        openssl(b, "pkey -in @soft.pem -outform DER -out @soft.der")?;
        openssl(b, "pkey -in @soft.pem -pubout -out @soft.pub.pem")?;
        user(b, "--write-object @soft.der --type privkey --id 60 --label soft --usage-sign")?;
        user(b, "--sign --id 60 -m SHA256-RSA-PKCS -i @data -o @signature")?;
        openssl(b, "dgst -sha256 -verify @soft.pub.pem -signature @signature @data").map(drop)
    });
    b.step("write a public key and verify with it", |b| {
        openssl(b, "pkey -in @soft.pem -pubout -outform DER -out @soft.pub.der")?;
        user(b, "--write-object @soft.pub.der --type pubkey --id 60 --label soft --usage-sign")?;
        says(
            &user(b, "--verify --id 60 -m SHA256-RSA-PKCS -i @data --signature-file @signature")?,
            "Signature is valid",
        )
    });
    b.step("write an EC key and use it", |b| {
        openssl(b, "ecparam -name prime256v1 -genkey -noout -outform DER -out @softec.der")?;
        openssl(b, "pkey -inform DER -in @softec.der -pubout -out @softec.pem")?;
        user(b, "--write-object @softec.der --type privkey --id 61 --label softec --usage-sign")?;
        openssl(b, "dgst -sha256 -binary -out @hash @data")?;
        user(b, "--sign --id 61 -m ECDSA --signature-format openssl -i @hash -o @signature")?;
        openssl(b, "pkeyutl -verify -pubin -inkey @softec.pem -sigfile @signature -in @hash").map(drop)
    });
    b.step("write a secret key and use it", |b| {
        b.file("aes.key", [0x43; 16]);
        user(b, "--write-object @aes.key --type secrkey --key-type AES:16 --id 62 --label softaes --usage-decrypt")?;
        user(b, "--encrypt --id 62 -m AES-ECB -i @block -o @sealed")?;
        openssl(b, &format!("enc -aes-128-ecb -nopad -K {} -in @block -out @theirs", "43".repeat(16)))?;
        same(&b.read("sealed")?, &b.read("theirs")?, "encrypted")
    });
    b.step("another id", |b| {
        user(b, "--set-id 63 --type secrkey --id 62")?;
        says(&user(b, "-O --type secrkey --id 63")?, "softaes")
    });
    let doomed = [
        ("data", "--label note", "note"),
        ("cert", "--id 60", "cert"),
        ("privkey", "--id 60", "soft"),
        ("pubkey", "--id 60", "soft"),
        ("secrkey", "--id 63", "softaes"),
    ];
    for (kind, which, label) in doomed {
        b.step(&format!("delete a {kind}"), |b| {
            user(b, &format!("--delete-object --type {kind} {which}"))?;
            let said = user(b, &format!("-O --type {kind}"))?;
            if said.out.lines().any(|line| line.ends_with(&format!("  {label}"))) {
                return Err(format!("is still there: {}", said.out));
            }
            Ok(())
        });
    }
}

fn pins(b: &mut Battery<'_>) {
    let pin = b.target.pin.clone();
    let so_pin = b.target.so_pin.clone();
    let other = "another-pin-77";
    b.step("--change-pin, there and back", |b| {
        user(b, &format!("--change-pin --new-pin {other}"))?;
        let changed = b.run("pkcs11-tool", all_words(b, &format!("--login --pin {other}"), "-O"));
        b.run(
            "pkcs11-tool",
            all_words(b, &format!("--login --pin {other}"), &format!("--change-pin --new-pin {pin}")),
        )?;
        user(b, "-O")?;
        changed.map(drop)
    });
    b.step("--init-pin, there and back", |b| {
        let login = format!("--login --login-type so --so-pin {so_pin}");
        b.run("pkcs11-tool", all_words(b, &login, &format!("--init-pin --new-pin {other}")))?;
        let changed = b.run("pkcs11-tool", all_words(b, &format!("--login --pin {other}"), "-O"));
        b.run("pkcs11-tool", all_words(b, &login, &format!("--init-pin --new-pin {pin}")))?;
        user(b, "-O")?;
        changed.map(drop)
    });
    b.step("--change-pin of the security officer, there and back", |b| {
        let login = format!("--login --login-type so --so-pin {so_pin}");
        b.run("pkcs11-tool", all_words(b, &login, &format!("--change-pin --new-pin {other}")))?;
        let login = format!("--login --login-type so --so-pin {other}");
        b.run("pkcs11-tool", all_words(b, &login, &format!("--change-pin --new-pin {so_pin}"))).map(drop)
    });
}

fn tests_of_its_own(b: &mut Battery<'_>) {
    // It ends with 0 whatever its tests say; its last line tells.
    b.step("--test", |b| {
        let mut command = b.command("pkcs11-tool");
        command.args(all_words(b, &format!("--login --pin {}", b.target.pin), "--test --allow-sw"));
        let said = finish(command)?;
        let last = said.out.lines().last().unwrap_or_default().to_string();
        if last == "No errors" { Ok(()) } else { Err(format!("its last line is '{last}': {}", said.err)) }
    });
    b.step("--test-fork", |b| {
        says(&user(b, "--test-fork")?, "*** Calling C_Initialize in forked child process")
    });
    b.step("--test-threads, eight of them", |b| {
        let words = ["--test-threads P1GISLT0"; 8].join(" ");
        let said = open(b, &format!("--use-locking {words}"))?;
        says(&said, "test_threads all threads have ended with CKR_OK")
    });
}
