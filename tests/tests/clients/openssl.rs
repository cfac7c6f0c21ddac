//! OpenSSL's command with the pkcs11 engine of libp11: signatures, certificates, and TLS servers and clients whose key
//! is in the token.

use keyraft_tests::clients::{Battery, compare, finish, free_port, good, same, says, start};
use keyraft_tests::group::Ended;
use std::path::Path;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn openssl_engine() {
    compare("OpenSSL engine", battery).await;
}

/// With the engine: `KEY` in the words is the private key's URL, `PUB` the public one's.
fn engine(b: &Battery<'_>, label: &str, words: &str) -> Result<Ended, String> {
    let mut command = b.command("openssl");
    command.env("OPENSSL_CONF", b.path("engine.cnf")).args(urls(b, label, words));
    good(finish(command)?)
}

fn urls(b: &Battery<'_>, label: &str, words: &str) -> Vec<String> {
    let url = |class: &str| format!("pkcs11:token={};object={label};type={class}", b.target.label);
    b.words(&words.replace("KEY", &url("private")).replace("PUB", &url("public")))
}

fn openssl(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    b.go("openssl", words)
}

fn battery(b: &mut Battery<'_>) {
    b.file("data", "what is signed");
    b.file(
        "engine.cnf",
        format!(
            "openssl_conf = start\n[start]\nengines = engines\n[engines]\npkcs11 = pkcs11\n[pkcs11]\n\
             engine_id = pkcs11\nMODULE_PATH = {}\nPIN = {}\ninit = 0\n\
             [req]\ndistinguished_name = name\n[name]\n",
            b.target.module.display(),
            b.target.pin
        ),
    );
    for (kind, id, label) in [("rsa:2048", "01", "rsa"), ("EC:prime256v1", "02", "ec")] {
        b.step(&format!("a key made by pkcs11-tool: {label}"), |b| {
            let token = format!("--module {} --token-label {}", b.target.module.display(), b.target.label);
            let key = format!("--keypairgen --key-type {kind} --id {id} --label {label}");
            b.go("pkcs11-tool", &format!("{token} --login --pin {} {key}", b.target.pin)).map(drop)
        });
        signatures(b, label);
        certificates(b, label);
        for version in ["tls1_2", "tls1_3"] {
            b.step(&format!("{label}: s_server, {version}"), |b| serve(b, label, version));
        }
        b.step(&format!("{label}: s_client with the key in the token"), |b| {
            let key = "-engine pkcs11 -keyform engine -key KEY";
            handshake(b, label, "tls1_3", ("-key @server.key", "@server.pem"), Some(key))
        });
    }
    b.step("rsa: PSS", |b| {
        let pss = "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest";
        engine(
            b,
            "rsa",
            &format!("dgst -engine pkcs11 -keyform engine -sha256 {pss} -sign KEY -out @signature @data"),
        )?;
        openssl(b, &format!("dgst -sha256 {pss} -verify @rsa.pub -signature @signature @data")).map(drop)
    });
    b.step("rsa: decrypt", |b| {
        openssl(b, "pkeyutl -encrypt -pubin -inkey @rsa.pub -in @data -out @sealed")?;
        engine(
            b,
            "rsa",
            "pkeyutl -engine pkcs11 -keyform engine -decrypt -inkey KEY -in @sealed -out @opened",
        )?;
        same(&b.read("opened")?, &b.read("data")?, "decrypted")
    });
    b.step("rand", |b| engine(b, "rsa", "rand -engine pkcs11 -hex 16").map(drop));
}

fn signatures(b: &mut Battery<'_>, label: &str) {
    b.step(&format!("{label}: read the public key"), |b| {
        engine(
            b,
            label,
            &format!("pkey -engine pkcs11 -inform engine -pubin -in PUB -pubout -out @{label}.pub"),
        )?;
        openssl(b, &format!("pkey -pubin -noout -in @{label}.pub")).map(drop)
    });
    for hash in ["sha256", "sha384", "sha512"] {
        b.step(&format!("{label}: dgst -{hash} -sign"), |b| {
            let words =
                format!("dgst -engine pkcs11 -keyform engine -{hash} -sign KEY -out @signature @data");
            engine(b, label, &words)?;
            let check = format!("dgst -{hash} -verify @{label}.pub -signature @signature @data");
            says(&openssl(b, &check)?, "Verified OK")
        });
        b.step(&format!("{label}: dgst -{hash} -verify"), |b| {
            let words = format!(
                "dgst -engine pkcs11 -keyform engine -{hash} -verify PUB -signature @signature @data"
            );
            says(&engine(b, label, &words)?, "Verified OK")
        });
    }
}

