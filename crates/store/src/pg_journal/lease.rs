//! The lease: which hub may write, and since when.
//!
//! One row holds the epoch, who holds the lease, and when it ends by the database's clock. Every statement that writes anything
//! looks for the row with its own epoch and locks it ([`FENCE`]) in the same transaction. Taking over changes the epoch, which
//! waits for those that write and makes all later ones find no row: a hub that slept through it can commit nothing.
//!
//! Renewing changes no key, so it waits for no writer, and none for it. A holder that could not renew ends itself when a tenth
//! of the lease is left, counted from before it asked, on a clock that goes on while the machine sleeps.

use super::engine::Engine;
use super::schema::{self, Ready, Unready};
use super::session::{Session, Trouble};
use super::{Place, hubs};
use crate::journal::JournalError;
use crate::journal::format::Identity;
use crate::lock;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;

/// What each statement that writes begins with; `$1` is the epoch. Nothing is written if it gives no row.
macro_rules! fenced {
    ($rest:literal) => {
        concat!("WITH fence AS MATERIALIZED (SELECT epoch FROM {s}.lease WHERE epoch = $1 FOR KEY SHARE) ", $rest)
    };
}
pub(crate) use fenced;

const RENEW: &str = "UPDATE {s}.lease SET expires = clock_timestamp() + $3::bigint * interval '1 millisecond' \
                     WHERE epoch = $1 AND holder = $2";
const LOOK: &str = "SELECT epoch, holder, name, expires < clock_timestamp() FROM {s}.lease";
const TAKE: &str = "UPDATE {s}.lease SET epoch = epoch + 1, holder = $2, name = $3, \
                    expires = clock_timestamp() + $4::bigint * interval '1 millisecond' \
                    WHERE epoch = $1 AND expires < clock_timestamp() RETURNING epoch";
const RELEASE: &str = "UPDATE {s}.lease SET expires = '-infinity' WHERE epoch = $1 AND holder = $2";
/// What an earlier holder left in the middle of a statement would keep the row locked.
const END_SESSIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
const PUT_FILE: &str = fenced!(
    "INSERT INTO {s}.files (name, bytes) SELECT $2, $3 FROM fence \
     ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes"
);
/// Longest wait between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often a standby says where it is, and how often the hub that serves looks where all are.
const SAY_INTERVAL: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_secs(4);
/// How long a hub that stops may take to give the lease back.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// The right to write a journal. Renewed by itself until it is dropped, which gives it back.
pub struct Lease {
    keeper: Arc<Keeper>,
    renewing: JoinHandle<()>,
}

/// Called once, with why the lease has ended.
type OnEnd = Box<dyn FnOnce(JournalError) + Send>;

/// What all that writes under a lease needs to know.
pub(crate) struct Keeper {
    pub place: Place,
    pub identity: Identity,
    pub epoch: u64,
    holder: String,
    /// When it ends, by [`now_ns`].
    deadline_ns: AtomicU64,
    pub engine: Engine,
    end: Mutex<End>,
    /// Where this hub may be found, and where all of the journal's may.
    own: Mutex<Vec<SocketAddr>>,
    hubs: watch::Sender<Vec<SocketAddr>>,
    /// Set once it has ended, for what waits for the database.
    over: watch::Sender<bool>,
}

enum End {
    NotYet(Option<OnEnd>),
    Ended(Option<JournalError>),
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("place", &self.keeper.place).field("epoch", &self.keeper.epoch).finish()
    }
}

/// Nanoseconds of a clock that nobody sets, and that goes on while the machine sleeps.
fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A pause before the next try: doubled each time, and anywhere between its half and its whole.
pub(crate) fn pause(tries: u32) -> Duration {
    let whole = PAUSE_MAX.min(Duration::from_millis(20) * 2u32.pow(tries.min(8)));
    // The clock's last digits differ between hubs.
    whole / 2 + whole.mul_f64((now_ns() % 1000) as f64 / 2000.0)
}

