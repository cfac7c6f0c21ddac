//! GnuTLS: p11tool and certtool. OpenSSL verifies what they make.

use keyraft_tests::clients::{Battery, compare, finish, good, same, says};
use keyraft_tests::group::Ended;

#[tokio::test(flavor = "multi_thread")]
async fn gnutls() {
    compare("p11tool and certtool", battery).await;
}

fn p11tool(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    gnutls_program(b, "p11tool", &format!("--batch {words}"))
}

fn certtool(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    gnutls_program(b, "certtool", words)
}

fn gnutls_program(b: &Battery<'_>, program: &str, words: &str) -> Result<Ended, String> {
    let mut command = b.command(program);
    command.env("GNUTLS_PIN", &b.target.pin).env("GNUTLS_SO_PIN", &b.target.so_pin);
    command.arg("--provider").arg(&b.target.module).args(b.words(words));
    good(finish(command)?)
}

fn battery(b: &mut Battery<'_>) {
    let token = format!("pkcs11:token={}", b.target.label);
    b.file("data", "what is sealed");
    b.file("ca.tmpl", "cn = \"ca\"\nca\ncert_signing_key\nexpiration_days = 30\nserial = 7\n");
    b.file(
        "leaf.tmpl",
        "cn = \"leaf\"\ndns_name = \"localhost\"\nsigning_key\nexpiration_days = 30\nserial = 8\n",
    );
    b.step("--list-tokens", |b| says(&p11tool(b, "--list-tokens")?, &format!("Label: {}", b.target.label)));
    b.step("--list-token-urls", |b| {
        says(&p11tool(b, "--list-token-urls")?, &format!("token={}", b.target.label))
    });
    b.step("--list-mechanisms", |b| says(&p11tool(b, &format!("--list-mechanisms {token}"))?, "CKM_ECDSA"));
    b.step("--generate-random", |b| p11tool(b, &format!("--login --generate-random 32 {token}")).map(drop));
    keys(b, &token);
    certificates(b, &token);
    objects(b, &token);
    pins(b, &token);
}

fn keys(b: &mut Battery<'_>, token: &str) {
    let kinds = [("rsa", "--bits 2048"), ("ecdsa", "--curve secp256r1"), ("ed25519", "")];
    for (kind, extra) in kinds {
        b.step(&format!("make a key: {kind}"), |b| {
            p11tool(b, &format!("--login --generate-privkey {kind} {extra} --label {kind} {token}"))?;
            let said = p11tool(b, &format!("--login --list-all {token}"))?;
            says(&said, &format!("object={kind};type=private"))?;
            says(&said, &format!("object={kind};type=public"))
        });
        b.step(&format!("--test-sign: {kind}"), |b| {
            let said = p11tool(b, &format!("--login --test-sign {token};object={kind};type=private"))?;
            says(&said, "Verifying against public key in the token... ok")
        });
        b.step(&format!("--export-pubkey: {kind}"), |b| {
            p11tool(
                b,
                &format!("--login --export-pubkey --outfile @{kind}.pem {token};object={kind};type=private"),
            )?;
            b.go("openssl", &format!("pkey -pubin -noout -in @{kind}.pem")).map(drop)
        });
    }
    b.step("make a key: ecdsa secp384r1", |b| {
        let curve = "--generate-privkey ecdsa --curve secp384r1 --label p384";
        p11tool(b, &format!("--login {curve} {token}"))?;
        p11tool(b, &format!("--login --test-sign {token};object=p384;type=private")).map(drop)
    });
    for hash in ["SHA256", "SHA384"] {
        b.step(&format!("--test-sign: RSA-PSS with {hash}"), |b| {
            let params = format!("--sign-params RSA-PSS --hash {hash}");
            p11tool(b, &format!("--login --test-sign {params} {token};object=rsa;type=private")).map(drop)
        });
    }
    b.step("--info", |b| {
        let said = p11tool(b, &format!("--login --info {token};object=rsa;type=private"))?;
        for flag in ["CKA_PRIVATE", "CKA_NEVER_EXTRACTABLE", "CKA_SENSITIVE"] {
            says(&said, flag)?;
        }
        Ok(())
    });
}

