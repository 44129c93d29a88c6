//! A task's results as they arrive: whole, as their difference from what is here, or not at all where that is here, too. What is not
//! here any more is asked for.

use crate::serve::Server;
use crate::spool::{BESIDE_FILE_BYTES, Spool};
use base::delta::FileChange;
use base::{Content, Digest, Recipe};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use wire::Connection;
use wire::message::{Change, Object, ObjectReply, ObjectsRequest, OpenKind, digest_bytes};

/// How long the hub may take for each object that is asked for.
const OBJECT_LIMIT: Duration = Duration::from_secs(20);
/// Objects asked for at once.
const BATCH: usize = 256;

/// The results of one task so far.
pub struct Arrivals {
    spool: Spool,
    server: Arc<Server>,
    connection: Connection,
    is_announced: bool,
}

impl Arrivals {
    /// None yet. They are kept in `spool`.
    pub fn new(spool: Spool, server: Arc<Server>, connection: Connection) -> Self {
        Self { spool, server, connection, is_announced: false }
    }

    /// The files that these changes make or replace are to come.
    pub fn expect(&mut self, changes: &[Change]) -> Result<(), String> {
        self.is_announced = true;
        let all = changes.iter().filter_map(|change| base::Change::try_from(change.clone()).ok());
        let files: Vec<(Content, u64, FileChange)> = all
            .filter_map(|change| change.action.file().map(|(attr, content, how)| (*content, attr.size, how)))
            .collect();
        let written = files.iter().filter(|(_, _, how)| *how == FileChange::Written);
        self.spool.expect(written.map(|(content, size, _)| (*content, *size))).map_err(|error| error.to_string())?;
        let others = files.iter().filter(|(_, _, how)| *how != FileChange::Written);
        others.for_each(|(_, size, _)| self.spool.allow(size.saturating_add(BESIDE_FILE_BYTES)));
        Ok(())
    }

    /// Whether an object is here.
    pub fn has(&self, object: &Object) -> bool {
        Digest::from_slice(&object.digest).is_some_and(|digest| self.spool.has(&digest))
    }

    /// Takes an object. The error is for a person.
    pub fn take(&mut self, object: &Object) -> Result<(), String> {
        let digest = Digest::from_slice(&object.digest).ok_or("a result has a name that is none")?;
        let snapshot = self.server.views().snapshot();
        let whole = object.whole(|name| snapshot.read_block(name).ok().flatten()).map_err(|error| error.to_string())?;
        match whole {
            Some(bytes) => self.spool.put(digest, &bytes).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// All that these changes need, now that the last has come.
    pub async fn finish(mut self, changes: &[Change]) -> Result<Spool, String> {
        if !self.is_announced {
            self.expect(changes)?;
        }
        let contents: Vec<Content> = changes.iter().filter_map(content).collect();
        // Recipes first: they say what else is needed.
        self.complete(contents.iter().filter_map(Content::name)).await?;
        let recipes = contents.iter().filter(|content| matches!(content, Content::Recipe(_)));
        // One that is malformed is for the commit to refuse.
        let recipes: Vec<Recipe> = recipes.filter_map(|content| self.spool.recipe(content).ok()).collect();
        self.complete(recipes.iter().flat_map(|recipe| &recipe.pieces).filter_map(|piece| piece.block)).await?;
        Ok(self.spool)
    }

    /// Has these objects come, too.
    pub async fn fetch(&mut self, names: &[Digest]) -> Result<(), String> {
        self.complete(names.iter().copied()).await
    }

    /// What has come.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Gets what did not come: from here, else from the hub.
    async fn complete(&mut self, names: impl Iterator<Item = Digest>) -> Result<(), String> {
        let mut missing = HashSet::new();
        for name in names {
            if self.spool.has(&name) {
                continue;
            }
            match self.server.views().snapshot().read_block(&name) {
                Ok(Some(bytes)) => self.spool.put(name, &bytes).map_err(|error| error.to_string())?,
                Ok(None) | Err(_) => drop(missing.insert(name)),
            }
        }
        let missing: Vec<Digest> = missing.into_iter().collect();
        for names in missing.chunks(BATCH) {
            self.ask(names).await?;
        }
        Ok(())
    }

    async fn ask(&mut self, names: &[Digest]) -> Result<(), String> {
        let request = ObjectsRequest { digests: names.iter().map(digest_bytes).collect(), ..ObjectsRequest::default() };
        let late = |_| format!("the hub did not send a result again within {} s", OBJECT_LIMIT.as_secs());
        let asked = self.connection.ask(OpenKind::Objects(request)).await;
        let mut replies = asked.map_err(|error| error.to_string())?;
        for _ in names {
            let reply = tokio::time::timeout(OBJECT_LIMIT, replies.next::<ObjectReply>()).await.map_err(late)?;
            let reply = reply.map_err(|error| error.to_string())?.ok_or("the hub did not send all results again")?;
            if !reply.error.is_empty() {
                return Err(reply.error);
            }
            let digest = Digest::from_slice(&reply.digest).ok_or("a result has a name that is none")?;
            self.spool.put(digest, &reply.bytes).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// What a change says of a file's content.
fn content(change: &Change) -> Option<Content> {
    let change = base::Change::try_from(change.clone()).ok()?;
    change.action.file().map(|(_, content, _)| *content)
}