impl Lease {
    /// Waits until this process holds the lease. `name` is for people; `addresses` is where this hub will be found, if that is known;
    /// `says` is told once each why it waits: that another hub holds it, or that the database does not answer. Dropping the future
    /// gives up.
    ///
    /// # Errors
    /// What will not pass by itself: the database refuses the user, or its tables cannot be used.
    pub async fn wait(
        place: &Place,
        name: &str,
        addresses: &[SocketAddr],
        mut says: impl FnMut(&str),
    ) -> Result<Self, JournalError> {
        let (mut said_held, mut said_lost, mut tries) = (false, false, 0);
        let mut said_where: Option<Instant> = None;
        place.warn();
        loop {
            let is_due = said_where.is_none_or(|at| at.elapsed() >= SAY_INTERVAL);
            match Self::take(place, name, if is_due { addresses } else { &[] }).await {
                Ok(Taking::Taken(lease)) => return Ok(lease),
                Ok(Taking::Held(by)) => {
                    if is_due {
                        said_where = Some(Instant::now());
                    }
                    if !std::mem::replace(&mut said_held, true) {
                        says(&format!("the hub {by} holds the journal in {place}: waiting as its standby"));
                    }
                    tries = 0;
                }
                Ok(Taking::Lost(why)) => {
                    if !std::mem::replace(&mut said_lost, true) {
                        says(&format!("the journal in {place} does not answer ({why}): trying again"));
                    }
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause(tries).max(place.lease / 12).min(PAUSE_MAX)).await;
        }
    }

    /// Takes the lease if nobody holds it. Writes down where this hub will be found, if that is given.
    ///
    /// # Errors
    /// As [`Lease::wait`].
    pub async fn take(place: &Place, name: &str, addresses: &[SocketAddr]) -> Result<Taking, JournalError> {
        let limit = place.lease.max(Duration::from_secs(2));
        let connecting = Session::connect(place, place.tls()?, "gleaner standby", limit);
        let connected = tokio::time::timeout(limit, connecting).await;
        let mut session = match connected {
            Ok(Ok(session)) => session,
            Ok(Err(error)) if Trouble::is_final(&error) => {
                return Err(place.failed("open", super::session::words(&error)));
            }
            Ok(Err(error)) => return Ok(Taking::Lost(super::session::words(&error))),
            Err(_) => return Ok(Taking::Lost(format!("no connection within {limit:?}"))),
        };
        let Ready { identity, is_unsafe } = match schema::prepare(&mut session, place).await {
            Ok(ready) => ready,
            Err(Unready::Lost(why)) => return Ok(Taking::Lost(why)),
            Err(Unready::Final(error)) => return Err(error),
        };
        // A statement that is given up here must not go on waiting there, and take the lease for nobody in the end.
        let waits = format!("SET lock_timeout = {}", (limit / 2).as_millis());
        if let Err(trouble) = session.run(&waits).await {
            return Ok(Taking::Lost(trouble.to_string()));
        }
        if !addresses.is_empty()
            && let Err(Trouble::Refused(_, why)) = hubs::write(&mut session, addresses).await
        {
            tracing::warn!(why, "the other hubs of the journal cannot be told where this one is");
        }
        match take_with(&mut session, place, name).await {
            Ok(Ok((epoch, holder, sent))) => {
                if is_unsafe {
                    tracing::warn!(%place, "the database server runs with fsync = off: what it calls durable is lost if its machine fails");
                }
                Keeper::start(place, identity, epoch, holder, sent).map(Taking::Taken)
            }
            Ok(Err(by)) => Ok(Taking::Held(by)),
            Err(Trouble::Refused(code, why)) if code == SqlState::INSUFFICIENT_PRIVILEGE => {
                Err(place.failed("take the lease of", why))
            }
            Err(trouble) => Ok(Taking::Lost(trouble.to_string())),
        }
    }

    /// The epoch: higher with each hub that took over.
    pub fn epoch(&self) -> u64 {
        self.keeper.epoch
    }

    /// Where the journal is.
    pub fn place(&self) -> &Place {
        &self.keeper.place
    }

    /// A file that the hubs share. Waits for the database.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn file(&self, name: &str) -> Result<Option<Vec<u8>>, JournalError> {
        let (keeper, name) = (self.keeper.clone(), name.to_owned());
        let read = async move {
            let mut session = keeper.session().await?;
            session.rows("SELECT bytes FROM {s}.files WHERE name = $1", &[&name]).await
        };
        let failed = |why: &dyn std::fmt::Display| self.keeper.place.failed("read a file of", why);
        let rows = self.keeper.engine.wait(read).ok_or_else(|| failed(&"a bug"))?.map_err(|why| failed(&why))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// What keeps files that the hubs share.
    pub fn files(&self) -> Files {
        Files(self.keeper.clone())
    }

    /// Where all hubs of this journal may be found, now and when that changes, once this one may at `own`. Waits for the database.
    pub fn hubs(&self, own: Vec<SocketAddr>) -> watch::Receiver<Vec<SocketAddr>> {
        *lock(&self.keeper.own) = own.clone();
        let keeper = self.keeper.clone();
        let look = async move {
            let mut session = keeper.session().await?;
            hubs::exchange(&mut session, &own).await.map(|all| keeper.found(all))
        };
        if let Some(Err(why)) = self.keeper.engine.wait(look) {
            tracing::warn!(%why, "where the journal's hubs are is looked for later");
        }
        self.keeper.hubs.subscribe()
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Stands for a process that is stopped: nothing is renewed, and no time passes.
    #[cfg(test)]
    pub(crate) fn freeze(&self) {
        self.renewing.abort();
        self.keeper.deadline_ns.store(u64::MAX, SeqCst);
    }
}

/// What came of trying to take a lease.
#[derive(Debug)]
pub enum Taking {
    /// It is ours.
    Taken(Lease),
    /// The hub of this name has it.
    Held(String),
    /// The database does not answer, for this reason.
    Lost(String),
}

/// Keeps files that the hubs of one journal share.
#[derive(Clone)]
pub struct Files(Arc<Keeper>);

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({})", self.0.place)
    }
}

