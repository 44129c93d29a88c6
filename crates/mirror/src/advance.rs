//! Taking an idle lane to its view's present version: what the kernel was told is compared with what holds now.
//!
//! Only names on the view's change log are looked at, if it reaches back to the lane's version; otherwise all.

use crate::answer::{Invalidation, LaneNumber};
use crate::evidence::By;
use crate::lane::Told;
use crate::lanes::Lanes;
use crate::node::{self, Node, NodeId, Seen, directory_attr};
use crate::view::Known;
use base::{Binding, Bound, Digest, TreePath};
use std::collections::HashSet;
use std::sync::Arc;

/// What is to become of a name's record.
enum Fate {
    Keep(Told),
    /// The kernel does not hold it.
    Drop,
    Invalidate,
}

impl Lanes {
    /// Makes an idle lane true to its view's head. Returns what the kernel must forget: names whose binding changed, or
    /// is not known any more; directories whose attributes or listing changed; absences that are not proved any more.
    pub(crate) fn advance(&mut self, number: LaneNumber) -> Vec<Invalidation> {
        let Some(lane) = self.lanes.get(&number) else { return Vec::new() };
        let Some(held) = self.views.get(&lane.view) else { return Vec::new() };
        let (version, position) = (held.head.version(), held.head.position());
        let changed: Option<Vec<TreePath>> = held.head.changed_from(lane.position).map(|paths| {
            let mut seen = HashSet::new();
            paths.filter(|path| seen.insert(*path)).cloned().collect()
        });
        let lane = self.lanes.get_mut(&number).expect("found above");
        (lane.version, lane.position) = (version, position);
        lane.linked.retain(|_, node| self.nodes.file(*node).is_some());
        let mut out = Vec::new();
        match changed {
            Some(paths) => paths.iter().for_each(|path| self.recheck_path(number, path, &mut out)),
            None => self.recheck_all(number, &mut out),
        }
        out
    }

    fn recheck_path(&mut self, number: LaneNumber, path: &TreePath, out: &mut Vec<Invalidation>) {
        let node_of = |lanes: &Self, path: &TreePath| lanes.lanes.get(&number)?.dirs.get(path).copied();
        if let Some(parent) = path.parent().and_then(|parent| node_of(self, &parent)) {
            self.recheck_name(number, parent, path.name(), out);
        }
        // Still there, if it was not invalidated with its name.
        if let Some(node) = node_of(self, path) {
            self.recheck_directory(number, node, out);
        }
    }

    fn recheck_all(&mut self, number: LaneNumber, out: &mut Vec<Invalidation>) {
        let Some(lane) = self.lanes.get(&number) else { return };
        let mut dirs: Vec<(TreePath, NodeId)> = lane.dirs.iter().map(|(path, id)| (path.clone(), *id)).collect();
        dirs.sort();
        for (_, node) in dirs {
            // Parents come first: a directory that went with its name is no longer attached.
            let Some(dir) = self.nodes.dir(node).filter(|dir| dir.attached) else { continue };
            let names: Vec<Box<[u8]>> = dir.told.keys().cloned().collect();
            for name in names {
                self.recheck_name(number, node, &name, out);
            }
            self.recheck_directory(number, node, out);
        }
    }

    fn recheck_name(&mut self, number: LaneNumber, parent: NodeId, name: &[u8], out: &mut Vec<Invalidation>) {
        let Some(dir) = self.nodes.dir(parent) else { return };
        let Some(told) = dir.told.get(name).copied() else { return };
        let path = dir.path.join(name);
        match self.fate(number, told, &path) {
            Fate::Keep(now) => {
                if let Some(held) = self.nodes.dir_mut(parent).and_then(|dir| dir.told.get_mut(name)) {
                    *held = now;
                }
                if now != told {
                    self.held_before(number, None);
                }
            }
            Fate::Drop => self.untell(parent, name),
            Fate::Invalidate => {
                if let Told::Node { node, .. } = told {
                    self.unlink(number, node);
                }
                self.untell(parent, name);
                out.push(Invalidation::Entry { parent, name: name.to_vec() });
            }
        }
    }

