//! Certificates of a group: one authority, one certificate a member and one an application. A member's certificate names
//! its group and member id in a URI (`keyraft:GROUP/mN`); all members share one DNS name, since identity is never an
//! address. An application's names it in a URI alone (`keyraft:GROUP/client/NAME`): nobody takes it for a member.

use super::random;
use crate::client::tls::SERVER_NAME;
use crate::clock::{Clock, UnixMillis};
use crate::domain::{ApplicationName, Fingerprint, GroupId, MemberId};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use std::time::Duration;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Certificates are valid from a day before they are made: members' clocks may differ.
const CLOCK_SKEW: Duration = DAY;
/// Of members and applications: removal ends them sooner.
const MEMBER_LIFE: Duration = DAY.saturating_mul(3653);
const AUTHORITY_LIFE: Duration = DAY.saturating_mul(3 * 3653);

/// Why a certificate or key could not be made, read or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PkiError {
    /// The operating system gives no randomness.
    #[error("no randomness from the operating system: {0}")]
    Random(String),
    /// A key could not be made or read.
    #[error("TLS key cannot be used: {0}")]
    Key(String),
    /// A certificate cannot be read, or names no member.
    #[error("certificate cannot be used: {0}")]
    Certificate(String),
    /// A signing request is malformed, its signature is wrong, or its key is not P-256.
    #[error("signing request is refused: {0}; make a new one with this version of keyraft")]
    Request(String),
    /// Certificate, key and authority do not belong together.
    #[error("TLS identity cannot be used: {0}")]
    Identity(String),
}

/// Who a certificate names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The group.
    pub group: GroupId,
    /// The member.
    pub member: MemberId,
    /// Its TLS key.
    pub tls: Fingerprint,
}

/// Which application a certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedApplication {
    /// The group.
    pub group: GroupId,
    /// The application.
    pub name: ApplicationName,
    /// Its TLS key.
    pub tls: Fingerprint,
}

/// Whom a certificate of the group's authority names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// A member.
    Member(Named),
    /// An application.
    Application(NamedApplication),
}

impl Bearer {
    /// The group.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Member(named) => named.group,
            Self::Application(named) => named.group,
        }
    }
}

/// Makes a group's authority: its self-signed certificate (DER) and its key (PKCS#8 DER).
pub fn new_authority(group: GroupId) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), PkiError> {
    let key = generate()?;
    let mut params = parameters(&format!("keyraft group {group}"), Clock.unix(), AUTHORITY_LIFE)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&*key).map_err(|e| PkiError::Certificate(e.to_string()))?;
    Ok((certificate.der().to_vec(), Zeroizing::new(key.serialize_der())))
}

/// Makes a member's TLS key (P-256, PKCS#8 DER).
pub fn new_tls_key() -> Result<Zeroizing<Vec<u8>>, PkiError> {
    Ok(Zeroizing::new(generate()?.serialize_der()))
}

/// A certificate signing request (DER) for a TLS key (PKCS#8 DER). It names nobody: the signer decides who it is.
pub fn signing_request(key: &[u8]) -> Result<Vec<u8>, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&*read_key(key)?).map_err(|e| PkiError::Request(e.to_string()))?;
    Ok(request.der().to_vec())
}

/// Signs a member's certificate (DER, valid for 10 years). Of the request only the proven public key is taken.
pub fn sign(
    authority: &[u8],
    authority_key: &[u8],
    request: &[u8],
    member: MemberId,
    group: GroupId,
) -> Result<Vec<u8>, PkiError> {
    let mut params = parameters(&format!("keyraft member {member}"), Clock.unix(), MEMBER_LIFE)?;
    params.subject_alt_names =
        vec![SanType::URI(name(&uri(group, member))?), SanType::DnsName(name(SERVER_NAME)?)];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    sign_as(authority, authority_key, request, params)
}

/// Signs an application's certificate (DER, valid for 10 years): good for calling members, never for answering. Of the
/// request only the proven public key is taken.
pub fn sign_application(
    authority: &[u8],
    authority_key: &[u8],
    request: &[u8],
    application: &ApplicationName,
    group: GroupId,
) -> Result<Vec<u8>, PkiError> {
    let mut params = parameters(&format!("keyraft client {application}"), Clock.unix(), MEMBER_LIFE)?;
    params.subject_alt_names = vec![SanType::URI(name(&application_uri(group, application))?)];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign_as(authority, authority_key, request, params)
}

