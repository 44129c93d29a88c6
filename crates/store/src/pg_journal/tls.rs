//! TLS to the database, as `libpq` has it (`sslmode`, `sslrootcert`).
//!
//! | `sslmode` | |
//! |---|---|
//! | `disable` | none |
//! | `prefer`, or nothing | if the server offers it; whose certificate it is is not looked at |
//! | `require` | always; whose certificate it is is looked at only with `sslrootcert`, as with `verify-ca` |
//! | `verify-ca` | and the certificate is one of those in `sslrootcert`, or signed by one of them |
//! | `verify-full` | and it is of the host in the URL |
//!
//! A certificate that is itself in `sslrootcert` is good whatever else it says: it is pinned. Names are those of `subjectAltName`, and not
//! the common name. Where all hosts are sockets of this machine there is no TLS, whatever is asked for; beside other hosts a socket is a
//! server that does not offer it. No certificates of our own, no channel binding.

use percent_encoding::percent_decode_str;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;

/// What a URL asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    mode: Mode,
    root: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Disable,
    #[default]
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Asked {
    /// Takes a part of the URL's query; false if it is about something else.
    pub fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "sslmode" => self.mode = Mode::of(value)?,
            "sslrootcert" => {
                let file = percent_decode_str(value).decode_utf8();
                self.root = Some(file.map_err(|_| "sslrootcert is not UTF-8")?.into_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What is wrong with it by itself.
    pub fn check(&self) -> Result<(), String> {
        match (self.mode, &self.root) {
            (Mode::VerifyCa | Mode::VerifyFull, None) => {
                Err("sslmode=verify-ca and verify-full need sslrootcert=FILE, with the certificates to trust".into())
            }
            _ => Ok(()),
        }
    }

    /// Whether TLS is asked for, and nobody looks whose certificate it is.
    pub fn is_unverified(&self) -> bool {
        self.mode == Mode::Require && self.root.is_none()
    }

    /// What `config` asks the server for.
    pub fn mode(&self, config: &tokio_postgres::Config) -> SslMode {
        // With `hostaddr` a connection goes there, whatever `host` is.
        let is_local =
            config.get_hostaddrs().is_empty() && config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        match self.mode {
            _ if is_local => SslMode::Disable,
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    /// Makes what does it. Reads the file of certificates.
    pub fn tls(&self) -> Result<Tls, String> {
        let roots = match &self.root {
            Some(file) if self.mode >= Mode::Require => certificates(Path::new(file))?,
            Some(_) | None => Vec::new(),
        };
        Tls::new(roots, self.mode == Mode::VerifyFull)
    }
}

impl Mode {
    fn of(value: &str) -> Result<Self, String> {
        match value {
            "disable" => Ok(Self::Disable),
            "prefer" => Ok(Self::Prefer),
            "require" => Ok(Self::Require),
            "verify-ca" => Ok(Self::VerifyCa),
            "verify-full" => Ok(Self::VerifyFull),
            _ => Err("sslmode is not disable, prefer, require, verify-ca or verify-full".into()),
        }
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("sslrootcert={}: {why}", file.display());
    let read = CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))?;
    let found: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
    if found.is_empty() { Err(failed(&"there is no certificate in it")) } else { Ok(found) }
}

/// Makes TLS connections.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    fn new(roots: Vec<CertificateDer<'static>>, is_named: bool) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut store = RootCertStore::empty();
        // One that cannot sign others may be pinned all the same.
        store.add_parsable_certificates(roots.iter().cloned());
        let verifier = Arc::new(Verifier { pinned: roots, roots: store, is_named, provider: provider.clone() });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

/// Looks at a server's certificate, as far as it was asked to.
#[derive(Debug)]
struct Verifier {
    /// Empty: all are good.
    pinned: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    /// The name must be the host's.
    is_named: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.pinned.is_empty() {
            return Ok(ServerCertVerified::assertion());
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        if !self.pinned.iter().any(|pinned| pinned == certificate) {
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, others, now, algorithms)?;
        }
        if self.is_named {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Connect;
    type Error = std::convert::Infallible;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connect, Self::Error> {
        // A socket of this machine has no name, and needs none.
        Ok(Connect { config: self.0.clone(), name: ServerName::try_from(host).ok().map(|name| name.to_owned()) })
    }
}

/// One connection to be made.
pub(crate) struct Connect {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Connect {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or(io::ErrorKind::InvalidInput)?;
            TlsConnector::from(self.config).connect(name, stream).await.map(Stream)
        })
    }
}

/// A connection.
pub(crate) struct Stream<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Whether an error says that the server's certificate is not as it was asked to be.
pub(crate) fn is_about_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let said = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(said, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg_journal::Place;

    #[test]
    fn only_sockets_of_this_machine_go_without_tls() {
        let asked = [
            ("sslmode=disable", SslMode::Disable),
            ("", SslMode::Prefer),
            ("sslmode=prefer", SslMode::Prefer),
            ("sslmode=require", SslMode::Require),
            ("sslmode=verify-ca&sslrootcert=/ca", SslMode::Require),
            ("sslmode=verify-full&sslrootcert=/ca", SslMode::Require),
        ];
        // What comes before the query, more of the query, and whether a connection may leave this machine.
        let hosts = [
            ("hub@a:5432", "", true),
            ("hub@a,b", "", true),
            ("hub@%2Frun%2Fpg", "", false),
            ("hub@%2Frun%2Fpg,%2Frun%2Fpg2", "", false),
            ("", "host=/run/pg", false),
            ("hub@%2Frun%2Fpg,a", "", true),
            ("", "hostaddr=10.0.0.1", true),
            ("hub@a", "hostaddr=10.0.0.1", true),
            ("hub@%2Frun%2Fpg", "hostaddr=10.0.0.1", true),
        ];
        for (host, more, leaves) in hosts {
            for (mode, wanted) in asked {
                let place = Place::parse(&format!("postgres://{host}/site?{more}&{mode}")).unwrap();
                let wanted = if leaves { wanted } else { SslMode::Disable };
                assert_eq!(place.config.get_ssl_mode(), wanted, "{host} {more} {mode}");
            }
        }
        let bare = Place::parse("postgres:///site?hostaddr=10.0.0.1,10.0.0.2").unwrap();
        assert_eq!(bare.config.get_hosts(), [Host::Tcp("10.0.0.1".into()), Host::Tcp("10.0.0.2".into())]);
    }

    #[test]
    fn the_name_of_the_file_is_decoded() {
        let mut asked = Asked::default();
        assert_eq!(asked.take("sslrootcert", "/etc/my%20ca%2Fca.pem"), Ok(true));
        assert_eq!(asked.root.as_deref(), Some("/etc/my ca/ca.pem"));
        assert!(asked.take("sslrootcert", "%ff").is_err());
    }
}
