//! TLS configurations: 1.3 only, aws-lc-rs, no resumption (every connection proves its identity anew).

use super::Identity;
use super::pki::{self, Named, PkiError};
use crate::domain::Fingerprint;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;

/// Accepts members (a certificate of the authority) and callers without any certificate; a certificate of another
/// authority ends the handshake.
pub(super) fn server(identity: &Identity) -> Result<Arc<ServerConfig>, PkiError> {
    let clients = WebPkiClientVerifier::builder_with_provider(roots(&identity.authority)?, provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| PkiError::Identity(e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(identity_error)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain(identity), key(identity))
        .map_err(identity_error)?;
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// A member that calls a member.
pub(super) fn mutual(identity: &Identity) -> Result<Arc<ClientConfig>, PkiError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(identity_error)?
        .with_root_certificates(roots(&identity.authority)?)
        .with_client_auth_cert(chain(identity), key(identity))
        .map_err(identity_error)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// A joiner: has no certificate, and trusts the authority with this fingerprint alone.
pub(super) fn pinned(authority: Fingerprint) -> Result<Arc<ClientConfig>, PkiError> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(identity_error)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedAuthority { authority, provider: provider() }))
        .with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The server name that every client asks for.
pub(super) fn server_name() -> ServerName<'static> {
    ServerName::try_from(pki::SERVER_NAME).expect("the constant is a DNS name")
}

/// Who the peer's certificate names; None if it showed none.
pub(super) fn peer(presented: Option<&[CertificateDer<'_>]>) -> Result<Option<Named>, PkiError> {
    presented.and_then(<[_]>::first).map(|certificate| pki::named(certificate)).transpose()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn identity_error(error: Error) -> PkiError {
    PkiError::Identity(error.to_string())
}

fn chain(identity: &Identity) -> Vec<CertificateDer<'static>> {
    [&identity.certificate, &identity.authority].map(|der| CertificateDer::from(der.clone())).to_vec()
}

fn key(identity: &Identity) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.to_vec()))
}

fn roots(authority: &[u8]) -> Result<Arc<RootCertStore>, PkiError> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(authority)).map_err(identity_error)?;
    Ok(Arc::new(roots))
}

/// Trusts whatever the authority with this fingerprint signed, if that authority's certificate is sent along.
#[derive(Debug)]
struct PinnedAuthority {
    authority: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let authority = intermediates
            .iter()
            .find(|certificate| pki::fingerprint(certificate) == Ok(self.authority))
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let roots = roots(authority).map_err(|e| Error::General(e.to_string()))?;
        WebPkiServerVerifier::builder_with_provider(roots, self.provider.clone())
            .build()
            .map_err(|e| Error::General(e.to_string()))?
            .verify_server_cert(end_entity, &[], server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
