//! NSS: modutil, certutil and cmsutil.

use keyraft_tests::clients::{Battery, compare, finish, good, says};
use keyraft_tests::group::Ended;

#[tokio::test(flavor = "multi_thread")]
async fn nss() {
    compare("NSS", battery).await;
}

/// certutil over the token.
fn certutil(b: &Battery<'_>, words: &str) -> Result<Ended, String> {
    b.go("certutil", &format!("-d sql:db -h {} -f @pin {words}", b.target.label))
}

fn battery(b: &mut Battery<'_>) {
    let token = b.target.label.clone();
    std::fs::create_dir(b.path("db")).expect("makes a folder");
    b.file("pin", format!("{token}:{}\n", b.target.pin));
    b.file("noise", [0x37_u8; 64]);
    b.file("data", "what is signed\n");
    b.step("a database", |b| b.go("certutil", "-N -d sql:db --empty-password").map(drop));
    b.step("modutil -add", |b| {
        let module = b.target.module.display();
        says(
            &b.go("modutil", &format!("-dbdir sql:db -add token -libfile {module} -force"))?,
            "added to database",
        )
    });
    b.step("modutil -list", |b| {
        says(&b.go("modutil", "-dbdir sql:db -list token")?, &format!("Token Name: {}", b.target.label))
    });
    b.step("a certification authority: certutil -S, RSA", |b| {
        let mut command = b.command("certutil");
        let usage = "-2 --keyUsage certSigning,digitalSignature";
        let words = format!("-S -n ca -s CN=ca -x -t CTu,Cu,Cu -z @noise -k rsa -g 2048 -m 11 -v 12 {usage}");
        command.args(b.words(&format!("-d sql:db -h {token} -f @pin {words}")));
        // It asks whether this is an authority, for the length of its chain, and whether that is critical.
        command
            .stdin(std::fs::File::open(b.file("answers", "y\n-1\ny\n")).map_err(|error| error.to_string())?);
        good(finish(command)?).map(drop)
    });
    for (name, kind, serial) in
        [("p256", "-k ec -q nistp256", 12), ("p384", "-k ec -q secp384r1", 13), ("rsa", "-k rsa -g 2048", 14)]
    {
        b.step(&format!("certutil -S under the authority: {name}"), |b| {
            let name = format!("-n {name} -s CN={name},E={name}@example.org");
            let words = format!("-S {name} -c {token}:ca -t u,u,u -z @noise {kind} -m {serial} -v 12");
            certutil(b, &format!("{words} --keyUsage digitalSignature,keyEncipherment")).map(drop)
        });
        b.step(&format!("certutil -V: {name}"), |b| {
            says(&certutil(b, &format!("-V -n {token}:{name} -u S -e -l"))?, "certificate is valid")
        });
        b.step(&format!("cmsutil -S: {name}"), |b| {
            b.go("cmsutil", &format!("-S -G -d sql:db -N {token}:{name} -i @data -o @cms -f @pin"))?;
            says(&b.go("cmsutil", "-D -d sql:db -i @cms -f @pin")?, "what is signed")
        });
    }
    listings(b, &token);
}

fn listings(b: &mut Battery<'_>, token: &str) {
    b.step("certutil -R", |b| {
        certutil(b, "-R -s CN=asks -k rsa -g 2048 -z @noise -a -o @request")?;
        b.go("openssl", "req -verify -noout -in @request").map(drop)
    });
    b.step("certutil -K", |b| {
        let said = certutil(b, "-K")?;
        ["ca", "p256", "p384", "rsa"].iter().try_for_each(|name| says(&said, &format!("{token}:{name}")))
    });
    b.step("certutil -L", |b| {
        let said = certutil(b, "-L")?;
        ["ca", "p256", "p384", "rsa"].iter().try_for_each(|name| says(&said, &format!("{token}:{name}")))
    });
    b.step("certutil -L of one, as OpenSSL reads it", |b| {
        certutil(b, &format!("-L -n {token}:ca -a -o @ca.pem"))?;
        certutil(b, &format!("-L -n {token}:p256 -a -o @p256.pem"))?;
        says(&b.go("openssl", "verify -CAfile @ca.pem @p256.pem")?, "OK")
    });
    b.step("certutil -A", |b| {
        b.go(
            "openssl",
            "req -x509 -newkey rsa:2048 -nodes -keyout @soft.key -subj /CN=soft -days 30 -out @soft.pem",
        )?;
        certutil(b, "-A -n soft -t C,C,C -a -i @soft.pem")?;
        says(&certutil(b, "-L")?, &format!("{token}:soft"))
    });
    b.step("pk12util -i", |b| {
        b.go(
            "openssl",
            "pkcs12 -export -inkey @soft.key -in @soft.pem -name soft12 -passout pass:abc -out @soft.p12",
        )?;
        b.go("pk12util", &format!("-i @soft.p12 -d sql:db -h {token} -k @pin -W abc"))?;
        says(&certutil(b, "-K")?, "soft")
    });
    b.step("certutil -D", |b| {
        certutil(b, &format!("-D -n {token}:rsa"))?;
        match says(&certutil(b, "-L")?, &format!("{token}:rsa")) {
            Ok(()) => Err("is still there".into()),
            Err(_) => Ok(()),
        }
    });
    b.step("certutil -F", |b| certutil(b, &format!("-F -n {token}:p384")).map(drop));
    b.step("modutil -changepw is refused with a wrong PIN", |b| {
        b.file("wrong", "wrong-pin-9999");
        b.file("new", "another-pin-77");
        let words = format!("-dbdir sql:db -force -changepw {token} -pwfile @wrong -newpwfile @new");
        match b.go("modutil", &words) {
            Ok(said) => Err(format!("it is taken: {}", said.said())),
            Err(why) => {
                if why.contains("ncorrect") {
                    Ok(())
                } else {
                    Err(why)
                }
            }
        }
    });
    b.step("modutil -changepw, there and back", |b| {
        b.file("old", &b.target.pin);
        let change = |from: &str, to: &str| {
            b.go(
                "modutil",
                &format!("-dbdir sql:db -force -changepw {token} -pwfile @{from} -newpwfile @{to}"),
            )
        };
        change("old", "new")?;
        change("new", "old")?;
        certutil(b, "-K").map(drop)
    });
    b.step("modutil -delete", |b| b.go("modutil", "-dbdir sql:db -delete token -force").map(drop));
}
