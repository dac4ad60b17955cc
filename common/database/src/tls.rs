//! TLS to PostgreSQL, with libpq's meanings: `require` encrypts and trusts any certificate,
//! `verify-full` requires one for the server's name, issued under the system's roots or those of
//! the file that the URL names.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::settings::ServerCheck;
use letterbox_common::process::settings::SettingError;

pub(super) fn connector(check: &ServerCheck) -> Result<MakeRustlsConnect, SettingError> {
    let provider = ring::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| SettingError::new("DATABASE_URL", error))?;
    let config = match check {
        ServerCheck::None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(algorithms))),
        ServerCheck::Full { roots } => {
            builder.with_root_certificates(load_roots(roots.as_deref())?)
        }
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

fn load_roots(file: Option<&Path>) -> Result<RootCertStore, SettingError> {
    let certificates = match file {
        Some(file) => {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
            let wrong = |error| format!("sslrootcert {}: {error}", file.display());
            read.map_err(|error| SettingError::new("DATABASE_URL", wrong(error)))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        let problem = "sslmode=verify-full needs a root certificate, and none was found";
        return Err(SettingError::new("DATABASE_URL", problem));
    }
    Ok(roots)
}

/// Trusts any certificate, as `sslmode=require` means: the connection is encrypted, the server not
/// verified.
#[derive(Debug)]
struct AnyServer(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
