//! Whether what a result rests on is what its task was to be told of a view.

use super::View;
use super::table::NotBound;
use base::{Listed, Version};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::lock;

/// A view that is held: a task is to be told of it, or a result is to come that rests on it. What it said meanwhile is remembered.
#[derive(Debug)]
pub struct Held(Arc<View>);

impl Drop for Held {
    fn drop(&mut self) {
        let is_last = self.0.holds.fetch_sub(1, Ordering::SeqCst) == 1;
        // Whoever looks at the view now holds it, and will come here as well.
        if is_last && let Ok(mut table) = self.0.table.try_lock() {
            // A task that has come meanwhile is told of the view as it is now: what is past before that is of no use to it.
            if self.0.holds.load(Ordering::SeqCst) == 0 {
                table.forget_past();
            }
        }
    }
}

impl View {
    /// Holds the view until this is dropped.
    pub fn hold(self: &Arc<Self>) -> Arc<Held> {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Arc::new(Held(self.clone()))
    }

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

#[cfg(test)]
mod tests {
    use super::super::Views;
    use super::super::closure::disk;
    use super::super::tests::{key, launch, root_of, snapshot};
    use super::*;
    use crate::policy::Open;
    use base::{Bound, Digest, Mark, Seq, Time};
    use std::fs;

    /// What a worker lists that was told this.
    fn listed(bounds: &[&Bound]) -> Listed {
        Listed::of(bounds.iter().map(|bound| (bound.seq.0, Mark::of(bound).0)).collect())
    }

    #[test]
    fn a_binding_counts_while_it_is_so_and_for_who_was_launched_then() {
        let folder = tempfile::tempdir().unwrap();
        let file = root_of(&folder).join(b"f");
        fs::write(disk(&file), b"x").unwrap();
        let views = Views::new(snapshot(), None);
        let view = views.open(&key("/bin/x"), || vec![file.clone()]);
        let first = views.sweep(&view, &launch(Version(0))).unwrap().update;
        let of = |update: &base::ViewUpdate| update.set.iter().find(|bound| bound.path == file).unwrap().clone();
        let before = of(&first);
        let all: Vec<&Bound> = first.set.iter().collect();
        assert_eq!(view.check(&listed(&all), first.version), Ok(()));
        assert_eq!(view.check_now(&listed(&[]), first.version), Some(Ok(())));

        fs::write(disk(&file), b"changed").unwrap();
        let second = views.sweep(&view, &launch(Version(0))).unwrap().update;
        let (now, old) = (of(&second), listed(&[&before]));
        assert_eq!(view.check(&old, first.version), Ok(()), "it was launched before that");
        assert_eq!(view.check(&old, second.version), Err(NotBound::Past(before.seq)), "it was not told of the change");
        assert_eq!(view.check(&listed(&[&before, &now]), first.version), Ok(()), "it has asked again");

        let unknown = Bound { seq: Seq(1 << 40), ..now.clone() };
        assert_eq!(view.check(&listed(&[&unknown]), second.version), Err(NotBound::Unknown(unknown.seq)));
        let forged = Bound { binding: before.binding.clone(), ..now.clone() };
        assert_eq!(view.check(&listed(&[&forged]), second.version), Err(NotBound::Differs));
        let other = Listed::of(vec![(now.seq.0, Digest::of(b"another"))]);
        assert_eq!(view.check(&other, second.version), Err(NotBound::Differs));

        // An answer that is in no step is so for who asks, and no longer.
        let beneath = file.join(b"beneath");
        let answer = views.fault(&view, &beneath, &Open, Time(0)).unwrap().bound;
        assert_eq!(view.check(&listed(&[&answer]), second.version), Ok(()));
        let third = views.sweep(&view, &launch(Version(0))).unwrap().update.version;
        assert_eq!(view.check(&listed(&[&answer]), third), Err(NotBound::Past(answer.seq)));
    }

    #[test]
    fn what_is_past_is_forgotten_when_nobody_holds_the_view() {
        let folder = tempfile::tempdir().unwrap();
        let file = root_of(&folder).join(b"f");
        fs::write(disk(&file), b"x").unwrap();
        let views = Views::new(snapshot(), None);
        let view = views.open(&key("/bin/x"), || vec![file.clone()]);
        let held = [view.hold(), view.hold()];
        let first = views.sweep(&view, &launch(Version(0))).unwrap().update;
        let all: Vec<&Bound> = first.set.iter().collect();
        let of_file = *all.iter().find(|bound| bound.path == file).unwrap();
        fs::write(disk(&file), b"changed").unwrap();
        let second = views.sweep(&view, &launch(Version(0))).unwrap().update;
        let [one, other] = held;
        drop(one);
        assert_eq!(view.check(&listed(&[of_file]), first.version), Ok(()), "a result that rests on it may come");
        drop(other);
        // The folders above it may have changed as well.
        assert!(matches!(view.check(&listed(&all), first.version), Err(NotBound::Unknown(_))));
        let now = listed(&second.set.iter().collect::<Vec<_>>());
        assert_eq!(view.check(&now, second.version), Ok(()), "what is so is known");
    }

    #[test]
    fn what_is_removed_is_past() {
        let folder = tempfile::tempdir().unwrap();
        let gone = root_of(&folder).join(b"gone");
        fs::write(disk(&gone), b"x").unwrap();
        let views = Views::new(snapshot(), None);
        let view = views.open(&key("/bin/x"), || vec![gone.clone()]);
        let first = views.sweep(&view, &launch(Version(0))).unwrap().update;
        let bound = first.set.iter().find(|bound| bound.path == gone).unwrap();
        fs::remove_file(disk(&gone)).unwrap();
        let second = views.sweep(&view, &launch(Version(0))).unwrap().update.version;
        assert_eq!(view.check(&listed(&[bound]), first.version), Ok(()));
        assert_eq!(view.check(&listed(&[bound]), second), Err(NotBound::Past(bound.seq)));
    }
}
