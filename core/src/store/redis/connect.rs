//! One connection: the stream, TLS, the login, and whether the server is new enough.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::address::Address;
use super::failure::unavailable;
use crate::document::{Secret, Tls};
use crate::error::{Error, ErrorKind, Result};

/// How to log in and whom to trust, the same for every node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Access {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    /// Read at each connect, so that a rotated password needs no restart.
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) database: u32,
    pub(crate) tls: Option<Tls>,
}

/// A connection, and what the server said about itself.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) driver: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(super) mode: Mode,
    /// The same socket once more, to go on with when `connection` and `driver` are gone. None over TLS, and where there is
    /// no room for it.
    pub(super) socket: Option<OwnedFd>,
}

/// What a server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Alone,
    Cluster,
    Sentinel,
}

/// What a server's list of clients calls a connection.
pub(super) const NAME: &str = "tidegate";
/// The oldest servers whose scripts have flags.
const OLDEST: (u32, u32) = (7, 0);

/// Connects under a name, which the server's list of clients has.
pub(super) async fn connect(address: &Address, access: &Access, name: &str) -> Result<Connected> {
    let info = login(access).await?;
    let failed = |error: io::Error| unavailable(&format!("{address} cannot be reached ({error})"));
    match (address, &access.tls) {
        (Address::Unix(path), _) => {
            let stream = UnixStream::connect(path).await.map_err(failed)?;
            let socket = stream.as_fd().try_clone_to_owned().ok();
            Ok(Connected { socket, ..open(&info, stream, address, name).await? })
        }
        (Address::Tcp { host, port }, tls) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            match tls {
                None => {
                    let socket = stream.as_fd().try_clone_to_owned().ok();
                    Ok(Connected { socket, ..open(&info, stream, address, name).await? })
                }
                Some(tls) => {
                    let server = tls.server_name.clone().unwrap_or_else(|| host.clone());
                    let server = ServerName::try_from(server.clone())
                        .map_err(|_| document(format!("{server:?} is not a server name for TLS")))?;
                    let tls = tls.clone();
                    let config = aside(move || config(&tls)).await?;
                    let stream = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
                    let failed = |error: io::Error| {
                        let advice = "does it speak TLS? Without, write redis://; with a certificate of your own, \
                                      name its ca and server_name under [store.tls]";
                        unavailable(&format!("{address} does not agree on TLS ({error}); {advice}"))
                    };
                    open(&info, stream.map_err(failed)?, address, name).await
                }
            }
        }
    }
}

/// Does what may block, such as reading a file, on a thread of its own: a file system that hangs must not stop others.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(unavailable("a file could not be read")))
}

async fn login(access: &Access) -> Result<RedisConnectionInfo> {
    let mut info = RedisConnectionInfo::default().set_db(access.database.into()).set_skip_set_lib_name();
    if let Some(username) = &access.username {
        info = info.set_username(username);
    }
    if let Some(path) = &access.password_file {
        let path = path.clone();
        let read = move || Secret::read(&path).map_err(|error| error.within(path.display()));
        info = info.set_password(aside(read).await?.expose());
    } else if let Some(password) = &access.password {
        info = info.set_password(password.expose());
    }
    Ok(info)
}

async fn open<S>(info: &RedisConnectionInfo, stream: S, address: &Address, name: &str) -> Result<Connected>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Deadlines are ours, and count from the call; a timeout of the connection's would end it for everybody.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let opened = MultiplexedConnection::new_with_config(info, stream, config).await;
    let (mut connection, driver) = opened.map_err(|error| {
        // Whatever refuses a login counts as unavailable: the server's own words say why.
        let words = error.to_string();
        if words.contains("switch database") {
            let advice = "leave the number behind the url's host out, or allow the user +select";
            return unavailable(&format!("{address} refused the database; {advice} ({words})"));
        }
        unavailable(&format!("{address} refused the login; check username and password ({words})"))
    })?;
    let mut driver: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(driver);
    let mode = tokio::select! {
        hello = greet(&mut connection, address, name) => hello?,
        () = &mut driver => return Err(unavailable(&format!("{address} closed the connection; if it speaks TLS, write rediss://"))),
    };
    Ok(Connected { connection, driver, mode, socket: None })
}

/// Asks what the server is: HELLO needs no permission. Names the connection where that is allowed.
async fn greet(connection: &mut MultiplexedConnection, address: &Address, name: &str) -> Result<Mode> {
    let hello = connection.send_packed_command(&redis::cmd("HELLO")).await;
    let hello = hello.and_then(Value::extract_error).map_err(|error| match super::failure::of(&error) {
        super::failure::Failure::Refused(error) if error.message().contains("unknown command") => Error::new(
            ErrorKind::UnsupportedServer,
            format!("{address} does not know HELLO; Redis 7.0 or Valkey 7.2 is needed, or a later one"),
        ),
        super::failure::Failure::Refused(error) | super::failure::Failure::Lost(error) => error.within(address),
        _ => unavailable(&format!("{address} did not say what it is")),
    })?;
    let version = field(&hello, "version").unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        return Err(Error::new(
            ErrorKind::UnsupportedServer,
            format!("{address} is version {version:?}; Redis 7.0 or Valkey 7.2 is needed, or a later one"),
        ));
    }
    let _ = connection.send_packed_command(redis::cmd("CLIENT").arg("SETNAME").arg(name)).await;
    Ok(match field(&hello, "mode").as_deref() {
        Some("cluster") => Mode::Cluster,
        Some("sentinel") => Mode::Sentinel,
        _ => Mode::Alone,
    })
}

/// Whether a server that answers HELLO like this takes writes, as far as it knows itself.
pub(super) fn is_primary(hello: &Value) -> bool {
    field(hello, "role").as_deref() == Some("master")
}

/// A field of HELLO's reply: a flat list of names and values.
pub(super) fn field(hello: &Value, name: &str) -> Option<String> {
    let Value::Array(fields) = hello else { return None };
    let text = |value: &Value| redis::from_redis_value_ref::<String>(value).ok();
    let at = fields.iter().step_by(2).position(|field| text(field).as_deref() == Some(name))?;
    text(fields.get(2 * at + 1)?)
}

fn config(tls: &Tls) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| document(format!("{}: {error}", path.display())))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| document(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots);
    match (&tls.certificate, &tls.key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(certificate), Some(key)) => {
            let secret = PrivateKeyDer::from_pem_slice(read(key)?.as_bytes())
                .map_err(|error| document(format!("{} holds no private key in PEM ({error})", key.display())))?;
            builder
                .with_client_auth_cert(certificates(certificate)?, secret)
                .map_err(|error| document(format!("{} and its key cannot be used: {error}", certificate.display())))
        }
        _ => Err(document("a certificate for TLS needs its key, and a key its certificate; give both".into())),
    }
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>> {
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(read(path)?.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(document(format!("{} holds no certificate in PEM", path.display()))),
        Err(error) => Err(document(format!("{}: {error}", path.display()))),
    }
}

fn read(path: &PathBuf) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| document(format!("{} cannot be read: {error}", path.display())))
}

fn document(message: String) -> Error {
    Error::new(ErrorKind::InvalidDocument, message)
}
