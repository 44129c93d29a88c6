//! What a launch printed and changed, gathered at the hub: kept in the block store, and named in the result.

use super::faults::Trouble;
use crate::session::ClientSession;
use base::codec::{Encode, Writer};
use base::{Digest, Recipe};
use bytes::Bytes;
use prost::Message;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Pin;
use wire::message::work::{LaunchResult, OUTPUT_BYTES_MAX};
use wire::message::{Change, Exited, Failed, FailedKind, Object, OutputKind, digest_bytes};

/// Output is kept in blocks of so many bytes, wherever the worker cut it: equal output has equal names.
const BLOCK_BYTES: usize = 256 << 10;
/// A larger list of changes is an object of its own.
const INLINE_BYTES: usize = 32 << 10;
/// Most contents that one result names, and most pieces of files that are looked at for these: many may be the same.
const NAMES_MAX: usize = 1_000_000;
const PIECES_MAX: usize = 4 * NAMES_MAX;
/// An account's results that wait to be taken have this part of the block store before another one comes: one in so many; and with that
/// one twice as much.
const STORE_SHARE: u64 = 4;
/// How long a launch waits at its place until there is room for what comes of it, and from one look to the next.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(600);
const ROOM_LOOK: Duration = Duration::from_millis(200);
/// The content of a change that is named by a recipe: see [`Change::content`].
const RECIPE: u32 = 2;

/// What came of a launch.
pub struct Outcome {
    /// Exit code, or 256 and the signal.
    pub status: u32,
    /// Equal for launches that printed and changed the same.
    pub digest: Digest,
    /// Processor time, in milliseconds.
    pub cost_ms: u32,
    /// For the client.
    pub result: LaunchResult,
    /// Keeps the contents that the result names.
    pub pin: Pin,
}

/// Processor time that a launch took, in milliseconds.
pub(crate) fn cost_ms(exited: &Exited) -> u32 {
    (exited.user_us.saturating_add(exited.system_us) / 1_000).clamp(1, u32::MAX.into()) as u32
}

/// One stream of output.
#[derive(Default)]
struct Printed {
    names: Vec<Digest>,
    open: Vec<u8>,
    bytes: u64,
}

/// What has come so far.
pub struct Gathered<'a> {
    client: &'a Arc<ClientSession>,
    printed: [Printed; 2],
    is_cut: bool,
    exited: Option<Box<Exited>>,
}

impl<'a> Gathered<'a> {
    /// Nothing yet.
    pub fn new(client: &'a Arc<ClientSession>) -> Self {
        Self { client, printed: Default::default(), is_cut: false, exited: None }
    }

