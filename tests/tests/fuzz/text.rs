//! What people write: configuration files, names of kinds, PEM, DER signatures.

use crate::run::fuzz;
use keyraft_engine::domain::KeyAlgorithm;
use keyraft_node::config::{Config, example};
use keyraft_node::text::{
    Encoding, der_element, ecdsa_from_der, ecdsa_to_der, from_pem, public_key_of, to_pem,
};
use std::path::Path;

#[allow(dead_code, reason = "the module finds its file; here only the text is read")]
#[path = "../../../pkcs11/src/config.rs"]
mod client;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn keyraft_toml() {
    let whole = "[member]\nname = 'a'\ndata = 'data'\nlisten = '127.0.0.1:7400'\nsocket_users = [1, 2]\n[token]\n\
                 module = '/lib/x.so'\npin_env = 'PIN'\nresidency = 'token'\nenvironment = { A = 'b' }\n[domain]\n\
                 name = 'd'\nsecret_file = 's'\n[timings]\nheartbeat_ms = 100\nelection_min_ms = 500\nelection_max_ms = 1000\n";
    fuzz(vec![example().into_bytes(), whole.into()], |bytes| {
        Config::parse(Path::new("/etc/keyraft/keyraft.toml"), &text(bytes)).is_ok()
    });
}

#[test]
fn client_toml() {
    let groups = "[[group]]\nsockets = ['/run/a', '/run/b']\nslot = 7\ntimeout_ms = 1000\n[[group]]\nsockets = ['/c']\n";
    fuzz(vec![groups.into()], |bytes| {
        client::parse(&text(bytes), std::path::Path::new("/nonexistent")).is_ok()
    });
}

#[test]
fn kinds_of_keys() {
    let names = KeyAlgorithm::promised().map(|kind| kind.to_string().into_bytes());
    fuzz(names.into(), |bytes| {
        let Ok(kind) = text(bytes).parse::<KeyAlgorithm>() else { return false };
        assert_eq!(kind.to_string().parse(), Ok(kind));
        true
    });
}

#[test]
fn pem_hexadecimal_and_base64() {
    let seeds =
        vec![to_pem("PUBLIC KEY", &[7; 100]).into_bytes(), b"00 ff 1A".to_vec(), b"AAEC/w==".to_vec()];
    fuzz(seeds, |bytes| {
        let decoded = [Encoding::Hex, Encoding::Base64].map(|encoding| encoding.decode(bytes, "x").is_ok());
        from_pem(bytes).is_some() | decoded.contains(&true)
    });
}

#[test]
fn signatures_and_keys_in_der() {
    let signature = ecdsa_to_der(&[0x90; 64]);
    let key = [&[0x30, 10, 0x30, 0, 3, 6, 0][..], &[4; 5]].concat();
    fuzz(vec![signature, key], |bytes| {
        let halves =
            [32, 48, 66].map(|half| ecdsa_from_der(bytes, half).is_some_and(|raw| raw.len() == 2 * half));
        let element = der_element(bytes).is_some();
        halves.contains(&true) | public_key_of(bytes).is_some() | element
    });
}
