//! Draws programs: operations on names that mostly are there, so that most of them do something.
//!
//! Not drawn, since it is known to be no promise (SPECIFICATION.md) or to depend on chance: what is left running in the background,
//! access times alone, names made by chance, the order of a listing, the times of two things made within one tick of the clock.

mod operations;
mod scripts;

use super::program::{Kind, Op, Program, Step};
use crate::client::NOBODY;
use crate::dice::Dice;

/// Fewest and most operations of a program, without those that make its first tree.
const OPERATIONS: (usize, usize) = (5, 40);
/// Names that are drawn mostly, and seldom.
const NAMES: &[&[u8]] = &[b"a", b"b", b"c", b"d", b"e", b"f.txt", b"G"];
/// No name of 255 letters: a path that does not fit into the 256 of an overlay's redirection cannot be renamed
/// into another folder on a worker ("Invalid cross-device link").
const STRANGE: &[&[u8]] = &[b"x y", b"n\nl", b"\xff\xfe", &[b'n'; 90], b".hidden", b"-r", "ü".as_bytes(), b"t\\"];
/// Lengths around those at which something changes.
const SIZES: &[usize] = &[0, 1, 17, 511, 4095, 4096, 4097, 10_000, 65_536, 131_073];
/// Where mounts are, if a program has them: a file system of its own, and a folder seen twice.
pub const OTHER: &str = "mnt";
/// See [`OTHER`].
pub const TWICE: &str = "bound";

/// What a name is likely to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Likely {
    File,
    Folder,
    Link,
    Fifo,
}

/// What is drawn from.
struct Grammar {
    dice: Dice,
    /// Names that are likely there.
    known: Vec<(Vec<u8>, Likely)>,
    /// Slots that are likely open.
    open: Vec<u8>,
    /// Those of them that are not open for writing, and whether what they are may have been removed or replaced by now.
    as_found: Vec<(u8, bool)>,
    nobody: bool,
    /// It is the only command of its program. What such a command finds has no pipes: one that was there is not always the one here.
    alone: bool,
}

/// The program of a seed.
pub fn draw(seed: u64) -> Program {
    let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    dice.next();
    let nobody = dice.percent(35);
    let mut grammar = Grammar { dice, known: Vec::new(), open: Vec::new(), as_found: Vec::new(), nobody, alone: false };
    let mounts = grammar.dice.percent(12);
    let word = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut program = Program::default();
    program.words.push(word("user", if nobody { "nobody" } else { "root" }));
    program.words.push(word("mounts", if mounts { "yes" } else { "no" }));
    if mounts {
        grammar.known.push((OTHER.into(), Likely::Folder));
        grammar.known.push((TWICE.into(), Likely::Folder));
    }
    program.steps.push(grammar.setup());
    let (least, most) = OPERATIONS;
    let count = least + grammar.dice.below(most - least + 1);
    let form = grammar.dice.below(100);
    grammar.alone = form < 68 && !mounts;
    match form {
        0..45 => program.steps.push(grammar.run(count)),
        45..68 => program.steps.push(grammar.script(count / 2 + 2)),
        68..88 => program.steps.extend(grammar.chain(count)),
        _ => program.steps.extend(grammar.pair(count)),
    }
    program
}

impl Grammar {
    fn setup(&mut self) -> Step {
        let mut ops = Vec::new();
        for _ in 0..3 + self.dice.below(9) {
            ops.extend(self.planted());
        }
        Step { kind: Kind::Setup, words: Vec::new(), ops }
    }

    /// Something of a first tree, or of a change between two commands.
    fn planted(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let path = self.fresh();
        match self.dice.below(10) {
            0..5 => ops.push(self.put(&path)),
            5..8 => ops.push(self.folder(&path)),
            8 => ops.push(self.symbolic_link(&path)),
            _ => ops.push(self.hard_link(&path)),
        }
        if self.nobody && self.dice.percent(65) {
            let owner = NOBODY.to_string();
            ops.push(op("chown", [path.clone(), owner.clone().into(), owner.into(), b"nofollow".to_vec()]));
        } else if self.dice.percent(12) {
            ops.push(op("chown", [path.clone(), b"1234".to_vec(), b"1234".to_vec(), b"nofollow".to_vec()]));
        }
        if self.dice.percent(20) {
            let mode = self.mode();
            ops.push(op("chmod", [path.clone(), mode]));
        }
        if self.dice.percent(10) {
            ops.push(op("setxattr", [path, b"user.first".to_vec(), b"9".to_vec(), b"-".to_vec()]));
        }
        ops
    }

