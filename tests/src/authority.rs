//! A private authority, and servers that prove who they are by it.

use std::{path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::TlsAcceptor;

/// An authority that nobody knows unless they are told.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }
}

impl Authority {
    /// A file with its certificate.
    pub fn file(&self) -> PathBuf {
        let name = format!("roots-{}.pem", uuid::Uuid::new_v4());
        crate::folder().join(crate::command_file(&name, &self.0.pem()))
    }

    /// What a server of this name accepts connections with.
    pub fn acceptor(&self, name: &str) -> TlsAcceptor {
        self.acceptor_of(CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// The same, with a certificate that says this.
    pub fn acceptor_of(&self, params: CertificateParams) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.0).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key.into())
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}
