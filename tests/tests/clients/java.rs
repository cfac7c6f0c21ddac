//! Java: keytool, and a program over SunPKCS11 run from its source.

use keyraft_tests::clients::{Battery, compare, finish, says};
use keyraft_tests::group::Ended;

#[tokio::test(flavor = "multi_thread")]
async fn java() {
    compare("Java", battery).await;
}

/// Writes SunPKCS11's configuration and the program's source, and gives the words that run it.
pub fn program(b: &Battery<'_>, mode: &str) -> Vec<String> {
    let module = b.target.module.display();
    // What the guide of SunPKCS11 recommends for keys that derive and keys that are wrapped.
    let attributes = "attributes(*, CKO_PRIVATE_KEY, CKK_EC) = {\n CKA_DERIVE = true\n}\n\
                      attributes(*, CKO_SECRET_KEY, *) = {\n CKA_EXTRACTABLE = true\n}\n";
    b.file("java.cfg", format!("name = Tested\nlibrary = {module}\nslotListIndex = 0\n{attributes}"));
    b.file("Client.java", include_str!("Client.java"));
    // Small and quick: the whole battery is one short program.
    b.words(&format!("-Xmx256m -XX:TieredStopAtLevel=1 @Client.java @java.cfg {} {mode}", b.target.pin))
}

fn keytool(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    let provider = "-providerClass sun.security.pkcs11.SunPKCS11 -providerArg @java.cfg";
    let store = format!("-keystore NONE -storetype PKCS11 -storepass {}", b.target.pin);
    b.go("keytool", &format!("-J-XX:TieredStopAtLevel=1 {words} {provider} {store}"))
}

/// Makes the key pair that the program signs with.
pub fn prepare(b: &Battery<'_>) -> Result<(), String> {
    program(b, "steps");
    keytool(b, "-genkeypair -alias krsa -keyalg RSA -keysize 2048 -dname CN=krsa -validity 30").map(drop)
}

fn battery(b: &mut Battery<'_>) {
    let words = program(b, "steps");
    for (alias, kind) in [("krsa", "-keyalg RSA -keysize 2048"), ("kec", "-keyalg EC -groupname secp256r1")] {
        b.step(&format!("keytool -genkeypair: {alias}"), |b| {
            keytool(b, &format!("-genkeypair -alias {alias} {kind} -dname CN={alias} -validity 30")).map(drop)
        });
        b.step(&format!("keytool -exportcert: {alias}"), |b| {
            keytool(b, &format!("-exportcert -rfc -alias {alias} -file @{alias}.pem"))?;
            says(&b.go("openssl", &format!("verify -CAfile @{alias}.pem @{alias}.pem"))?, "OK")
        });
        b.step(&format!("keytool -certreq: {alias}"), |b| {
            keytool(b, &format!("-certreq -alias {alias} -file @{alias}.req"))?;
            b.go("openssl", &format!("req -verify -noout -in @{alias}.req")).map(drop)
        });
    }
    b.step("keytool -genseckey", |b| keytool(b, "-genseckey -alias kaes -keyalg AES -keysize 256").map(drop));
    b.step("keytool -list", |b| {
        let said = keytool(b, "-list")?;
        ["krsa, PrivateKeyEntry", "kec, PrivateKeyEntry"].iter().try_for_each(|line| says(&said, line))
    });
    b.step("keytool -delete", |b| {
        keytool(b, "-delete -alias kec")?;
        match says(&keytool(b, "-list")?, "kec,") {
            Ok(()) => Err("is still there".into()),
            Err(_) => Ok(()),
        }
    });
    let mut command = b.command("java");
    command.args(words);
    let said = finish(command).unwrap_or_else(|why| Ended { code: -1, out: String::new(), err: why });
    b.take_over(&said);
    b.step("keytool shows what the program stored", |b| {
        says(&keytool(b, "-list")?, "stored, PrivateKeyEntry")
    });
}
