//! Which of the lent processors tasks are to use: `nproc` shows a task as many as it has asked for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use wire::lock;

/// The lent processors.
#[derive(Debug)]
pub struct Cpus(Mutex<Vec<Lent>>);

/// One of them; one may be lent several times.
#[derive(Clone, Copy, Debug)]
struct Lent {
    number: u32,
    tasks: u32,
}

/// Processors taken for a task; given back when dropped.
#[derive(Debug)]
pub struct Share {
    of: Arc<Cpus>,
    /// Their places in the table.
    places: Mutex<Vec<usize>>,
}

impl Cpus {
    /// Those with these numbers.
    pub fn new(numbers: impl IntoIterator<Item = u32>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(numbers.into_iter().map(|number| Lent { number, tasks: 0 }).collect())))
    }

    /// Takes `count` of them: those that the fewest tasks use.
    pub fn take(self: &Arc<Self>, count: u32) -> Share {
        let mut lent = lock(&self.0);
        let mut order: Vec<usize> = (0..lent.len()).collect();
        order.sort_by_key(|at| lent[*at].tasks);
        order.truncate(count.max(1) as usize);
        order.iter().for_each(|at| lent[*at].tasks += 1);
        Share { of: self.clone(), places: Mutex::new(order) }
    }

    /// Their numbers.
    pub fn numbers(&self) -> BTreeSet<u32> {
        lock(&self.0).iter().map(|lent| lent.number).collect()
    }
}

impl Share {
    /// Their numbers.
    pub fn numbers(&self) -> Vec<u32> {
        let (places, lent) = (lock(&self.places), lock(&self.of.0));
        places.iter().map(|at| lent[*at].number).collect()
    }

    /// Has `to` in place of `from` from now on. False: it has none of that number, or there is none to be had.
    pub fn swap(&self, from: u32, to: u32) -> bool {
        let (mut places, mut lent) = (lock(&self.places), lock(&self.of.0));
        let Some(place) = places.iter_mut().find(|at| lent[**at].number == from) else { return false };
        let free = (0..lent.len()).filter(|at| lent[*at].number == to).min_by_key(|at| lent[*at].tasks);
        let Some(free) = free else { return false };
        lent[*place].tasks -= 1;
        lent[free].tasks += 1;
        *place = free;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let (places, mut lent) = (lock(&self.places), lock(&self.of.0));
        places.iter().for_each(|at| lent[*at].tasks -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_taken_that_the_fewest_tasks_use() {
        let cpus = Cpus::new([4, 5, 7]);
        let first = cpus.take(2);
        let second = cpus.take(1);
        assert_eq!((first.numbers(), second.numbers()), (vec![4, 5], vec![7]));
        drop(first);
        assert_eq!(cpus.take(9).numbers(), [4, 5, 7]);
        assert_eq!(cpus.take(0).numbers(), [4]);
    }

    #[test]
    fn one_is_exchanged_for_another() {
        let cpus = Cpus::new([0, 1]);
        let (first, second) = (cpus.take(1), cpus.take(1));
        assert!(first.swap(0, 1) && !first.swap(0, 1) && !first.swap(1, 9));
        assert_eq!((first.numbers(), second.numbers()), (vec![1], vec![1]));
        assert_eq!(cpus.take(1).numbers(), [0], "nobody uses it any more");
        drop((first, second));
        assert!(lock(&cpus.0).iter().all(|lent| lent.tasks == 0));
    }
}