fn sign_as(
    authority: &[u8],
    authority_key: &[u8],
    request: &[u8],
    mut params: CertificateParams,
) -> Result<Vec<u8>, PkiError> {
    let request = read_request(request)?;
    let key = read_key(authority_key)?;
    if fingerprint(authority)? != fingerprint_of(&key.subject_public_key_info()) {
        return Err(PkiError::Identity("the authority's key is not the key of its certificate".into()));
    }
    let issuer = Issuer::from_ca_cert_der(&CertificateDer::from(authority), &*key)
        .map_err(|e| PkiError::Certificate(e.to_string()))?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let certificate =
        params.signed_by(&request.public_key, &issuer).map_err(|e| PkiError::Certificate(e.to_string()))?;
    Ok(certificate.der().to_vec())
}

/// Fingerprint of a certificate's public key (SHA-256 of its SubjectPublicKeyInfo).
pub fn fingerprint(certificate: &[u8]) -> Result<Fingerprint, PkiError> {
    Ok(fingerprint_of(read_certificate(certificate)?.public_key().raw))
}

/// Fingerprint of a TLS key (PKCS#8 DER): the same as that of every certificate for it.
pub fn key_fingerprint(key: &[u8]) -> Result<Fingerprint, PkiError> {
    Ok(fingerprint_of(&read_key(key)?.subject_public_key_info()))
}

/// Fingerprint of the key that a signing request asks for, once the request proves that it owns it. Who admits a
/// joiner compares this with the joiner's card before it signs.
pub fn request_fingerprint(request: &[u8]) -> Result<Fingerprint, PkiError> {
    Ok(fingerprint_of(&read_request(request)?.public_key.subject_public_key_info()))
}

/// Who a member's certificate names. Says nothing of who signed it: TLS does.
pub fn named(certificate: &[u8]) -> Result<Named, PkiError> {
    match bearer(certificate)? {
        Bearer::Member(named) => Ok(named),
        Bearer::Application(named) => {
            Err(PkiError::Certificate(format!("it is the client {}'s, and no member's", named.name)))
        }
    }
}

/// Whom a certificate names. Says nothing of who signed it: TLS does.
pub fn bearer(certificate: &[u8]) -> Result<Bearer, PkiError> {
    let parsed = read_certificate(certificate)?;
    let names = parsed
        .subject_alternative_name()
        .map_err(|e| PkiError::Certificate(e.to_string()))?
        .map(|extension| &extension.value.general_names);
    let tls = fingerprint_of(parsed.public_key().raw);
    let mut identities = names.into_iter().flatten().filter_map(|name| match name {
        GeneralName::URI(text) => parse_uri(text, tls),
        _ => None,
    });
    match (identities.next(), identities.next()) {
        (Some(bearer), None) => Ok(bearer),
        _ => Err(PkiError::Certificate(
            "it does not name exactly one member (keyraft:GROUP/mN) or client (keyraft:GROUP/client/NAME)"
                .into(),
        )),
    }
}

fn uri(group: GroupId, member: MemberId) -> String {
    format!("keyraft:{group}/{member}")
}

fn application_uri(group: GroupId, name: &ApplicationName) -> String {
    format!("keyraft:{group}/client/{name}")
}

fn parse_uri(text: &str, tls: Fingerprint) -> Option<Bearer> {
    let (group, rest) = text.strip_prefix("keyraft:")?.split_once('/')?;
    let bytes = data_encoding::HEXLOWER.decode(group.as_bytes()).ok()?;
    let group = GroupId(bytes.try_into().ok()?);
    if let Some(name) = rest.strip_prefix("client/") {
        return Some(Bearer::Application(NamedApplication { group, name: name.parse().ok()?, tls }));
    }
    let member = MemberId(rest.strip_prefix('m')?.parse().ok()?);
    // Only the one spelling that we write: "m+1" or "m01" name nobody.
    (uri(group, member) == text).then_some(Bearer::Member(Named { group, member, tls }))
}

fn name<T: TryFrom<String>>(text: &str) -> Result<T, PkiError>
where
    T::Error: std::fmt::Display,
{
    T::try_from(text.to_string()).map_err(|e| PkiError::Certificate(e.to_string()))
}

fn parameters(subject: &str, now: UnixMillis, life: Duration) -> Result<CertificateParams, PkiError> {
    let now = Duration::from_millis(now.0);
    let latest = Duration::from_secs(200 * 365 * 24 * 60 * 60);
    if now < CLOCK_SKEW || now > latest {
        return Err(PkiError::Certificate(
            "the clock of this machine is wrong: set it, then try again".into(),
        ));
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params.serial_number = Some(SerialNumber::from_slice(&random::serial()?));
    params.not_before = epoch + (now - CLOCK_SKEW);
    params.not_after = epoch + (now + life);
    Ok(params)
}

fn generate() -> Result<Zeroizing<KeyPair>, PkiError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| PkiError::Key(e.to_string()))?;
    Ok(Zeroizing::new(key))
}

fn read_key(key: &[u8]) -> Result<Zeroizing<KeyPair>, PkiError> {
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(key), &PKCS_ECDSA_P256_SHA256)
        .map(Zeroizing::new)
        .map_err(|e| PkiError::Key(e.to_string()))
}

