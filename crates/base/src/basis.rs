//! What a result rests on: the bindings by which its task was shown the client's files, the pieces that it had of files that are bound
//! lazily, and what it was refused. A worker says that under its signature, so that nobody on the way can have told it something else.

use crate::attr::{Attr, Xattr};
use crate::binding::{Binding, Content};
use crate::codec::{Encode, Malformed, Reader, Writer};
use crate::digest::{Digest, Digester};
use crate::id::Seq;
use crate::path::TreePath;
use crate::view::Bound;

/// Most numbers of one [`Listed`].
pub const NUMBERS_MAX: u64 = 1 << 21;
/// Most lazily bound files, and most refusals, of one basis.
pub const NAMES_MAX: usize = 1 << 16;

/// What one binding says, as a digest: number, path, and what is there, but for the time of the last access, which moves without a new
/// binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub Digest);

impl Mark {
    /// What `bound` says.
    pub fn of(bound: &Bound) -> Self {
        Self::of_parts(&bound.path, bound.seq, &bound.binding)
    }

    /// What the binding of `path` with this number says.
    pub fn of_parts(path: &TreePath, seq: Seq, binding: &Binding) -> Self {
        let mut out = Writer(Vec::with_capacity(256));
        out.u64(seq.0);
        out.bytes(path.as_bytes());
        match binding {
            Binding::Absent => out.u8(0),
            Binding::Denied => out.u8(1),
            Binding::Directory { attr, listing, xattrs } => {
                out.u8(2);
                write_attr(&mut out, attr);
                out.option(listing.as_ref(), |out, listing| out.raw(&listing.0));
                write_xattrs(&mut out, xattrs);
            }
            Binding::File { attr, content, xattrs } => {
                out.u8(3);
                write_attr(&mut out, attr);
                write_content(&mut out, content);
                write_xattrs(&mut out, xattrs);
            }
            Binding::Symlink { attr, target } => {
                out.u8(4);
                write_attr(&mut out, attr);
                out.bytes(target);
            }
            Binding::Special { attr } => {
                out.u8(5);
                write_attr(&mut out, attr);
            }
        }
        Self(Digest::of(&out.0))
    }
}

fn write_attr(out: &mut Writer, attr: &Attr) {
    let Attr { mode, uid, gid, nlink, size, blocks, dev, ino, mtime, ctime, accessed: _ } = attr;
    [*mode, *uid, *gid, *nlink].into_iter().for_each(|number| out.u32(number));
    [*size, *blocks, *dev, *ino].into_iter().for_each(|number| out.u64(number));
    [mtime.0, ctime.0].into_iter().for_each(|time| out.i64(time));
}

fn write_content(out: &mut Writer, content: &Content) {
    let (kind, name) = match content {
        Content::Empty => (0, None),
        Content::Block(name) => (1, Some(name)),
        Content::Recipe(name) => (2, Some(name)),
        Content::Lazy(name) => (3, Some(name)),
        Content::Unreadable(errno) => return [4, *errno].into_iter().for_each(|number| out.i32(number)),
    };
    out.i32(kind);
    out.option(name, |out, name| out.raw(&name.0));
}

fn write_xattrs(out: &mut Writer, xattrs: &[Xattr]) {
    out.list(xattrs, |out, xattr| {
        out.bytes(&xattr.name);
        out.bytes(&xattr.value);
    });
}

/// Numbered things: their numbers, and one digest over all that they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// First number and count of each run, in order, none next to another.
    runs: Vec<(u64, u64)>,
    digest: Digest,
}

impl Default for Listed {
    fn default() -> Self {
        Self::of(Vec::new())
    }
}

impl Listed {
    /// These things, in any order. The same thing may be there several times; two things of one number will not be what anybody else lists.
    pub fn of(mut things: Vec<(u64, Digest)>) -> Self {
        things.sort_unstable();
        things.dedup();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (number, _) in &things {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == *number => *count += 1,
                Some((first, count)) if *first + *count == *number + 1 => {}
                _ => runs.push((*number, 1)),
            }
        }
        Self { runs, digest: digest_of(things.iter().copied()) }
    }

    /// The numbers, in order.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|(first, count)| *first..*first + *count)
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    /// Whether each number stands for what `find` says.
    ///
    /// # Errors
    /// What `find` does not find, or `differs`.
    pub fn check<E>(&self, mut find: impl FnMut(u64) -> Result<Digest, E>, differs: E) -> Result<(), E> {
        let things: Vec<(u64, Digest)> =
            self.numbers().map(|number| Ok((number, find(number)?))).collect::<Result<_, E>>()?;
        if digest_of(things.into_iter()) == self.digest { Ok(()) } else { Err(differs) }
    }
}

fn digest_of(things: impl Iterator<Item = (u64, Digest)>) -> Digest {
    let mut digester = Digester::default();
    let mut part = Vec::with_capacity(8192);
    for (number, digest) in things {
        part.extend_from_slice(&number.to_le_bytes());
        part.extend_from_slice(&digest.0);
        if part.len() >= 8192 - 40 {
            digester.add(&part);
            part.clear();
        }
    }
    digester.add(&part);
    digester.digest()
}

impl Encode for Listed {
    fn encode(&self, out: &mut Writer) {
        out.u32(self.runs.len() as u32);
        let mut after = 0;
        for (first, count) in &self.runs {
            write_number(out, first - after);
            write_number(out, *count);
            after = first + count;
        }
        out.raw(&self.digest.0);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut after, mut all) = (0u64, 0u64);
        let runs = from.list(|from| {
            let (gap, count) = (read_number(from)?, read_number(from)?);
            let first = after.checked_add(gap).ok_or(Malformed("a number beyond all"))?;
            all = all.checked_add(count).filter(|all| *all <= NUMBERS_MAX).ok_or(Malformed("too many numbers"))?;
            after = first.checked_add(count).ok_or(Malformed("a number beyond all"))?;
            if count > 0 { Ok((first, count)) } else { Err(Malformed("an empty run")) }
        })?;
        Ok(Self { runs, digest: Digest(from.array()?) })
    }
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit.
fn write_number(out: &mut Writer, mut number: u64) {
    while number >= 0x80 {
        out.u8(number as u8 | 0x80);
        number >>= 7;
    }
    out.u8(number as u8);
}