    /// More has come.
    pub fn take(&mut self, kind: OutputKind) -> Result<(), Trouble> {
        match kind {
            OutputKind::Stdout(bytes) | OutputKind::Terminal(bytes) => self.print(0, &bytes),
            OutputKind::Stderr(bytes) => self.print(1, &bytes),
            OutputKind::Object(object) => self.keep(&object),
            OutputKind::Exited(exited) => {
                exited.objects.iter().try_for_each(|object| self.keep(object))?;
                self.exited = Some(exited);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn keep(&self, object: &Object) -> Result<(), Trouble> {
        let why = "a part of the result could not be kept at the hub";
        self.client.keep(object).map(drop).ok_or_else(|| FailedKind::Trouble.because(why).into())
    }

    fn put(&self, bytes: &[u8]) -> Result<Digest, Trouble> {
        let failed = |error: store::StoreError| {
            Trouble::elsewhere(FailedKind::Trouble.because(format!("the hub cannot keep output: {error}")))
        };
        self.client.store().put(self.client.tenant, bytes).map_err(failed)
    }

    fn print(&mut self, stream: usize, bytes: &[u8]) -> Result<(), Trouble> {
        let printed = &mut self.printed[stream];
        let room = (OUTPUT_BYTES_MAX - printed.bytes).min(bytes.len() as u64) as usize;
        self.is_cut |= room < bytes.len();
        printed.bytes += room as u64;
        printed.open.extend_from_slice(&bytes[..room]);
        while self.printed[stream].open.len() >= BLOCK_BYTES {
            let rest = self.printed[stream].open.split_off(BLOCK_BYTES);
            let block = std::mem::replace(&mut self.printed[stream].open, rest);
            let name = self.put(&block)?;
            self.printed[stream].names.push(name);
        }
        Ok(())
    }

    /// All has come. Reads from the disk.
    pub fn outcome(mut self, worker: &str) -> Result<Outcome, Trouble> {
        for stream in 0..2 {
            let last = std::mem::take(&mut self.printed[stream].open);
            if !last.is_empty() {
                let name = self.put(&last)?;
                self.printed[stream].names.push(name);
            }
        }
        let none = || FailedKind::Trouble.because("the worker told the end of a task without its status");
        let mut exited = *self.exited.take().ok_or_else(none)?;
        if exited.is_unanswered {
            let why = "its client was gone when the task wanted to know of its files";
            return Err(FailedKind::Cancelled.because(why).into());
        }
        let digest = self.digest(&exited);
        // What was told with it is in the store, or of no use to the client.
        (exited.objects, exited.timeline, exited.faults) = Default::default();
        let status = if exited.signal == 0 { exited.code } else { 256 + exited.signal };
        let too_many = || FailedKind::Trouble.because(format!("its result names more than {NAMES_MAX} contents"));
        let mut held = self.client.named_in(&exited).ok_or_else(too_many)?;
        held.extend(self.printed.iter().flat_map(|printed| &printed.names));
        let cost_ms = cost_ms(&exited);
        let names = |stream: usize| self.printed[stream].names.iter().map(digest_bytes).collect();
        let (stdout, stderr) = (names(0), names(1));
        let mut result =
            LaunchResult { stdout, stderr, is_cut: self.is_cut, worker: worker.into(), ..LaunchResult::default() };
        let encoded = exited.encode_to_vec();
        if encoded.len() > INLINE_BYTES {
            let name = self.put(&encoded)?;
            held.insert(name);
            result.exited_at = digest_bytes(&name);
        } else {
            result.exited = Some(exited);
        }
        let pin = self.client.pin_within_bounds(held)?;
        Ok(Outcome { status, digest, cost_ms, result, pin })
    }

    /// Over all that a task is for: its status, its output, and what it changed but for times.
    fn digest(&self, exited: &Exited) -> Digest {
        let mut out = Writer::default();
        out.u32(exited.code);
        out.u32(exited.signal);
        for printed in &self.printed {
            out.list(&printed.names, |out, name| out.raw(&name.0));
        }
        let mut changes: Vec<&Change> = exited.changes.iter().collect();
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        out.list(&changes, |out, change| write_change(out, change));
        Digest::of(&out.0)
    }
}

fn write_change(out: &mut Writer, change: &Change) {
    for bytes in [&change.path, &change.digest, &change.other] {
        out.bytes(bytes);
    }
    for number in [change.action, change.content, change.how] {
        out.u32(number);
    }
    out.u64(change.appended_from);
    out.option(change.attr.as_ref(), |out, attr| {
        out.u32(attr.mode);
        out.u32(attr.uid);
        out.u32(attr.gid);
        // How long a directory is, is its file system's business.
        out.u64(if change.digest.is_empty() { 0 } else { attr.size });
    });
    out.list(&change.xattrs, |out, bytes| out.bytes(bytes));
}

impl ClientSession {
    /// Keeps the contents that a result names in the store as long as the pin lives. Reads from the disk.
    pub(super) fn pin_result(&self, result: &LaunchResult) -> Pin {
        let printed = result.stdout.iter().chain(&result.stderr).chain([&result.exited_at]);
        let mut names: HashSet<Digest> = printed.filter_map(|name| Digest::from_slice(name)).collect();
        let kept = Digest::from_slice(&result.exited_at).and_then(|name| self.held(&name));
        let kept = kept.and_then(|bytes: Bytes| wire::decode::<Exited>(bytes).ok());
        names.extend(result.exited.iter().chain(&kept).filter_map(|exited| self.named_in(exited)).flatten());
        self.pin(names)
    }

    fn pin(&self, names: HashSet<Digest>) -> Pin {
        self.store().pin(self.tenant, &names.into_iter().collect::<Vec<Digest>>())
    }

    /// Waits until results of this account that wait to be taken leave room for one more, for so long at most.
    pub(super) async fn room_for_result(&self) -> Result<(), Failed> {
        let begun = Instant::now();
        while self.results_fill_share() {
            if begun.elapsed() > ROOM_WAIT_MAX {
                return Err(self.no_room_for_result());
            }
            tokio::time::sleep(ROOM_LOOK).await;
        }
        Ok(())
    }

    /// The same as [`Self::pin`] of a result that has just come. Others may have come meanwhile.
    fn pin_within_bounds(&self, names: HashSet<Digest>) -> Result<Pin, Trouble> {
        let had_room = !self.results_fill_share();
        let pin = self.pin(names);
        if had_room && self.store().pinned_bytes_of(self.tenant) <= 2 * self.share_of_results() {
            return Ok(pin);
        }
        Err(Trouble::elsewhere(self.no_room_for_result()))
    }

    fn no_room_for_result(&self) -> Failed {
        let [kept, most] =
            [self.store().pinned_bytes_of(self.tenant), self.share_of_results()].map(|bytes| bytes >> 20);
        FailedKind::Refused.because(format!(
            "results of this account that wait to be taken have {kept} MiB at the hub, and may have {most}"
        ))
    }

    fn results_fill_share(&self) -> bool {
        self.store().pinned_bytes_of(self.tenant) > self.share_of_results()
    }

    /// Bytes of the store that results of one account have when one more is taken, at most.
    fn share_of_results(&self) -> u64 {
        self.store().bytes_max() / STORE_SHARE
    }

    /// The contents that changes name, those that their recipes name included. `None`: too many. Each recipe is read once, however many
    /// changes name it.
    fn named_in(&self, exited: &Exited) -> Option<HashSet<Digest>> {
        named_in(exited, |name| self.held(name))
    }
}

/// [`ClientSession::named_in`], where `held` finds recipes.
fn named_in(exited: &Exited, held: impl Fn(&Digest) -> Option<Bytes>) -> Option<HashSet<Digest>> {
    let (mut names, mut recipes, mut pieces) = (HashSet::new(), HashSet::new(), 0);
    for change in &exited.changes {
        let Some(name) = Digest::from_slice(&change.digest) else { continue };
        names.insert(name);
        if change.content == RECIPE && recipes.insert(name) {
            let recipe = held(&name).and_then(|bytes| Recipe::from_bytes(&bytes).ok());
            pieces += recipe.as_ref().map_or(0, |recipe| recipe.pieces.len());
            names.extend(recipe.iter().flat_map(|recipe| &recipe.pieces).filter_map(|piece| piece.block));
        }
        if names.len() > NAMES_MAX || pieces > PIECES_MAX {
            return None;
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_apart_but_for_times() {
        let attr = |mtime| wire::message::Attr { mode: 0o644, size: 3, mtime, ..Default::default() };
        let change = |mtime, digest: &[u8]| {
            let mut out = Writer::default();
            let (path, digest) = (b"/a".to_vec(), digest.to_vec());
            write_change(&mut out, &Change { path, digest, attr: Some(attr(mtime)), ..Change::default() });
            out.0
        };
        assert_eq!(change(1, b"x"), change(2, b"x"));
        assert_ne!(change(1, b"x"), change(1, b"y"));
    }

    fn recipe(blocks: std::ops::Range<u32>) -> Bytes {
        let piece = |number: u32| base::Piece { len: 1, block: Some(Digest::of(&number.to_le_bytes())) };
        let pieces: Vec<base::Piece> = blocks.map(piece).collect();
        Bytes::from(Recipe { size: pieces.len() as u64, pieces }.to_bytes())
    }

    #[test]
    fn a_recipe_that_many_changes_name_is_read_once_and_names_are_bounded() {
        let change = |name: Digest| Change { digest: name.0.to_vec(), content: RECIPE, ..Change::default() };
        let all = |names: &[Digest]| Exited {
            changes: names.iter().map(|name| change(*name)).collect(),
            ..Exited::default()
        };
        let one = recipe(0..1_000);
        let (reads, name) = (std::cell::Cell::new(0), Digest::of(&one));
        let names = named_in(&all(&[name; 1_000]), |_| {
            reads.set(reads.get() + 1);
            Some(one.clone())
        });
        assert_eq!((reads.get(), names.map(|names| names.len())), (1, Some(1_001)));
        let other = |number: usize| Digest::of(&number.to_le_bytes());
        let large = recipe(0..500_000);
        let same: Vec<Digest> = (0..8).map(other).collect();
        let count = |names: &[Digest]| named_in(&all(names), |_| Some(large.clone())).map(|names| names.len());
        assert_eq!(count(&same), Some(500_008), "eight files with the same contents");
        assert_eq!(count(&[&same[..], &[other(8)]].concat()), None, "and with more pieces than are looked at");
        let many: Vec<Digest> = (0..NAMES_MAX + 1).map(other).collect();
        assert!(named_in(&all(&many[1..]), |_| None).is_some() && named_in(&all(&many), |_| None).is_none());
    }
}