fn read_request(request: &[u8]) -> Result<CertificateSigningRequestParams, PkiError> {
    let read = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(request))
        .map_err(|e| PkiError::Request(e.to_string()))?;
    if read.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err(PkiError::Request("its key is not on the curve P-256".into()));
    }
    Ok(read)
}

fn read_certificate(certificate: &[u8]) -> Result<X509Certificate<'_>, PkiError> {
    let (rest, parsed) =
        X509Certificate::from_der(certificate).map_err(|e| PkiError::Certificate(e.to_string()))?;
    if rest.is_empty() { Ok(parsed) } else { Err(PkiError::Certificate("bytes follow it".into())) }
}

fn fingerprint_of(public_key_info: &[u8]) -> Fingerprint {
    Fingerprint(Sha256::digest(public_key_info).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId([1, 2, 3, 4, 5, 6, 7, 0xfe]);

    #[test]
    fn a_member_is_named_by_its_certificate() {
        let (authority, authority_key) = new_authority(GROUP).expect("authority");
        let key = new_tls_key().expect("key");
        let request = signing_request(&key).expect("request");
        let certificate = sign(&authority, &authority_key, &request, MemberId(7), GROUP).expect("signed");
        let tls = key_fingerprint(&key).expect("fingerprint");
        assert_eq!(named(&certificate), Ok(Named { group: GROUP, member: MemberId(7), tls }));
        assert_eq!(fingerprint(&certificate), Ok(tls));
        assert_eq!(request_fingerprint(&request), Ok(tls));
        assert_eq!(fingerprint(&authority), key_fingerprint(&authority_key));
        assert!(named(&authority).is_err(), "an authority is no member");
        let again = sign(&authority, &authority_key, &request, MemberId(7), GROUP).expect("signed");
        assert_ne!(certificate, again, "serial numbers differ");
    }

    #[test]
    fn bad_requests_and_foreign_keys_are_refused() {
        let (authority, authority_key) = new_authority(GROUP).expect("authority");
        let key = new_tls_key().expect("key");
        let mut request = signing_request(&key).expect("request");
        let refused = |request: &[u8], key: &[u8]| sign(&authority, key, request, MemberId(1), GROUP);
        assert!(matches!(refused(&request, &key), Err(PkiError::Identity(_))));
        let last = request.len() - 1;
        request[last] ^= 1;
        assert!(matches!(refused(&request, &authority_key), Err(PkiError::Request(_))));
        assert!(matches!(refused(&[], &authority_key), Err(PkiError::Request(_))));
        let wide = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("P-384");
        let wide = CertificateParams::default().serialize_request(&wide).expect("request");
        assert!(matches!(refused(wide.der(), &authority_key), Err(PkiError::Request(_))));
        assert!(matches!(parameters("", UnixMillis(0), DAY), Err(PkiError::Certificate(_))));
    }

    #[test]
    fn only_our_spelling_of_an_identity_is_read() {
        let tls = Fingerprint([1; 32]);
        let member = Named { group: GROUP, member: MemberId(12), tls };
        assert_eq!(parse_uri("keyraft:01020304050607fe/m12", tls), Some(Bearer::Member(member)));
        let name = "web-1".parse().expect("a name");
        let application = NamedApplication { group: GROUP, name, tls };
        let read = parse_uri("keyraft:01020304050607fe/client/web-1", tls);
        assert_eq!(read, Some(Bearer::Application(application)));
        for text in [
            "keyraft:01020304050607fe/client/",
            "keyraft:01020304050607fe/client/Web",
            "keyraft:01020304050607fe/client/a/b",
            "keyraft:01020304050607fe/clients/a",
            "keyraft:01020304050607FE/m12",
            "keyraft:01020304050607fe/m+12",
            "keyraft:01020304050607fe/m012",
            "keyraft:01020304050607fe/12",
            "keyraft:0102/m1",
            "keyraft:01020304050607fe",
            "http://01020304050607fe/m1",
            "",
        ] {
            assert_eq!(parse_uri(text, tls), None, "{text}");
        }
    }

    #[test]
    fn an_application_is_named_and_is_no_member() {
        let (authority, authority_key) = new_authority(GROUP).expect("authority");
        let key = new_tls_key().expect("key");
        let request = signing_request(&key).expect("request");
        let name: ApplicationName = "web".parse().expect("a name");
        let certificate =
            sign_application(&authority, &authority_key, &request, &name, GROUP).expect("signed");
        let tls = key_fingerprint(&key).expect("fingerprint");
        let expected = Bearer::Application(NamedApplication { group: GROUP, name, tls });
        assert_eq!(bearer(&certificate), Ok(expected));
        assert!(named(&certificate).is_err(), "it is no member");
    }
}
