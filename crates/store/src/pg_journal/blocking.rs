//! A session whose caller waits, on a thread of any kind.

use super::lease::Keeper;
use super::session::{Session, Trouble};
use crate::journal::JournalError;
use std::fmt::Display;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// An owned parameter of a statement.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A session of the hub that holds the lease.
pub(crate) struct Blocking {
    keeper: Arc<Keeper>,
    /// What it is for, as errors say it.
    doing: &'static str,
    /// `None` once something has failed.
    session: Option<Session>,
}

impl Blocking {
    /// Connects, and begins with a statement if there is one.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn open(keeper: &Arc<Keeper>, doing: &'static str, begin: Option<&'static str>) -> Result<Self, JournalError> {
        let ours = keeper.clone();
        let connect = async move {
            let session = ours.session().await?;
            if let Some(begin) = begin {
                session.run(begin).await?;
            }
            Ok(session)
        };
        let connected: Option<Result<Session, Trouble>> = keeper.engine.wait(connect);
        let mut blocking = Self { keeper: keeper.clone(), doing, session: None };
        let connected = connected.ok_or_else(|| blocking.failed("a bug"))?;
        blocking.session = Some(connected.map_err(|why| blocking.failed(why))?);
        Ok(blocking)
    }

    /// Does a statement that gives rows, of which there must be few.
    ///
    /// # Errors
    /// [`JournalError::Database`], and for all that comes after it too.
    pub fn rows(&mut self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, JournalError> {
        let mut session = self.session.take().ok_or_else(|| self.failed("the connection was lost"))?;
        let asked = self.keeper.engine.wait(async move {
            let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| &**param as _).collect();
            let rows = session.rows(sql, &params).await;
            (session, rows)
        });
        let (session, rows) = asked.ok_or_else(|| self.failed("a bug"))?;
        let rows = rows.map_err(|why| self.failed(why))?;
        self.session = Some(session);
        Ok(rows)
    }

    /// Does a statement whose first row begins with numbers, the first of which is 0 if another hub has taken over; or that gives
    /// no row then.
    ///
    /// # Errors
    /// [`JournalError::Fenced`]; else as [`Blocking::rows`].
    pub fn fenced(&mut self, sql: &'static str, params: Vec<Param>) -> Result<[i64; 3], JournalError> {
        let rows = self.rows(sql, params)?;
        let row = rows.first();
        let numbers = std::array::from_fn(|at| row.filter(|row| at < row.len()).map_or(0, |row| row.get(at)));
        if numbers[0] == 0 { Err(self.keeper.fenced()) } else { Ok(numbers) }
    }

    fn failed(&self, why: impl Display) -> JournalError {
        self.keeper.place.failed(self.doing, why)
    }
}