    /// What a name of this file is now the kernel is told anew: its other names go by that, too.
    fn unlink(&mut self, number: LaneNumber, node: NodeId) {
        let inode = self.nodes.file(node).map(|file| (file.data.attr.dev, file.data.attr.ino));
        if let Some((lane, inode)) = self.lanes.get_mut(&number).zip(inode) {
            lane.linked.remove(&inode);
        }
    }

    fn fate(&mut self, number: LaneNumber, told: Told, path: &TreePath) -> Fate {
        let Some(view) = self.view_of(number) else { return Fate::Invalidate };
        let known = view.known(path, |digest| self.listings.peek(digest).cloned());
        match (told, known) {
            (Told::Refused { .. }, _) => Fate::Drop,
            (Told::Absent { .. }, Known::Bound(bound)) if bound.binding == Binding::Absent => {
                Fate::Keep(Told::Absent { by: Some(By::bound(&bound)) })
            }
            (Told::Absent { by: None }, Known::Unlisted(_)) => Fate::Keep(told),
            (Told::Absent { .. }, Known::Unlisted(listing)) => {
                let parent = path.parent().and_then(|parent| self.lanes.get(&number)?.dirs.get(&parent).copied());
                if let Some(dir) = parent.and_then(|parent| self.nodes.dir_mut(parent)) {
                    dir.absences.add(listing);
                }
                Fate::Keep(Told::Absent { by: None })
            }
            (Told::Node { node, .. }, known) => self.fate_of_node(number, node, known),
            (Told::Absent { .. }, _) => Fate::Invalidate,
        }
    }

    fn fate_of_node(&mut self, number: LaneNumber, id: NodeId, known: Known) -> Fate {
        let same = |bound: &Arc<Bound>, held: &Node| match held {
            Node::Dir(dir) => match &bound.binding {
                Binding::Directory { attr, .. } => {
                    dir.attached && dir.rights.is_none_or(|known| known == node::rights(attr))
                }
                _ => false,
            },
            Node::File(file) => file.data.shows(&bound.binding),
        };
        match (self.nodes.all_mut(id), known) {
            // The kernel dropped the node, and with it every name of it.
            (None, _) => Fate::Drop,
            (Some(held), Known::Bound(bound)) if same(&bound, held) => {
                if let Node::File(file) = held {
                    (file.path, file.seq) = (bound.path.clone(), bound.seq);
                }
                self.note_lazy(number, &bound);
                Fate::Keep(Told::Node { node: id, by: By::bound(&bound) })
            }
            _ => Fate::Invalidate,
        }
    }

    /// The directory's own attributes and names, and the absences that its listing proves.
    fn recheck_directory(&mut self, number: LaneNumber, node: NodeId, out: &mut Vec<Invalidation>) {
        let Some(dir) = self.nodes.dir(node) else { return };
        let bound = self.view_of(number).and_then(|view| view.get(&dir.path)).cloned();
        let now = bound.as_deref().and_then(directory_attr);
        let listing: Option<Digest> = match bound.as_deref().map(|bound| &bound.binding) {
            Some(Binding::Directory { listing, .. }) => *listing,
            _ => None,
        };
        self.held_before(number, None);
        let dir = self.nodes.dir_mut(node).expect("found above");
        // What of it still holds is so by this binding as well.
        dir.by = dir.by.and(bound.as_deref().map(By::bound));
        let attr_holds = dir.shown.is_none_or(|shown| now.is_some_and(|now| now.is_shown_as(&shown)));
        if attr_holds && dir.listed.agrees(listing) {
            dir.shown = dir.shown.and(now);
        } else {
            (dir.shown, dir.listed) = (None, Seen::Nothing);
            out.push(Invalidation::Inode { node });
        }
        if !dir.absences.agrees(listing) {
            dir.absences = listing.map_or(Seen::Nothing, Seen::One);
            let unlisted = |told: &Told| matches!(told, Told::Absent { by: None });
            let names: Vec<Box<[u8]>> =
                dir.told.iter().filter(|(_, told)| unlisted(told)).map(|(name, _)| name.clone()).collect();
            for name in names {
                self.recheck_name(number, node, &name, out);
            }
        }
    }
}
