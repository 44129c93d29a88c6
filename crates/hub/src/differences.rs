//! Results on their way to a far client: each object as its difference from what the client has at its path, and what that has, too,
//! not at all.
//!
//! The client has the file that its binding names, unless it changed since: then it asks for what it lacks.

use crate::session::ClientSession;
use base::codec::Encode;
use base::{Action, Binding, Change, Content, Digest, Recipe, TreePath, ViewId};
use bytes::Bytes;
use prost::Message;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use wire::message::{Exited, Object, OutputKind, TaskOutput};
use wire::patch::Version;

/// Objects whose ancestors are remembered for one task; others go whole.
const OBJECTS_MAX: usize = 65_536;
/// Bytes of recipes that are read for one task: a result may name a large one again and again.
const RECIPES_BYTES_MAX: usize = 64 << 20;

/// The results of one task.
pub struct Differences {
    client: Arc<ClientSession>,
    view: ViewId,
    /// By the name of a new content: what the client has at its path.
    before: HashMap<Digest, (Content, u64)>,
    /// By the name of a new block: the client's blocks that it is like.
    like: HashMap<Digest, Vec<Digest>>,
    /// Blocks that the client has.
    known: HashSet<Digest>,
    /// Bytes of recipes that were read.
    read: usize,
}

/// What becomes of a frame.
pub enum Packed {
    /// It goes as it came.
    AsItCame,
    /// This goes instead.
    Instead(Bytes),
    /// Nothing goes.
    Nothing,
}

impl Differences {
    /// Of a task of `client` that was launched with `view`.
    pub fn new(client: Arc<ClientSession>, view: ViewId) -> Self {
        let (before, like, known, read) = Default::default();
        Self { client, view, before, like, known, read }
    }

    /// Makes the objects of a frame differences. Takes as long as packing takes.
    pub fn pack(&mut self, output: &TaskOutput) -> Packed {
        let packed = match &output.kind {
            Some(OutputKind::Exited(exited)) => OutputKind::Exited(Box::new(self.exited(exited))),
            Some(OutputKind::Object(object)) => {
                self.learn(object);
                match self.object(object) {
                    Some(packed) => OutputKind::Object(packed),
                    None => return Packed::Nothing,
                }
            }
            _ => return Packed::AsItCame,
        };
        Packed::Instead(TaskOutput::from(packed).encode_to_vec().into())
    }

    fn exited(&mut self, exited: &Exited) -> Exited {
        for change in &exited.changes {
            // What is malformed is for the client to say.
            let Ok(Change { path, action: Action::File { content, .. }, .. }) = change.clone().try_into() else {
                continue;
            };
            self.note(&path, content);
        }
        for object in &exited.objects {
            self.learn(object);
        }
        let objects = exited.objects.iter().filter_map(|object| self.object(object)).collect();
        Exited { objects, ..exited.clone() }
    }

    /// Notes that there will be this content at a path.
    fn note(&mut self, path: &TreePath, content: Content) {
        let Some(name) = content.name() else { return };
        if self.before.len() >= OBJECTS_MAX || self.before.contains_key(&name) {
            return;
        }
        let Some(bound) = self.client.binding(self.view, path) else { return };
        let Binding::File { attr, content: before, .. } = &bound.binding else { return };
        let Some(old) = self.version(before, attr.size) else { return };
        self.before.insert(name, (*before, attr.size));
        if let Content::Block(_) = content {
            self.like.insert(name, old.ancestors(&Version::of_block(name, attr.size), 0));
        }
    }

    /// Learns from a recipe, if this is one, what its blocks are like.
    fn learn(&mut self, object: &Object) {
        let Some(name) = Digest::from_slice(&object.digest) else { return };
        let Some((before, size)) = self.before.get(&name).copied() else { return };
        let Ok(recipe) = Recipe::from_bytes(&object.bytes) else { return };
        let Some(old) = self.version(&before, size) else { return };
        if let Content::Recipe(before) = before {
            self.like.insert(name, vec![before]);
        }
        let new = Version::new(&recipe.pieces);
        for (at, block) in new.blocks().enumerate().take(OBJECTS_MAX.saturating_sub(self.like.len())) {
            if old.has(&block) {
                self.known.insert(block);
            } else {
                self.like.insert(block, old.ancestors(&new, at));
            }
        }
    }

    /// What goes of an object; `None`: the client has it.
    fn object(&self, object: &Object) -> Option<Object> {
        let Some(name) = Digest::from_slice(&object.digest) else { return Some(object.clone()) };
        if self.known.contains(&name) {
            return None;
        }
        let like = self.like.get(&name).map(Vec::as_slice).unwrap_or_default();
        let like = like.iter().map(|name| Some((*name, self.client.held(name)?)));
        let like: Vec<(Digest, Bytes)> = like.collect::<Option<_>>().unwrap_or_default();
        Some(Object::like(name, object.bytes.clone(), &like))
    }

    fn version(&mut self, content: &Content, size: u64) -> Option<Version> {
        match content {
            Content::Block(name) => Some(Version::of_block(*name, size)),
            Content::Recipe(_) if self.read >= RECIPES_BYTES_MAX => None,
            Content::Recipe(name) => {
                let bytes = self.client.held(name)?;
                self.read += bytes.len();
                Some(Version::new(&Recipe::from_bytes(&bytes).ok()?.pieces))
            }
            Content::Empty | Content::Lazy(_) | Content::Unreadable(_) => None,
        }
    }
}
