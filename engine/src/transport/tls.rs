//! TLS configurations of members and joiners, over what members share with applications (`client/tls.rs`).

use super::Identity;
use super::pki::{self, Bearer, Named, PkiError};
pub(super) use crate::client::tls::server_name;
use crate::client::tls::{chain, key, provider};
use crate::domain::Fingerprint;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;

/// Accepts members and applications (a certificate of the authority) and callers without any certificate; a certificate of another
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
        .with_single_cert(chain(&identity.certificate, &identity.authority), key(&identity.key))
        .map_err(identity_error)?;
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// A member that calls a member.
pub(super) fn mutual(identity: &Identity) -> Result<Arc<ClientConfig>, PkiError> {
    crate::client::tls::mutual(&identity.certificate, &identity.authority, &identity.key)
        .map_err(identity_error)
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

/// Which member the peer's certificate names; None if it showed none.
pub(super) fn peer(presented: Option<&[CertificateDer<'_>]>) -> Result<Option<Named>, PkiError> {
    presented.and_then(<[_]>::first).map(|certificate| pki::named(certificate)).transpose()
}

/// Whom a caller's certificate names; None if it showed none.
pub(super) fn caller(presented: Option<&[CertificateDer<'_>]>) -> Result<Option<Bearer>, PkiError> {
    presented.and_then(<[_]>::first).map(|certificate| pki::bearer(certificate)).transpose()
}

fn identity_error(error: Error) -> PkiError {
    PkiError::Identity(error.to_string())
}

fn roots(authority: &[u8]) -> Result<Arc<RootCertStore>, PkiError> {
    crate::client::tls::roots(authority).map_err(identity_error)
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
