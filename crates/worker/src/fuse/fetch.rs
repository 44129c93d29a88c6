//! What the mirror asks of the rest of the worker, when the kernel asks for what is not known here.

use base::{Bound, Content, Digest, Recipe, Seq, TaskId, TreePath, ViewId};
use rustix::io::Errno;
use std::sync::Arc;

/// The answer that nobody could be asked. The kernel is told `EIO`.
pub const UNANSWERED: Errno = Errno::NOLINK;

/// Takes the answer to one question, on any thread, at once or later. Dropped unused, it counts as `EIO`.
pub type Done<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

/// A source of bindings, listings, recipes and bytes. Nothing here may block but [`Fetch::read_now`], and that only on a
/// local disk: it runs on the threads that answer the kernel.
pub trait Fetch: Send + Sync {
    /// Asks what `path` is, for a task that uses the lane; from then on it is in the view. The answer has `path`, and may
    /// have others that will be wanted.
    fn bind(&self, view: ViewId, task: TaskId, path: &TreePath, done: Done<Vec<Bound>>);

    /// Asks for an encoded listing or recipe. The mirror checks the digest.
    fn blob(&self, digest: Digest, done: Done<Vec<u8>>);

    /// Appends exactly `len` bytes of `file` from `offset` to `out`, if they are in the local store; else returns false
    /// and leaves `out` as it was. The range lies within the file.
    fn read_now(&self, file: &FileSource, offset: u64, len: usize, out: &mut Vec<u8>) -> bool;

    /// Asks for exactly `len` bytes of `file` from `offset`. Any other number is an error of the answer.
    fn read(&self, file: &FileSource, offset: u64, len: usize, done: Done<Vec<u8>>);
}

/// A file whose bytes are wanted.
#[derive(Clone, Debug)]
pub struct FileSource {
    /// A view that has it.
    pub view: ViewId,
    /// A path of it in that view: for bytes that must be asked of the client, and for messages.
    pub path: TreePath,
    /// The binding of that path.
    pub seq: Seq,
    /// What it is: [`Content::Block`], [`Content::Recipe`] or [`Content::Lazy`].
    pub content: Content,
    /// Its length in bytes.
    pub size: u64,
    /// Its pieces, if it is a recipe.
    pub recipe: Option<Arc<Recipe>>,
}