fn read_number(from: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = from.u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed("a number beyond 64 bits"))
}

/// What a result rests on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Basis {
    /// The bindings, by their [`Seq`], with their [`Mark`]s.
    pub bindings: Listed,
    /// The pieces that were there of lazily bound files, by the files' names: numbers of pieces, and the digests of their bytes.
    pub pieces: Vec<(Digest, Listed)>,
    /// What was refused, for a reason that was said: see [`refusal`].
    pub refused: Vec<Vec<u8>>,
}

/// How it is listed that a path was not bound, or that contents of this name were not given: with the `errno` that a task saw.
pub fn refusal(name: &[u8], errno: i32) -> Vec<u8> {
    [&errno.to_le_bytes()[..], name].concat()
}

impl Encode for Basis {
    fn encode(&self, out: &mut Writer) {
        self.bindings.encode(out);
        out.list(&self.pieces, |out, (name, pieces)| {
            out.raw(&name.0);
            pieces.encode(out);
        });
        out.list(&self.refused, |out, name| out.bytes(name));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bindings = Listed::decode(from)?;
        let pieces = from.list(|from| Ok((Digest(from.array()?), Listed::decode(from)?)))?;
        let refused = from.list(|from| Ok(from.bytes()?.to_vec()))?;
        match pieces.len() <= NAMES_MAX && refused.len() <= NAMES_MAX {
            true => Ok(Self { bindings, pieces, refused }),
            false => Err(Malformed("too many names")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Accessed;
    use crate::time::Time;
    use proptest::prelude::*;

    fn digest(number: u64) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    fn find(number: u64) -> Result<Digest, &'static str> {
        if number < 1000 { Ok(digest(number)) } else { Err("unknown") }
    }

    proptest! {
        #[test]
        fn what_is_listed_comes_back(numbers in proptest::collection::vec(0..1000u64, 0..60), far in any::<u64>()) {
            let things = numbers.iter().map(|number| (*number, digest(*number))).collect();
            let listed = Listed::of(things);
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(listed.numbers().collect::<Vec<_>>(), sorted);
            prop_assert_eq!(listed.check(find, "differs"), Ok(()));
            let far = Listed::of(vec![(far.max(1000) - 1, digest(far)), (3, digest(3))]);
            let basis = Basis { bindings: listed, pieces: vec![(digest(1), far)], refused: vec![b"/x".to_vec()] };
            prop_assert_eq!(Basis::from_bytes(&basis.to_bytes()), Ok(basis));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(basis) = Basis::from_bytes(&bytes) {
                prop_assert_eq!(Basis::from_bytes(&basis.to_bytes()), Ok(basis));
            }
        }
    }

    #[test]
    fn what_differs_is_found() {
        let listed = Listed::of(vec![(1, digest(1)), (2, digest(3))]);
        assert_eq!(listed.check(find, "differs"), Err("differs"));
        assert_eq!(Listed::of(vec![(1000, digest(1))]).check(find, "differs"), Err("unknown"));
        let twice = Listed::of(vec![(1, digest(1)), (1, digest(7)), (2, digest(2))]);
        assert_eq!(twice.numbers().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(twice.check(find, "differs"), Err("differs"), "two things of one number");
        assert_eq!(Listed::default().check(find, "differs"), Ok(()));
    }

    #[test]
    fn more_than_anybody_has_is_refused() {
        let run = |first, count| Listed { runs: vec![(first, count)], digest: digest(0) }.to_bytes();
        assert!(Listed::from_bytes(&run(5, NUMBERS_MAX)).is_ok());
        assert!(Listed::from_bytes(&run(5, NUMBERS_MAX + 1)).is_err());
        assert!(Listed::from_bytes(&run(5, 0)).is_err());
        let mut beyond = Writer::default();
        beyond.u32(1);
        [u64::MAX, 2].into_iter().for_each(|number| write_number(&mut beyond, number));
        beyond.raw(&[0; 32]);
        assert!(Listed::from_bytes(&beyond.0).is_err());
    }

    #[test]
    fn a_mark_is_of_all_but_the_last_access() {
        let path = TreePath::parse(b"/a").unwrap();
        let attr = Attr { size: 3, mode: 0o644, ..Attr::default() };
        let file = |attr, content| Binding::File { attr, content, xattrs: Vec::new() };
        let bound = Bound { path, seq: Seq(7), binding: file(attr, Content::Block(digest(1))) };
        let mark = Mark::of(&bound);
        let read = Attr { accessed: Accessed(Some(Time(9))), ..attr };
        let with = |binding| Mark::of(&Bound { binding, ..bound.clone() });
        assert_eq!(with(file(read, Content::Block(digest(1)))), mark);
        for other in [
            file(attr, Content::Lazy(digest(1))),
            file(Attr { mode: 0o600, ..attr }, Content::Block(digest(1))),
            file(attr, Content::Unreadable(5)),
            Binding::Absent,
            Binding::Denied,
            Binding::Special { attr },
        ] {
            assert_ne!(with(other), mark);
        }
        assert_ne!(Mark::of(&Bound { seq: Seq(8), ..bound.clone() }), mark);
        assert_ne!(Mark::of(&Bound { path: TreePath::parse(b"/b").unwrap(), ..bound }), mark);
    }
}
