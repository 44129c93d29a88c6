//! Whether what a result rests on is what its task was to be told of a view.

use super::View;
use super::table::NotBound;
use base::{Listed, Version};
use wire::lock;

impl View {
    /// Whether these are bindings of the view that a task was to be told which was launched with this version of it. Waits for who looks
    /// at the view.
    ///
    /// # Errors
    /// Which one is not.
    pub fn check(&self, bindings: &Listed, launched: Version) -> Result<(), NotBound> {
        lock(&self.table).check(bindings, launched)
    }

    /// The same at once, unless somebody looks at the view.
    pub fn check_now(&self, bindings: &Listed, launched: Version) -> Option<Result<(), NotBound>> {
        Some(self.table.try_lock().ok()?.check(bindings, launched))
    }
}