fn certificates(b: &mut Battery<'_>, label: &str) {
    let key = "-engine pkcs11 -keyform engine -key KEY";
    b.step(&format!("{label}: req -x509"), |b| {
        let words = format!("req {key} -new -x509 -subj /CN=localhost -days 30 -sha256 -out @{label}.pem");
        engine(b, label, &words)?;
        says(&openssl(b, &format!("verify -CAfile @{label}.pem @{label}.pem"))?, "OK")
    });
    b.step(&format!("{label}: req and x509 -req"), |b| {
        engine(b, label, &format!("req {key} -new -subj /CN=asks -sha256 -out @{label}.req"))?;
        openssl(b, &format!("req -verify -noout -in @{label}.req"))?;
        let ca = format!("-CA @{label}.pem -CAkeyform engine -CAkey KEY -CAcreateserial");
        engine(
            b,
            label,
            &format!("x509 -engine pkcs11 -req -in @{label}.req {ca} -days 30 -out @{label}.leaf"),
        )?;
        says(&openssl(b, &format!("verify -CAfile @{label}.pem @{label}.leaf"))?, "OK")
    });
    b.step(&format!("{label}: cms -sign"), |b| {
        let signer = format!("-signer @{label}.pem -keyform engine -inkey KEY");
        engine(
            b,
            label,
            &format!("cms -sign -engine pkcs11 -in @data {signer} -binary -nodetach -outform DER -out @cms"),
        )?;
        openssl(b, &format!("cms -verify -inform DER -in @cms -CAfile @{label}.pem -purpose any -out @said"))
            .map(drop)
    });
}

/// A server whose key is in the token, and a client without one.
fn serve(b: &Battery<'_>, label: &str, version: &str) -> Result<(), String> {
    let key = "-engine pkcs11 -keyform engine -key KEY";
    handshake(b, label, version, (key, &format!("@{label}.pem")), None)
}

/// A handshake in which both sides check what they must. The server has this key and certificate; the client shows the
/// label's certificate if it has a key.
fn handshake(
    b: &Battery<'_>,
    label: &str,
    version: &str,
    (key, certificate): (&str, &str),
    client_key: Option<&str>,
) -> Result<(), String> {
    openssl(
        b,
        "req -x509 -newkey rsa:2048 -nodes -keyout @server.key -subj /CN=localhost -days 30 -out @server.pem",
    )?;
    let port = free_port();
    let mut server = b.command("openssl");
    let verify = if client_key.is_some() {
        format!("-Verify 1 -CAfile @{label}.pem -verify_return_error")
    } else {
        String::new()
    };
    let words =
        format!("s_server {key} -cert {certificate} -accept 127.0.0.1:{port} -naccept 1 -rev {verify}");
    server.env("OPENSSL_CONF", b.path("engine.cnf")).args(urls(b, label, &words));
    let (out, err) = (b.path("server.out"), b.path("server.err"));
    let mut server = start(server, Path::new(&out), Path::new(&err));
    let shown = client_key.map(|key| format!("{key} -cert @{label}.pem")).unwrap_or_default();
    let check = format!("-CAfile {certificate} -verify_return_error");
    let words = format!("s_client -{version} -connect 127.0.0.1:{port} {check} {shown}");
    // The server needs a moment to load its key; until then nobody listens.
    let mut outcome = Err("never tried".to_string());
    for _ in 0..100 {
        let mut client = b.command("openssl");
        client.env("OPENSSL_CONF", b.path("engine.cnf")).args(urls(b, label, &words));
        outcome = finish(client).and_then(good);
        match &outcome {
            Err(why) if why.contains("refused") || why.contains("errno=111") => {}
            _ => break,
        }
        if server.try_wait().map_err(|error| error.to_string())?.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // It ends by itself after one connection, unless none came.
    let _ = server.kill();
    server.wait().map_err(|error| format!("the server: {error}"))?;
    let said = outcome.map_err(|why| {
        format!("{why}; the server: {}", String::from_utf8_lossy(&b.read("server.err").unwrap_or_default()))
    })?;
    says(&said, "Verification: OK")
}