    fn run(&mut self, count: usize) -> Step {
        self.open.clear();
        self.as_found.clear();
        let mut ops: Vec<Op> = (0..count).map(|_| self.operation(0)).collect();
        if self.dice.percent(25) {
            ops.push(self.ending());
        }
        let mut words = vec![("report".to_owned(), self.dice.of(&["end", "end", "end", "each"]).to_owned())];
        words.extend(self.input());
        Step { kind: Kind::Run, words, ops }
    }

    fn script(&mut self, count: usize) -> Step {
        let ops = (0..count).map(|_| Op::new([self.line().into_bytes()])).collect();
        let mut words = vec![("shell".to_owned(), self.dice.of(&["sh", "sh", "bash"]).to_owned())];
        words.extend(self.input());
        Step { kind: Kind::Shell, words, ops }
    }

    /// Commands after one another, each of which sees what came before, and changes in between.
    fn chain(&mut self, count: usize) -> Vec<Step> {
        let parts = 2 + self.dice.below(3);
        let mut steps = Vec::new();
        for part in 0..parts {
            if part > 0 && self.dice.percent(60) {
                let mut ops: Vec<Op> = Vec::new();
                for _ in 0..1 + self.dice.below(3) {
                    ops.extend(if self.nobody || self.dice.percent(40) { self.planted() } else { vec![self.change()] });
                }
                steps.push(Step { kind: Kind::Edit, words: Vec::new(), ops });
            }
            let share = count / parts + 1;
            steps.push(if self.dice.percent(25) { self.script(share / 2 + 1) } else { self.run(share) });
        }
        steps
    }

    /// Two commands at the same time, each in a folder of its own, so that the result does not depend on who is first.
    fn pair(&mut self, count: usize) -> Vec<Step> {
        let mode: &[u8] = if self.nobody { b"777" } else { b"755" };
        let mut steps = Vec::new();
        let mut folders = Step { kind: Kind::Edit, words: Vec::new(), ops: Vec::new() };
        for (kind, folder) in [(Kind::Run, "p"), (Kind::With, "q")] {
            folders.ops.push(op("mkdir", [folder.into(), mode.to_vec()]));
            folders.ops.push(op("chmod", [folder.into(), mode.to_vec()]));
            self.known = vec![(b"../shared/f".to_vec(), Likely::File)];
            let mut step = self.run(count / 2 + 2);
            step.kind = kind;
            step.words.push(("cwd".into(), folder.into()));
            spare_shared(&mut step.ops);
            steps.push(step);
        }
        folders.ops.push(op("mkdir", [b"shared".to_vec(), b"755".to_vec()]));
        folders.ops.push(op("put", [b"shared/f".to_vec(), b"5000".to_vec(), b"1".to_vec()]));
        steps.insert(0, folders);
        steps
    }

    /// What the input is, if it is not empty.
    fn input(&mut self) -> Option<(String, String)> {
        match self.dice.below(10) {
            0 => Some(("stdin".into(), "closed".into())),
            1..4 => Some(("stdin".into(), self.dice.of(&["1", "300", "4096", "70000", "200000"]).into())),
            _ => None,
        }
    }

    /// A slot is opened, unless that fails: then it is what it was.
    fn opens(&mut self, slot: u8, access: &str, path: &[u8]) {
        let is_folder = self.known.iter().any(|(known, likely)| known == path && *likely == Likely::Folder);
        self.as_found.extend((is_folder || access == "r").then_some((slot, false)));
    }

    /// Whether a slot may be what is there no more: an overlay refuses to change its attributes, or takes them for those of a folder in its
    /// place.
    fn may_be_gone(&self, slot: &[u8]) -> bool {
        self.as_found.iter().any(|(known, is_gone)| *is_gone && slot == [*known])
    }

    /// A slot is made a copy of another.
    fn copies(&mut self, slot: &[u8], other: &[u8]) {
        let is_gone = self.as_found.iter().filter(|(known, _)| slot == [*known]).map(|(_, is_gone)| *is_gone).max();
        self.as_found.extend(is_gone.zip(other.first()).map(|(is_gone, other)| (*other, is_gone)));
    }

