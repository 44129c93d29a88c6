//! One connection to the database, and what its errors mean for what was being done.

use super::Place;
use super::tls::{Tls, is_about_certificate};
use std::collections::HashMap;
use std::error::Error as _;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// What a session begins with. A commit is answered once it is flushed, here and at synchronous replicas; a session that reads
/// may be idle for as long as its records are applied.
const BEGIN: &str = "SET synchronous_commit = on; SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0; \
                     SET lock_timeout = 0; SET bytea_output = hex";

/// A statement's parameters.
pub(crate) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Why something was not done, or is not known to be.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server refused it, and nothing of it was done.
    Refused(SqlState, String),
    /// The connection is lost, or silent for too long: it may have been done.
    Lost(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Refused(_, why) | Self::Lost(why)) = self;
        f.write_str(why)
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let why = words(&error);
        match error.as_db_error() {
            // What is worse than an error ends the session, perhaps after the commit.
            Some(db) if db.parsed_severity() == Some(Severity::Error) => Self::Refused(db.code().clone(), why),
            _ => Self::Lost(why),
        }
    }
}

impl Trouble {
    /// Whether trying to connect again would say the same: the server does not know the user, the database or the right, or
    /// there is no way to show who one is, or its certificate is not good.
    pub fn is_final(error: &tokio_postgres::Error) -> bool {
        let final_classes = ["28", "3D", "42"];
        match error.code() {
            Some(code) => final_classes.iter().any(|class| code.code().starts_with(class)),
            None if error.source().is_some_and(is_about_certificate) => true,
            None => !error.is_closed() && !error.source().is_some_and(|source| source.is::<std::io::Error>()),
        }
    }
}

/// What an error says, with its cause.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} ({})", db.message(), db.code().code());
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A connection that is used by one at a time. Dropping it closes it.
pub(crate) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    place: Place,
    /// How long the server may take for one answer.
    limit: Duration,
    prepared: HashMap<&'static str, Statement>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Connects, as `name` in the server's list of sessions. Within a runtime.
    pub async fn connect(place: &Place, tls: Tls, name: &str, limit: Duration) -> Result<Self, tokio_postgres::Error> {
        let mut config = place.config.clone();
        let (client, connection) = config.application_name(name).connect(tls).await?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = words(&error), "a connection to the journal's database ended");
            }
        });
        let session = Self { client, driver, place: place.clone(), limit, prepared: HashMap::new() };
        session.client.batch_execute(BEGIN).await?;
        Ok(session)
    }

    /// The same for one that goes on trying: all errors are alike to it.
    pub async fn open(place: &Place, name: &str, limit: Duration) -> Result<Self, Trouble> {
        let tls = place.tls().map_err(|error| Trouble::Lost(error.to_string()))?;
        match tokio::time::timeout(limit, Self::connect(place, tls, name, limit)).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(Trouble::Lost(format!("no connection within {limit:?}"))),
        }
    }

    /// Does statements without parameters or answers.
    pub async fn run(&self, sql: &str) -> Result<(), Trouble> {
        timed(self.limit, self.client.batch_execute(&self.place.sql(sql))).await
    }

    /// Does a statement in a transaction of its own; says how many rows it changed, once they are durable.
    pub async fn execute(&mut self, sql: &'static str, params: Params<'_>) -> Result<u64, Trouble> {
        let statement = self.prepare(sql).await?;
        timed(self.limit, self.client.execute(&statement, params)).await
    }

    /// Asks for rows, which must be few.
    pub async fn rows(&mut self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, Trouble> {
        let statement = self.prepare(sql).await?;
        timed(self.limit, self.client.query(&statement, params)).await
    }

    async fn prepare(&mut self, sql: &'static str) -> Result<Statement, Trouble> {
        if let Some(known) = self.prepared.get(sql) {
            return Ok(known.clone());
        }
        let statement = timed(self.limit, self.client.prepare(&self.place.sql(sql))).await?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }
}

async fn timed<T>(limit: Duration, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Trouble> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Trouble::Lost(format!("no answer within {limit:?}"))),
    }
}
