//! TLS towards a group's members, as its members and its applications speak it: 1.3 only, aws-lc-rs, no resumption
//! (every connection proves its identity anew), and trust in the group's authority alone.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, Error, RootCertStore};
use std::sync::Arc;

/// The DNS name in every member's certificate, and the server name that every client asks for. Only members have it.
pub(crate) const SERVER_NAME: &str = "member.keyraft.internal";

/// The server name that every client asks for.
pub(crate) fn server_name() -> ServerName<'static> {
    ServerName::try_from(SERVER_NAME).expect("the constant is a DNS name")
}

/// The one provider of ciphers. Passed to every configuration: none is installed for the process, which may have its
/// own.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Trust in one authority (DER).
pub(crate) fn roots(authority: &[u8]) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority))?;
    Ok(Arc::new(roots))
}

/// Certificate and authority (DER), as they are shown to the other side.
pub(crate) fn chain(certificate: &[u8], authority: &[u8]) -> Vec<CertificateDer<'static>> {
    [certificate, authority].map(|der| CertificateDer::from(der.to_vec())).to_vec()
}

/// A key (PKCS#8 DER) as TLS takes it.
pub(crate) fn key(key: &[u8]) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()))
}

/// Whoever calls a member with a certificate of the group's authority.
pub(crate) fn mutual(
    certificate: &[u8],
    authority: &[u8],
    private: &[u8],
) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(authority)?)
        .with_client_auth_cert(chain(certificate, authority), key(private))?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}