    /// A name that is likely there.
    fn existing(&mut self, kinds: &[Likely]) -> Vec<u8> {
        let fits: Vec<usize> = (0..self.known.len()).filter(|at| kinds.contains(&self.known[*at].1)).collect();
        if fits.is_empty() || self.dice.percent(4) {
            return self.name();
        }
        let at = self.dice.of(&fits);
        self.known[at].0.clone()
    }

    /// A name that is likely not there, mostly in a folder that is.
    fn fresh(&mut self) -> Vec<u8> {
        let name = self.name();
        let folders: Vec<usize> = (0..self.known.len()).filter(|at| self.known[*at].1 == Likely::Folder).collect();
        if folders.is_empty() || self.dice.percent(45) {
            return name;
        }
        let at = self.dice.of(&folders);
        let path = [&self.known[at].0[..], b"/", &name].concat();
        if path.len() < 140 { path } else { name }
    }

    /// A name of either kind, seldom in another form.
    fn any(&mut self) -> Vec<u8> {
        let all = [Likely::File, Likely::Folder, Likely::Link, Likely::Fifo];
        let path = if self.dice.percent(80) { self.existing(&all) } else { self.fresh() };
        match self.dice.below(60) {
            0 => [&path[..], b"/"].concat(),
            1 => [b"./", &path[..]].concat(),
            2 => [&path[..], b"/."].concat(),
            3 => [&path[..], b"/nothing"].concat(),
            4 => path.split(|byte| *byte == b'/').collect::<Vec<_>>().join(&b"//"[..]),
            5 => Vec::new(),
            6 => b".".to_vec(),
            _ => path,
        }
    }

    fn name(&mut self) -> Vec<u8> {
        if self.dice.percent(12) { self.dice.of(STRANGE).to_vec() } else { self.dice.of(NAMES).to_vec() }
    }

    fn size(&mut self) -> usize {
        if self.dice.percent(2) { 2_500_000 } else { self.dice.of(SIZES) }
    }

    fn mode(&mut self) -> Vec<u8> {
        // No set-user-id and set-group-id bits: commands that give them run here, and would compare nothing.
        if self.nobody {
            // Few that close what they are given to its own user: such commands run here. None that lets it write and not read: of a
            // file with several names the commit could not keep a copy.
            let usual = ["755", "777", "775", "1777", "711", "700", "644", "755", "555", "400", "600", "0"];
            return self.dice.of(&usual).into();
        }
        let usual = [0o644, 0o755, 0o600, 0o700, 0o640, 0o777, 0o444, 0o555, 0o000, 0o711, 0o1777];
        format!("{:o}", self.dice.of(&usual)).into_bytes()
    }

    fn number(&mut self, bound: usize) -> Vec<u8> {
        self.dice.below(bound).to_string().into_bytes()
    }

    fn learn(&mut self, path: &[u8], likely: Likely) {
        // Short paths only: what is deeper and deeper is no use.
        if path.len() < 600 && path.iter().filter(|byte| **byte == b'/').count() < 5 {
            self.known.push((path.to_vec(), likely));
        }
    }
}

/// An operation.
fn op<const N: usize>(verb: &str, words: [Vec<u8>; N]) -> Op {
    Op::new(std::iter::once(verb.as_bytes().to_vec()).chain(words))
}

/// Leaves out what would change what two commands have in common.
fn spare_shared(ops: &mut Vec<Op>) {
    ops.retain(|op| is_reading(&op.verb()) || !op.words.iter().any(|word| word.starts_with(b"..")));
    ops.iter_mut().for_each(|op| spare_shared(&mut op.body));
}

/// Whether an operation changes nothing.
fn is_reading(verb: &str) -> bool {
    ["stat", "lstat", "cat", "list", "access", "getxattr", "listxattr", "readlink", "same"].contains(&verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_program_and_its_text_the_same_program() {
        for seed in 0..500 {
            let program = draw(seed);
            assert_eq!(draw(seed), program);
            assert_eq!(Program::parse(&program.print()).unwrap(), program, "seed {seed}:\n{}", program.print());
            assert!(program.len() >= OPERATIONS.0, "seed {seed}");
        }
    }

    #[test]
    fn nothing_reaches_out_of_the_tree() {
        for seed in 0..500 {
            for step in draw(seed).steps {
                let text = step.body();
                assert!(!text.contains("../..") && !text.contains(" /etc"), "seed {seed}: {text}");
            }
        }
    }
}