impl Files {
    /// Keeps a file, in the place of an earlier one of this name. Waits for the database.
    ///
    /// # Errors
    /// [`JournalError::Fenced`] if another hub has taken over, [`JournalError::Database`].
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        let (keeper, name, bytes) = (self.0.clone(), name.to_owned(), bytes.to_owned());
        let write = async move {
            let mut session = keeper.session().await?;
            session.execute(PUT_FILE, &[&(keeper.epoch as i64), &name, &bytes]).await
        };
        let failed = |why: &dyn std::fmt::Display| self.0.place.failed("keep a file in", why);
        match self.0.engine.wait(write).ok_or_else(|| failed(&"a bug"))? {
            Ok(0) => Err(self.0.fenced()),
            Ok(_) => Ok(()),
            Err(why) => Err(failed(&why)),
        }
    }
}

/// The epoch, the holder and when it was asked for; or who holds it.
type Took = Result<(u64, String, u64), String>;

async fn take_with(session: &mut Session, place: &Place, name: &str) -> Result<Took, Trouble> {
    let rows = session.rows(LOOK, &[]).await?;
    let row = rows.first().ok_or_else(|| Trouble::Lost("the table `lease` is empty".into()))?;
    let (epoch, before, by, is_over): (i64, String, String, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
    if !is_over {
        return Ok(Err(by));
    }
    if !before.is_empty() {
        let ended = session.rows(END_SESSIONS, &[&session_name(&before)]).await;
        if let Err(Trouble::Refused(_, why)) = &ended {
            tracing::warn!(why, "the sessions of the hub before could not be ended");
        }
    }
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Trouble::Lost(format!("no random name: {errno}")))?;
    let holder = base::digest::hex(&random);
    let sent = now_ns();
    let millis = place.lease.as_millis() as i64;
    let taken = session.rows(TAKE, &[&epoch, &holder, &name, &millis]).await?;
    match taken.first() {
        Some(row) => Ok(Ok((row.get::<_, i64>(0) as u64, holder, sent))),
        None => Ok(Err("that has just taken it".into())),
    }
}

fn session_name(holder: &str) -> String {
    format!("gleaner hub {holder}")
}

impl Keeper {
    fn new(place: &Place, identity: Identity, epoch: u64, holder: String, engine: Engine) -> Self {
        Self {
            place: place.clone(),
            identity,
            epoch,
            holder,
            deadline_ns: AtomicU64::new(0),
            engine,
            end: Mutex::new(End::NotYet(None)),
            own: Mutex::default(),
            hubs: watch::Sender::default(),
            over: watch::Sender::new(false),
        }
    }

    /// For who only reads, and holds no lease.
    pub fn of_reader(place: &Place, identity: Identity, engine: Engine) -> Arc<Self> {
        Arc::new(Self::new(place, identity, 0, "none: reads".into(), engine))
    }

    fn start(place: &Place, identity: Identity, epoch: u64, holder: String, sent: u64) -> Result<Lease, JournalError> {
        let engine = Engine::start().map_err(|error| place.failed("start a runtime for", error))?;
        let keeper = Arc::new(Self::new(place, identity, epoch, holder, engine));
        keeper.renewed(sent);
        let renewing = keeper.engine.handle().spawn(keeper.clone().renew());
        Ok(Lease { keeper, renewing })
    }

    /// A connection for what is written under this lease.
    pub async fn session(&self) -> Result<Session, Trouble> {
        Session::open(&self.place, &session_name(&self.holder), self.place.lease).await
    }

    /// Whether the lease can still be relied on.
    pub fn is_held(&self) -> bool {
        now_ns() < self.deadline_ns.load(SeqCst)
    }

    fn renewed(&self, sent: u64) {
        let lease = self.place.lease.as_nanos() as u64;
        self.deadline_ns.store(sent + lease - lease / 10, SeqCst);
    }

    fn left(&self) -> Duration {
        Duration::from_nanos(self.deadline_ns.load(SeqCst).saturating_sub(now_ns()))
    }

