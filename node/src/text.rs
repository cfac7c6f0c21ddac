//! Bytes to text and back: hex, base64, PEM, and the two shapes of an ECDSA signature.

use crate::exit::Problem;
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};

/// How bytes stand in a file or on the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Encoding {
    /// As they are.
    Raw,
    /// Lower-case hexadecimal.
    Hex,
    /// Standard base64 with padding.
    Base64,
}

impl Encoding {
    /// Bytes in this encoding.
    pub fn encode(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Raw => bytes.to_vec(),
            Self::Hex => HEXLOWER_PERMISSIVE.encode(bytes).into_bytes(),
            Self::Base64 => BASE64.encode(bytes).into_bytes(),
        }
    }

    /// Bytes out of this encoding; white space in text is ignored. `name` is what the error calls it.
    pub fn decode(self, text: &[u8], name: &str) -> Result<Vec<u8>, Problem> {
        let squeezed = || text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect::<Vec<u8>>();
        let decoded = match self {
            Self::Raw => return Ok(text.to_vec()),
            Self::Hex => HEXLOWER_PERMISSIVE.decode(&squeezed()),
            Self::Base64 => BASE64.decode(&squeezed()),
        };
        decoded.map_err(|e| {
            Problem::usage(
                format!("{name} is not {self:?} text: {e}").to_lowercase(),
                "name its encoding, or give it raw",
            )
        })
    }
}

/// Lower-case hexadecimal of bytes.
pub fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// PEM with this label.
pub fn to_pem(label: &str, der: &[u8]) -> String {
    let body = BASE64.encode(der);
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The first block of a PEM text: its label and its bytes. None if the bytes are no PEM.
pub fn from_pem(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    Some((label.to_string(), BASE64.decode(body.as_bytes()).ok()?))
}

/// One DER element: its tag, its content and what follows it. None if it is cut short or its length takes more
/// than two bytes.
pub fn der_element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (usize::from(*rest.first()?) << 8 | usize::from(*rest.get(1)?), rest.get(2..)?),
        _ => return None,
    };
    Some((tag, rest.get(..len)?, rest.get(len..)?))
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// The key inside a SubjectPublicKeyInfo: an EC point, a PKCS#1 RSA key, or 32 bytes of Ed25519.
pub fn public_key_of(spki: &[u8]) -> Option<&[u8]> {
    let (SEQUENCE, body, _) = der_element(spki)? else { return None };
    let (_, _, rest) = der_element(body)?;
    let (BIT_STRING, bits, _) = der_element(rest)? else { return None };
    let (&0, key) = bits.split_first()? else { return None };
    Some(key)
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        len @ 0..=0x7f => out.push(len as u8),
        len @ 0x80..=0xff => out.extend([0x81, len as u8]),
        len => out.extend([0x82, (len >> 8) as u8, len as u8]),
    }
    out.extend_from_slice(content);
    out
}

fn der_integer(number: &[u8]) -> Vec<u8> {
    let start = number.iter().position(|b| *b != 0).unwrap_or(number.len().saturating_sub(1));
    let number = number.get(start..).unwrap_or_default();
    let mut content = Vec::with_capacity(number.len() + 1);
    if number.first().is_none_or(|b| *b >= 0x80) {
        content.push(0);
    }
    content.extend_from_slice(number);
    der(INTEGER, &content)
}

/// PKCS#11's r || s as the DER that most programs want.
pub fn ecdsa_to_der(raw: &[u8]) -> Vec<u8> {
    let (r, s) = raw.split_at(raw.len() / 2);
    der(SEQUENCE, &[der_integer(r), der_integer(s)].concat())
}

/// A DER signature as r || s, each of `half` bytes. None if it is malformed or too large.
pub fn ecdsa_from_der(signature: &[u8], half: usize) -> Option<Vec<u8>> {
    let (SEQUENCE, body, []) = der_element(signature)? else { return None };
    let (INTEGER, r, rest) = der_element(body)? else { return None };
    let (INTEGER, s, []) = der_element(rest)? else { return None };
    let mut raw = Vec::with_capacity(2 * half);
    for number in [r, s] {
        let number = number.strip_prefix(&[0]).unwrap_or(number);
        raw.resize(raw.len() + half.checked_sub(number.len())?, 0);
        raw.extend_from_slice(number);
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecdsa_shapes_round_trip() {
        let mut raw = vec![0u8; 64];
        raw[1] = 0x80; // r: one leading zero, then a byte with its top bit set
        raw[63] = 5;
        let der = ecdsa_to_der(&raw);
        assert_eq!(der[..5], [0x30, 0x25, 0x02, 0x20, 0x00]);
        assert_eq!(ecdsa_from_der(&der, 32), Some(raw));
        assert_eq!(ecdsa_from_der(&der[..10], 32), None);
        assert_eq!(ecdsa_from_der(&der, 16), None);
        let long = vec![0xff; 132];
        assert_eq!(ecdsa_from_der(&ecdsa_to_der(&long), 66), Some(long));
        assert_eq!(ecdsa_to_der(&[0, 0]), [0x30, 6, 2, 1, 0, 2, 1, 0]);
    }

    #[test]
    fn pem_round_trips() {
        let der: Vec<u8> = (0..100).collect();
        let pem = to_pem("PUBLIC KEY", &der);
        assert_eq!(from_pem(pem.as_bytes()), Some(("PUBLIC KEY".into(), der)));
        assert_eq!(from_pem(b"no pem"), None);
    }

    #[test]
    fn encodings_round_trip() {
        for encoding in [Encoding::Raw, Encoding::Hex, Encoding::Base64] {
            let text = encoding.encode(&[1, 2, 255]);
            assert_eq!(encoding.decode(&text, "x").as_deref(), Ok(&[1, 2, 255][..]));
        }
        assert_eq!(Encoding::Hex.decode(b"01 0A\n", "x"), Ok(vec![1, 10]));
        let problem = Encoding::Hex.decode(b"zz", "--signature").expect_err("is refused");
        assert!(problem.what.contains("--signature"), "{problem}");
    }
}
