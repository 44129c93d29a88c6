//! Where the journal is: the operator's URL.

use super::tls::{Asked, Tls};
use crate::journal::JournalError;
use std::fmt;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};

/// How long a lease is if nothing else is said.
const LEASE_DEFAULT: Duration = Duration::from_secs(6);
/// The schema if nothing else is said.
const SCHEMA_DEFAULT: &str = "gleaner";
/// Longest name of a schema.
const SCHEMA_LEN_MAX: usize = 48;

/// A database and the schema in it that holds a journal. Shown without its password.
#[derive(Clone)]
pub struct Place {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) lease: Duration,
    tls: Asked,
    shown: String,
}

impl Place {
    /// Reads a URL: `postgres://user:password@host:5432/database?schema=gleaner`, with several hosts separated by commas if
    /// there are. Beside what `libpq` knows, `schema` names the schema, and `lease_ms` the length of the lease (6000). `sslmode` and
    /// `sslrootcert` are as in `libpq`; `allow` is missing.
    ///
    /// # Errors
    /// [`JournalError::Url`]; it does not repeat the URL, which may hold a password.
    pub fn parse(url: &str) -> Result<Self, JournalError> {
        let wrong = |why: String| JournalError::Url { why };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong("it does not begin with postgres://".into()));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut lease, mut rest) = (SCHEMA_DEFAULT.to_owned(), LEASE_DEFAULT, Vec::new());
        let mut tls = Asked::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("schema", name)) => schema = name.to_owned(),
                Some(("lease_ms", millis)) => {
                    let millis = millis.parse().ok().filter(|millis| (200..=600_000).contains(millis));
                    let millis = millis.ok_or_else(|| wrong("lease_ms is not a number from 200 to 600000".into()))?;
                    lease = Duration::from_millis(millis);
                }
                Some((key, value)) if tls.take(key, value).map_err(wrong)? => {}
                _ => rest.push(part),
            }
        }
        let is_word = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        let is_name = schema.chars().all(is_word) && schema.starts_with(|c: char| !c.is_ascii_digit());
        if !is_name || schema.len() > SCHEMA_LEN_MAX {
            return Err(wrong(format!("schema={schema}: not up to {SCHEMA_LEN_MAX} small letters, digits and _")));
        }
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config = url.parse().map_err(|error| wrong(super::session::words(&error)))?;
        tls.check().map_err(wrong)?;
        if config.get_hosts().is_empty() {
            // Without a name there would be no TLS: it is the address, which the certificate may be of.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        config.ssl_mode(tls.mode(&config));
        let third = (lease / 3).max(Duration::from_secs(1));
        config.connect_timeout(third).tcp_user_timeout(lease).keepalives_idle(third);
        // Of several servers the one that takes writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let shown = shown(&config, &schema);
        Ok(Self { config, schema, lease, tls, shown })
    }

    /// The length of its lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// What makes its connections, if those are to be encrypted. Reads the certificates to trust.
    pub(crate) fn tls(&self) -> Result<Tls, JournalError> {
        self.tls.tls().map_err(|why| JournalError::Url { why })
    }

    /// Says what of it is less than it may seem.
    pub(crate) fn warn(&self) {
        if self.tls.is_unverified() {
            tracing::warn!(
                place = %self,
                "sslmode=require without sslrootcert: it is not looked whose certificate the database has, so who is between can \
                 read and change all; verify-full looks"
            );
        }
    }

    /// A statement with the schema's name in the place of `{s}`.
    pub(crate) fn sql(&self, text: &str) -> String {
        text.replace("{s}", &self.schema)
    }

    pub(crate) fn failed(&self, doing: &'static str, why: impl fmt::Display) -> JournalError {
        JournalError::Database { doing, place: self.shown.clone(), why: why.to_string() }
    }
}

fn shown(config: &Config, schema: &str) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let (hosts, ports) = (config.get_hosts(), config.get_ports());
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = hosts
        .iter()
        .enumerate()
        .map(|(at, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(path) => format!("{}:{}", path.display(), port(at)),
        })
        .collect();
    format!("postgres://{user}{}/{}?schema={schema}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}, lease {:?})", self.shown, self.lease)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        (&self.config, &self.schema, self.lease, &self.tls) == (&other.config, &other.schema, other.lease, &other.tls)
    }
}

impl Eq for Place {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let place =
            Place::parse("postgres://hub:geheim@a,b:6000/site?lease_ms=900&schema=two&connect_timeout=3").unwrap();
        assert_eq!((place.schema.as_str(), place.lease), ("two", Duration::from_millis(900)));
        assert_eq!(place.to_string(), "postgres://hub@a:5432,b:6000/site?schema=two");
        assert!(!format!("{place} {place:?}").contains("geheim"));
        let usual = Place::parse("postgresql://hub@a/site").unwrap();
        assert_eq!((usual.schema.as_str(), usual.lease), (SCHEMA_DEFAULT, LEASE_DEFAULT));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        let wrong = [
            "http://hub:geheim@a/site",
            "postgres://hub:geheim@a/site?schema=Two",
            "postgres://hub:geheim@a/site?schema=1",
            "postgres://hub:geheim@a/site?schema=a%22b",
            "postgres://hub:geheim@a/site?lease_ms=1",
            "postgres://hub:geheim@a:port/site",
            "postgres://hub:geheim@a/site?nothing=1",
            "postgres://hub:geheim@a/site?sslmode=allow",
            "postgres://hub:geheim@a/site?sslmode=verify-full",
        ];
        for url in wrong {
            let error = Place::parse(url).unwrap_err().to_string();
            assert!(error.contains("schema=gleaner") && !error.contains("geheim"), "{url}: {error}");
        }
    }
}
