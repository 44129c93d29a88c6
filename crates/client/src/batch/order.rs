//! Which tasks of a job come after which, and under which numbers the hub has those that it was given: it numbers tasks as they come,
//! and one is given to it when all that it comes after have ended well. Each task costs a few words, each edge one, and each end as
//! many steps as tasks come directly after that one.
//!
//! Pure: what happens is written down by the [`job`](super::job), and told here in the same order by the next daemon.

use std::collections::VecDeque;

/// No number.
const NONE: u32 = u32::MAX;

/// The tasks of a job in which some come after others.
#[derive(Debug)]
pub struct Order {
    tasks: Vec<Node>,
    /// Those that come directly after task n are `later[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    later: Vec<u32>,
    /// In the order in which they became ready.
    ready: VecDeque<u32>,
    /// By their numbers at the hub.
    handed: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node {
    /// How many of those that it comes after have not ended well.
    unmet: u32,
    /// Its last number at the hub.
    number: u32,
    /// It has ended, or will never run.
    is_over: bool,
}

/// A task that will never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Which.
    pub index: u32,
    /// The one directly before it that did not end well.
    pub because: u32,
}

impl Order {
    /// Of so many tasks. `edges`: a task, and one that comes after it.
    pub fn new(tasks: u32, edges: &[(u32, u32)]) -> Self {
        let mut nodes = vec![Node { unmet: 0, number: NONE, is_over: false }; tasks as usize];
        let mut starts = vec![0; tasks as usize + 1];
        for (before, after) in edges {
            assert!(before < after && *after < tasks, "a task comes after earlier ones");
            starts[*before as usize + 1] += 1;
            nodes[*after as usize].unmet += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let (mut next, mut later) = (starts.clone(), vec![0; edges.len()]);
        for (before, after) in edges {
            let at = &mut next[*before as usize];
            later[*at as usize] = *after;
            *at += 1;
        }
        let ready = (0..tasks).filter(|index| nodes[*index as usize].unmet == 0).collect();
        Self { tasks: nodes, starts, later, ready, handed: Vec::new() }
    }

    /// The next tasks that can be handed over, at most so many.
    pub fn next(&self, most: usize) -> Vec<u32> {
        self.ready.iter().copied().filter(|index| self.tasks[*index as usize].is_waiting()).take(most).collect()
    }

    /// These are handed over, and have the next numbers.
    pub fn handed_over(&mut self, indices: &[u32]) {
        for index in indices {
            if let Some(task) = self.tasks.get_mut(*index as usize) {
                task.number = self.handed.len() as u32;
            }
            self.handed.push(*index);
        }
        // They were the first.
        while self.ready.front().is_some_and(|index| !self.tasks[*index as usize].is_waiting()) {
            self.ready.pop_front();
        }
    }

    /// How many numbers tasks have been given.
    pub fn count(&self) -> u32 {
        self.handed.len() as u32
    }

    /// The task with this number; `None`: there is none, or it was handed over again since.
    pub fn index_of(&self, number: u32) -> Option<u32> {
        let index = *self.handed.get(number as usize)?;
        (self.number_of(index) == Some(number)).then_some(index)
    }

    /// A task's number; `None`: it is not handed over.
    pub fn number_of(&self, index: u32) -> Option<u32> {
        self.tasks.get(index as usize).map(|task| task.number).filter(|number| *number != NONE)
    }

    /// What came of a task is not used: it is to be handed over again.
    pub fn again(&mut self, index: u32) {
        if let Some(task) = self.tasks.get_mut(index as usize).filter(|task| !task.is_over) {
            task.number = NONE;
            self.ready.push_back(index);
        }
    }

    /// A task has ended. Gives those that will therefore never run.
    pub fn ended(&mut self, index: u32, is_good: bool) -> Vec<Lost> {
        let mut lost = Vec::new();
        let Some(task) = self.tasks.get_mut(index as usize).filter(|task| !task.is_over) else { return lost };
        task.is_over = true;
        if is_good {
            for at in self.directly_after(index) {
                let after = self.later[at];
                let task = &mut self.tasks[after as usize];
                task.unmet -= 1;
                if task.unmet == 0 && task.is_waiting() {
                    self.ready.push_back(after);
                }
            }
            return lost;
        }
        let (mut because, mut seen) = (index, 0);
        loop {
            for at in self.directly_after(because) {
                let index = self.later[at];
                if !std::mem::replace(&mut self.tasks[index as usize].is_over, true) {
                    lost.push(Lost { index, because });
                }
            }
            let Some(next) = lost.get(seen) else { return lost };
            (because, seen) = (next.index, seen + 1);
        }
    }

    fn directly_after(&self, index: u32) -> std::ops::Range<usize> {
        self.starts[index as usize] as usize..self.starts[index as usize + 1] as usize
    }
}

impl Node {
    /// Nobody has it, and somebody is to have it.
    fn is_waiting(&self) -> bool {
        self.number == NONE && !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 and 2 come after 0, 3 after both.
    fn diamond() -> Order {
        Order::new(4, &[(0, 1), (0, 2), (1, 3), (2, 3)])
    }

    fn hand_over(order: &mut Order, most: usize) -> Vec<u32> {
        let next = order.next(most);
        order.handed_over(&next);
        next
    }

    #[test]
    fn tasks_are_ready_when_all_before_them_have_ended_well() {
        let mut order = diamond();
        assert_eq!((hand_over(&mut order, 9), hand_over(&mut order, 9)), (vec![0], vec![]));
        assert_eq!(order.ended(0, true), []);
        assert_eq!(order.ended(0, true), [], "an end counts once");
        assert_eq!((order.next(1), order.next(9)), (vec![1], vec![1, 2]), "nothing is handed over by looking");
        assert_eq!((hand_over(&mut order, 1), hand_over(&mut order, 9)), (vec![1], vec![2]));
        order.ended(2, true);
        assert_eq!(order.next(9), Vec::<u32>::new());
        order.ended(1, true);
        assert_eq!(hand_over(&mut order, 9), [3]);
    }

    #[test]
    fn what_comes_after_a_failure_never_runs() {
        let mut order = Order::new(6, &[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]);
        assert_eq!(hand_over(&mut order, 9), [0, 5]);
        order.ended(0, true);
        assert_eq!(hand_over(&mut order, 9), [1, 2]);
        let lost = |index, because| Lost { index, because };
        assert_eq!(order.ended(2, false), [lost(3, 2), lost(4, 3)]);
        assert_eq!((order.ended(1, true), order.ended(3, false)), (vec![], vec![]), "each is lost once");
        assert_eq!((order.next(9), order.ended(5, false)), (vec![], vec![]));
    }

    #[test]
    fn numbers_are_translated_both_ways() {
        let mut order = diamond();
        order.handed_over(&[0]);
        order.ended(0, true);
        order.handed_over(&[2, 1]);
        assert_eq!([0, 1, 2, 3].map(|number| order.index_of(number)), [Some(0), Some(2), Some(1), None]);
        assert_eq!([0, 1, 2, 3, 4].map(|index| order.number_of(index)), [Some(0), Some(2), Some(1), None, None]);
        // The result of 2 is not used: what has its number at the hub is of no interest any more.
        order.again(2);
        assert_eq!((order.index_of(1), order.number_of(2), order.next(9)), (None, None, vec![2]));
        assert_eq!((hand_over(&mut order, 9), order.index_of(1), order.index_of(3)), (vec![2], None, Some(2)));
        order.ended(2, true);
        order.again(2);
        assert_eq!((order.next(9), order.count()), (vec![], 4), "what has ended stays so");
    }

    #[test]
    fn long_chains_and_wide_fans() {
        const MANY: u32 = 100_000;
        let chain: Vec<(u32, u32)> = (1..MANY).map(|index| (index - 1, index)).collect();
        let mut order = Order::new(MANY, &chain);
        for index in 0..MANY / 2 {
            assert_eq!(hand_over(&mut order, 1024), [index]);
            order.ended(index, true);
        }
        assert_eq!(order.ended(MANY / 2, false).len() as u32, MANY / 2 - 1);
        let fan: Vec<(u32, u32)> = (1..MANY - 1).flat_map(|index| [(0, index), (index, MANY - 1)]).collect();
        let mut order = Order::new(MANY, &fan);
        hand_over(&mut order, 1);
        order.ended(0, true);
        assert_eq!(hand_over(&mut order, MANY as usize).len() as u32, MANY - 2);
        assert!((1..MANY - 1).all(|index| order.next(1).is_empty() && order.ended(index, true).is_empty()));
        assert_eq!(hand_over(&mut order, 1024), [MANY - 1]);
    }
}
