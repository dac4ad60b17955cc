//! A private authority, and servers that prove who they are by it.

use std::{path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{RootCertStore, pki_types::PrivatePkcs8KeyDer, server::WebPkiClientVerifier};
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

    /// A certificate that says this.
    pub fn sign(&self, params: CertificateParams, key: &KeyPair) -> Certificate {
        params.signed_by(key, &self.0).unwrap()
    }

    /// What a server of this name accepts connections with.
    pub fn acceptor(&self, name: &str) -> TlsAcceptor {
        self.acceptor_of(CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// The same, with a certificate that says this.
    pub fn acceptor_of(&self, params: CertificateParams) -> TlsAcceptor {
        self.acceptor_for(None, params)
    }

    /// The same, for clients that show a certificate of an authority, if one is given.
    pub fn acceptor_for(&self, clients: Option<&Self>, params: CertificateParams) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let own = self.sign(params, &key);
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown = clients.map(|authority| {
            let mut roots = RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let roots = Arc::new(roots);
            let shown = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            shown.build().unwrap()
        });
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match shown {
            Some(shown) => config.with_client_cert_verifier(shown),
            None => config.with_no_client_auth(),
        };
        let config = config.with_single_cert(vec![own.der().clone()], key.into());
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }
}
