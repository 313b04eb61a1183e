//! Certificates for servers that speak TLS.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

/// An authority of its own, a server's certificate and a client's, as PEM files that live as long as this does.
#[derive(Debug)]
pub struct Tls {
    dir: TempDir,
}

impl Tls {
    /// The server's certificate is for `names`: host names or addresses.
    pub fn new(names: &[&str]) -> Self {
        let dir = TempDir::new_in(super::process::root()).expect("a temporary folder can be made");
        let tls = Self { dir };

        let mut params = params("Tidegate test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, key()).expect("these parameters are valid");
        write(&tls.ca(), &authority.pem());

        let issue = |subject, names: &[&str], certificate: &Path, key_file: &Path| {
            let mut params = self::params(subject, names);
            params.use_authority_key_identifier_extension = true;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            // Both, for the nodes of a cluster are each other's clients.
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = key();
            write(certificate, &params.signed_by(&key, &authority).expect("these parameters are valid").pem());
            write(key_file, &key.serialize_pem());
        };
        issue("server", names, &tls.server_cert(), &tls.server_key());
        issue("client", &[], &tls.client_cert(), &tls.client_key());
        tls
    }

    /// The certificate of the authority: what a client has to trust.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The server's certificate.
    pub fn server_cert(&self) -> PathBuf {
        self.dir.path().join("server.pem")
    }

    /// The key of the server's certificate.
    pub fn server_key(&self) -> PathBuf {
        self.dir.path().join("server.key")
    }

    /// A certificate for a client, which a server asks for with `tls-auth-clients yes`.
    pub fn client_cert(&self) -> PathBuf {
        self.dir.path().join("client.pem")
    }

    /// The key of the client's certificate.
    pub fn client_key(&self) -> PathBuf {
        self.dir.path().join("client.key")
    }
}

fn params(subject: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("the names given are host names or addresses");
    params.distinguished_name.push(DnType::CommonName, subject);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system has random numbers")
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("our own folder can be written to");
}