    /// Renews until that fails for good. A third of the lease is between two renewals.
    async fn renew(self: Arc<Self>) {
        let (third, millis) = (self.place.lease / 3, self.place.lease.as_millis() as i64);
        let (mut session, mut tries) = (None, 0);
        let mut looked = Instant::now();
        let mut why = "this process was stopped for too long".to_owned();
        let mut wait = third;
        loop {
            tokio::time::sleep(wait.min(self.left())).await;
            let left = self.left();
            if left.is_zero() {
                return self.ended(JournalError::LeaseLost { place: self.place.to_string(), why });
            }
            let sent = now_ns();
            let renew = async {
                if session.is_none() {
                    session = Some(self.session().await?);
                }
                let Some(session) = &mut session else { return Ok(0) };
                session.execute(RENEW, &[&(self.epoch as i64), &self.holder, &millis]).await
            };
            match tokio::time::timeout(left.min(third), renew).await {
                Ok(Ok(0)) => {
                    let error = self.fenced_now(session.as_mut()).await;
                    return self.ended(error);
                }
                Ok(Ok(_)) => {
                    self.renewed(sent);
                    if looked.elapsed() >= LOOK_INTERVAL {
                        looked = Instant::now();
                        self.look(&mut session).await;
                    }
                    (tries, wait) = (0, third.saturating_sub(Duration::from_nanos(now_ns() - sent)));
                    continue;
                }
                Ok(Err(trouble)) => why = trouble.to_string(),
                Err(_) => why = format!("no answer within {:?}", left.min(third)),
            }
            tracing::warn!(place = %self.place, why, "the lease of the journal could not be renewed; trying again");
            (session, wait) = (None, pause(tries));
            tries += 1;
        }
    }

    /// Looks where the hubs are; the session is used no more if that failed.
    async fn look(&self, session: &mut Option<Session>) {
        let own = lock(&self.own).clone();
        let Some(mut open) = session.take() else { return };
        match tokio::time::timeout(self.left().min(self.place.lease / 3), hubs::exchange(&mut open, &own)).await {
            Ok(Ok(all)) => self.found(all),
            Ok(Err(Trouble::Refused(_, why))) => tracing::debug!(why, "where the hubs are cannot be read"),
            Ok(Err(Trouble::Lost(_))) | Err(_) => return,
        }
        *session = Some(open);
    }

    fn found(&self, all: Vec<SocketAddr>) {
        self.hubs.send_if_modified(|known| {
            let is_news = *known != all;
            *known = all;
            is_news
        });
    }

    /// Renews once, to be certain that what was committed before is as durable as a commit is, and that nobody took over.
    pub async fn confirm(&self, session: &mut Session) -> Result<bool, Trouble> {
        let millis = self.place.lease.as_millis() as i64;
        Ok(session.execute(RENEW, &[&(self.epoch as i64), &self.holder, &millis]).await? > 0)
    }

    /// That another hub has taken over: the epoch is the least that it can have.
    pub fn fenced(&self) -> JournalError {
        JournalError::Fenced { found: self.epoch + 1, given: self.epoch }
    }

    async fn fenced_now(&self, session: Option<&mut Session>) -> JournalError {
        let Some(session) = session else { return self.fenced() };
        let found = session.rows(LOOK, &[]).await.ok().and_then(|rows| rows.first().map(|row| row.get::<_, i64>(0)));
        JournalError::Fenced { found: found.map_or(self.epoch + 1, |epoch| epoch as u64), given: self.epoch }
    }

    fn ended(&self, error: JournalError) {
        let mut end = lock(&self.end);
        if let End::NotYet(on_end) = &mut *end {
            match on_end.take() {
                Some(on_end) => {
                    *end = End::Ended(None);
                    drop(end);
                    on_end(error);
                }
                None => *end = End::Ended(Some(error)),
            }
        }
        self.over.send_replace(true);
    }

    /// Does something as long as the lease has not ended: `None` if it did before.
    pub async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut over = self.over.subscribe();
        tokio::select! {
            done = work => Some(done),
            _ = over.wait_for(|over| *over) => None,
        }
    }

    /// Has this called when the lease has ended, at once if it has.
    pub fn on_end(&self, call: OnEnd) {
        let mut end = lock(&self.end);
        match &mut *end {
            End::NotYet(on_end) => *on_end = Some(call),
            End::Ended(error) => {
                let error = error.take();
                drop(end);
                if let Some(error) = error {
                    call(error);
                }
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
        if !self.keeper.is_held() || matches!(&*lock(&self.keeper.end), End::Ended(_)) {
            return;
        }
        let keeper = self.keeper.clone();
        let release = async move {
            let release = async {
                let mut session = keeper.session().await?;
                session.execute(RELEASE, &[&(keeper.epoch as i64), &keeper.holder]).await
            };
            tokio::time::timeout(RELEASE_LIMIT, release).await
        };
        match self.keeper.engine.wait(release) {
            Some(Ok(Ok(_))) => {}
            // Then a standby waits for its end.
            _ => tracing::warn!(place = %self.keeper.place, "the lease of the journal could not be given back"),
        }
    }
}
