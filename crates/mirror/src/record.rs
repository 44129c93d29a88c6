//! The record of what the kernel was told, and its end: by invalidation, by the kernel's own forgetting, with a lane.

use crate::answer::LaneNumber;
use crate::lane::Told;
use crate::lanes::Lanes;
use crate::node::{Node, NodeId};

impl Lanes {
    /// The kernel has `count` references less to `node`.
    pub fn forget(&mut self, node: NodeId, count: u64) {
        match self.nodes.all_mut(node) {
            Some(Node::File(file)) => {
                file.lookups = file.lookups.saturating_sub(count);
                if file.lookups == 0 {
                    self.nodes.remove(node);
                }
            }
            Some(Node::Dir(dir)) => {
                dir.lookups = dir.lookups.saturating_sub(count);
                if dir.lookups == 0 {
                    self.forgotten_directory(node);
                }
            }
            None => {}
        }
    }

    /// Records what the kernel is told of a name.
    pub(crate) fn tell(&mut self, parent: NodeId, name: &[u8], told: Told) {
        let dir = self.nodes.dir_mut(parent).expect("the caller found the directory");
        let number = dir.lane;
        // No allocation when the name was told before.
        let before = match dir.told.get_mut(name) {
            Some(held) => Some(std::mem::replace(held, told)),
            None => dir.told.insert(name.into(), told),
        };
        if before != Some(told) {
            self.held_before(number, before.and_then(|before| before.by()));
        }
        match (before, told) {
            (None, _) => {
                self.names += 1;
                if let Some(lane) = self.lanes.get_mut(&number) {
                    lane.names += 1;
                }
            }
            (Some(Told::Node { node: old, .. }), Told::Node { node, .. }) if old == node => {}
            (Some(Told::Node { node: old, .. }), _) => self.detach(old),
            _ => {}
        }
    }

    /// The kernel has no reference to a directory any more.
    fn forgotten_directory(&mut self, node: NodeId) {
        let Some(dir) = self.nodes.dir(node) else { return };
        if !dir.attached {
            self.nodes.remove(node);
            return;
        }
        match self.lanes.get_mut(&dir.lane) {
            Some(lane) if lane.root == node => {}
            // What running tasks saw stays on record until they end.
            Some(lane) if !lane.is_idle() => lane.forgotten = true,
            _ => self.prune(node),
        }
    }

    /// Removes the directories that the kernel has forgotten.
    pub(crate) fn sweep(&mut self, lane: LaneNumber) {
        let Some(lane) = self.lanes.get(&lane) else { return };
        let unused = |id: &&NodeId| **id != lane.root && self.nodes.dir(**id).is_some_and(|dir| dir.lookups == 0);
        let unused: Vec<NodeId> = lane.dirs.values().filter(unused).copied().collect();
        for id in unused {
            self.prune(id);
        }
    }

    /// Removes a directory that the kernel has forgotten, and its name.
    fn prune(&mut self, id: NodeId) {
        let Some(dir) = self.nodes.dir(id).filter(|dir| dir.attached) else { return };
        let (number, path) = (dir.lane, dir.path.clone());
        let parent = path.parent().and_then(|parent| self.lanes.get(&number)?.dirs.get(&parent).copied());
        if let Some(parent) = parent {
            self.untell(parent, path.name());
        }
        self.detach(id);
    }

    /// Removes the record of a name; a directory of that name is detached.
    pub(crate) fn untell(&mut self, parent: NodeId, name: &[u8]) {
        let Some(dir) = self.nodes.dir_mut(parent) else { return };
        let number = dir.lane;
        let Some(told) = dir.told.remove(name) else { return };
        self.names -= 1;
        self.held_before(number, told.by());
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.names -= 1;
        }
        if let Told::Node { node, .. } = told {
            self.detach(node);
        }
    }

    /// Takes a directory with all beneath out of its lane: its nodes wait for the kernel to forget them, and are never
    /// shown again.
    pub(crate) fn detach(&mut self, top: NodeId) {
        let mut rest = vec![top];
        while let Some(id) = rest.pop() {
            let Some(dir) = self.nodes.dir_mut(id).filter(|dir| dir.attached) else { continue };
            dir.attached = false;
            let told = std::mem::take(&mut dir.told);
            let unreferenced = dir.lookups == 0;
            self.names -= told.len();
            let (number, path, by) = (dir.lane, dir.path.clone(), dir.by.take());
            self.held_before(number, by.into_iter().chain(told.values().filter_map(Told::by)));
            if let Some(lane) = self.lanes.get_mut(&number) {
                lane.names -= told.len();
                lane.dirs.remove(&path);
            }
            rest.extend(told.values().filter_map(|told| match told {
                Told::Node { node, .. } => Some(*node),
                _ => None,
            }));
            if unreferenced {
                self.nodes.remove(id);
            }
        }
    }
}
