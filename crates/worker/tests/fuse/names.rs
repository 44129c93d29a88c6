//! Names and attributes under an overlay on the mirror: what the kernel notes, and what a delta makes of it.

use super::*;
use base::delta::FileChange;
use base::{Action, Content, Digest, Time, TreePath};
use std::io::Read;
use worker::delta::{Lens, Options, collect};

/// What a task on a lane saw.
struct Seen<'a>(&'a LaneGuard, PathBuf);

impl Lens for Seen<'_> {
    fn base_of(&self, path: &TreePath) -> Option<Base> {
        self.0.base_of(path)
    }

    fn binding_of(&self, path: &TreePath) -> Option<Binding> {
        self.0.binding_of(path).map(|bound| bound.binding.clone())
    }

    fn lower(&self) -> &Path {
        &self.1
    }
}

/// Does `act` in an overlay on a fresh lane. Returns the delta, a line for each change, the files whose bytes were read
/// from the upper layer, and what was asked of the mirror meanwhile.
fn delta_of(world: &World, name: &str, act: impl FnOnce(&Path)) -> (Vec<String>, usize, Counters) {
    let lane = world.launch();
    let merged = overlay(world, &lane, name);
    let folder = merged.parent().expect("made with it").to_owned();
    let mut cuts = 0;
    let (collected, asked) = world.asked(|| {
        act(&merged);
        rustix::mount::unmount(&merged, UnmountFlags::empty()).expect("nothing uses it");
        let options = Options {
            id_base: ID_BASE,
            index: Some(folder.join("work/index")),
            ..Options::new(Time(0), Time(0), Time(0))
        };
        let mut cut = |file: &fs::File, _| {
            cuts += 1;
            let mut bytes = Vec::new();
            let mut file = file;
            file.read_to_end(&mut bytes)?;
            Ok(Content::Block(Digest::of(&bytes)))
        };
        collect(&folder.join("upper"), &Seen(&lane, lane.path()), &options, &mut cut).expect("it can be read")
    });
    rustix::mount::unmount(&folder, UnmountFlags::empty()).expect("nothing uses it");
    let lines = collected.delta.changes.iter().filter_map(|change| {
        let path = &change.path;
        Some(match &change.action {
            Action::Remove => format!("{path} removed"),
            Action::Rename { from } => format!("{path} was {from}"),
            Action::HardLink { to } => format!("{path} is {to}"),
            Action::File { change, content, .. } => match change {
                FileChange::Attributes => format!("{path} attributes {content:?}"),
                FileChange::Appended { from } => format!("{path} appended from {from}"),
                FileChange::Written => format!("{path} written"),
            },
            Action::LastWrite { change: FileChange::Written, .. } => format!("{path} written for its other names"),
            // Times of the folders that these are in.
            Action::Directory { .. } => return None,
            other => format!("{path} {other:?}"),
        })
    });
    (lines.collect(), cuts, asked)
}

#[test]
fn names_and_attributes_cost_no_byte() {
    let Some(world) = World::new() else { return };
    make_tree(&world.at(""));
    fs::set_permissions(world.at("a/b/large"), fs::Permissions::from_mode(0o000)).expect("modes can be set");
    let (lines, cuts, asked) = delta_of(&world, "task", |merged| {
        let at = |name: &str| merged.join(name);
        fs::rename(at("a/b/large"), at("empty/big")).expect("files can be renamed");
        fs::rename(at("a/one"), at("empty/eins")).expect("one of two names can be renamed");
        fs::hard_link(at("a/twin1"), at("empty/zwilling")).expect("files can be linked");
        fs::set_permissions(at("a/twin2"), fs::Permissions::from_mode(0o600)).expect("modes can be set");
        fs::set_permissions(at("empty/big"), fs::Permissions::from_mode(0o400)).expect("modes can be set");
    });
    let want = [
        "/empty/big was /a/b/large",
        "/empty/eins was /a/one",
        "/a/twin2 attributes Empty",
        "/empty/big attributes Empty",
        "/empty/zwilling is /a/twin1",
    ];
    assert_eq!(lines, want);
    assert_eq!((cuts, asked.reads), (0, 0), "{asked:?}");
}

#[test]
fn files_written_and_renamed_are_known_by_their_handles() {
    let Some(world) = World::new() else { return };
    make_tree(&world.at(""));
    fs::write(world.at("a/pair"), b"pair").expect("the client can write");
    fs::hard_link(world.at("a/pair"), world.at("a/other")).expect("hard links can be made");
    let (lines, ..) = delta_of(&world, "task", |merged| {
        let at = |name: &str| merged.join(name);
        let append = |name: &str| {
            let file = fs::File::options().append(true).open(at(name));
            std::io::Write::write_all(&mut file.expect("it is there"), b"more").expect("it can be written");
        };
        append("a/twin1");
        fs::rename(at("a/twin1"), at("a/twin2")).expect("files can be renamed");
        append("a/uno");
        fs::rename(at("a/uno"), at("empty/uno")).expect("one of two names can be renamed");
        append("a/pair");
        fs::remove_file(at("a/pair")).expect("one of two names can be removed");
    });
    let want = [
        "/a/pair written for its other names",
        "/a/twin2 was /a/twin1",
        "/empty/uno was /a/uno",
        "/a/twin2 removed",
        "/a/pair removed",
        "/a/twin2 appended from 4",
        "/empty/uno appended from 3",
    ];
    assert_eq!(lines, want);
}