fn certificates(b: &mut Battery<'_>, token: &str) {
    for kind in ["rsa", "ecdsa"] {
        b.step(&format!("certtool: a self-signed certificate, {kind}"), |b| {
            let private = format!("--load-privkey {token};object={kind};type=private");
            let public = format!("--load-pubkey {token};object={kind};type=public");
            let words = format!(
                "--generate-self-signed {private} {public} --template @ca.tmpl --outfile @{kind}-ca.pem"
            );
            certtool(b, &words)?;
            let words = format!("--verify --load-ca-certificate @{kind}-ca.pem --infile @{kind}-ca.pem");
            says(&certtool(b, &words)?, "Verified. The certificate is trusted.")?;
            b.go("openssl", &format!("verify -CAfile @{kind}-ca.pem @{kind}-ca.pem")).map(drop)
        });
        b.step(&format!("certtool: a request, {kind}"), |b| {
            let private = format!("--load-privkey {token};object={kind};type=private");
            let public = format!("--load-pubkey {token};object={kind};type=public");
            certtool(
                b,
                &format!("--generate-request {private} {public} --template @leaf.tmpl --outfile @{kind}.req"),
            )?;
            b.go("openssl", &format!("req -verify -noout -in @{kind}.req")).map(drop)
        });
        b.step(&format!("certtool: a certificate signed by the token, {kind}"), |b| {
            let ca = format!(
                "--load-ca-privkey {token};object={kind};type=private --load-ca-certificate @{kind}-ca.pem"
            );
            let words =
                format!("--generate-certificate {ca} --load-request @{kind}.req --template @leaf.tmpl");
            certtool(b, &format!("{words} --outfile @{kind}-leaf.pem"))?;
            b.go("openssl", &format!("verify -CAfile @{kind}-ca.pem @{kind}-leaf.pem")).map(drop)
        });
    }
}

fn objects(b: &mut Battery<'_>, token: &str) {
    b.step("write a certificate, list it, read it", |b| {
        p11tool(
            b,
            &format!("--login --write --load-certificate @rsa-ca.pem --label cert --id 0a0b {token}"),
        )?;
        says(&p11tool(b, &format!("--list-all-certs {token}"))?, "object=cert")?;
        p11tool(b, &format!("--export --outfile @cert.back {token};object=cert;type=cert"))?;
        b.go("openssl", "x509 -in @rsa-ca.pem -outform DER -out @one")?;
        b.go("openssl", "x509 -in @cert.back -outform DER -out @two")?;
        same(&b.read("one")?, &b.read("two")?, "the certificate")
    });
    b.step("write a private key and sign with it", |b| {
        b.go("certtool", "--generate-privkey --key-type rsa --bits 2048 --outfile @soft.pem")?;
        p11tool(b, &format!("--login --write --load-privkey @soft.pem --label soft --id 0c {token}"))?;
        b.go("openssl", "pkey -in @soft.pem -pubout -out @soft.pub")?;
        p11tool(b, &format!("--login --write --load-pubkey @soft.pub --label soft --id 0c {token}"))?;
        p11tool(b, &format!("--login --test-sign {token};object=soft;type=private")).map(drop)
    });
    b.step("write a secret key", |b| {
        p11tool(
            b,
            &format!(
                "--login --write --secret-key 000102030405060708090a0b0c0d0e0f --label sk --id 0d {token}"
            ),
        )?;
        says(&p11tool(b, &format!("--login --list-all {token}"))?, "object=sk;type=secret-key")
    });
    b.step("--set-label", |b| {
        p11tool(b, &format!("--login --set-label renamed {token};object=cert;type=cert"))?;
        says(&p11tool(b, &format!("--list-all-certs {token}"))?, "object=renamed")
    });
    b.step("--set-id", |b| {
        p11tool(b, &format!("--login --set-id 0e0f {token};object=renamed;type=cert"))?;
        says(&p11tool(b, &format!("--list-all-certs {token}"))?, "id=%0E%0F")
    });
    for (name, kind) in [("renamed", "cert"), ("soft", "private"), ("sk", "secret-key")] {
        b.step(&format!("--delete: {kind}"), |b| {
            p11tool(b, &format!("--login --delete {token};object={name};type={kind}"))?;
            let said = p11tool(b, &format!("--login --list-all {token}"))?;
            match says(&said, &format!("object={name};type={kind}")) {
                Ok(()) => Err("is still there".into()),
                Err(_) => Ok(()),
            }
        });
    }
}

fn pins(b: &mut Battery<'_>, token: &str) {
    b.step("--initialize-pin", |b| {
        p11tool(
            b,
            &format!("--initialize-pin --set-so-pin {} --set-pin {} {token}", b.target.so_pin, b.target.pin),
        )?;
        p11tool(b, &format!("--login --list-all {token}")).map(drop)
    });
}
