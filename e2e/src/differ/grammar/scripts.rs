//! Lines of shell scripts: the usual tools, in the usual ways.

use super::Grammar;
use super::Likely::{File, Folder, Link};

/// Lines with places for names: `@f` a file, `@d` a folder, `@x` either or a link, `@n` a name that is likely new; and what `@n` is
/// then, if it is likely there.
const LINES: &[(&str, char)] = &[
    ("cp @f @n", 'f'),
    ("cp -p @f @n", 'f'),
    ("cp -aT @x @n", 'x'),
    ("cp -rT @d @n", 'd'),
    ("cp --reflink=auto -f @f @f", '-'),
    ("mv @x @n", 'x'),
    ("mv -f @f @f", '-'),
    ("mv -n @f @f", '-'),
    ("mv @x @d", '-'),
    ("ln -L @f @n", 'f'),
    ("ln -s @x @n", 'l'),
    ("ln -sfn @d @n", 'l'),
    ("rm -f @f", '-'),
    ("rm @x", '-'),
    ("rm -rf @x 2>/dev/null; echo $?", '-'),
    ("rmdir @d", '-'),
    ("mkdir @n", 'd'),
    ("mkdir -p @n/x/y", 'd'),
    ("mkdir -m 1775 @n", 'd'),
    ("touch @n", 'f'),
    ("touch -c @x", '-'),
    ("touch -d '2001-02-03 04:05:06.789' @x", '-'),
    ("touch -h -r @f @x", '-'),
    // The archive first: what is read must not change meanwhile. A folder does that on an overlay as it is listed, if a file that was
    // there got a name in it and lost it again. What is refused depends on the order of a listing.
    ("tar cf t.tar --warning=no-file-changed @d; tar xf t.tar -C @d 2>/dev/null; rm -f t.tar", '-'),
    ("tar cf - --warning=no-file-changed @x | tar tf - | sort", '-'),
    ("find . -type f | sort", '-'),
    ("find @d -name '*' -printf '%y %m %p\\n' | sort", '-'),
    ("find @d -type f -exec wc -c {} + | sort", '-'),
    ("find @d -depth -empty -delete", '-'),
    // Its complaints have names by chance.
    ("sed -i s/a/b/ @f 2>/dev/null; echo $?", '-'),
    ("sed -n 1p @f", '-'),
    ("sort @f > @n", 'f'),
    ("sort -u @f | head -3 | od -c | head -5", '-'),
    ("echo text > @n", 'f'),
    ("echo text > @x", '-'),
    ("echo more >> @f", '-'),
    ("tee @n < @f | wc -c", 'f'),
    // No pipe from a file to itself: who is first, its reader or the shell that empties it, is chance.
    ("cat @f > t.cat; tr a-z A-Z < t.cat > @n; rm -f t.cat", 'f'),
    ("cat @x", '-'),
    ("cat", '-'),
    ("head -c 10", '-'),
    ("IFS= read -r line; echo \"got $?\"", '-'),
    ("cat @f @f > @n", 'f'),
    ("printf x | cat - @f > @n", 'f'),
    ("(cd @d && pwd | sed 's/.*work//' && ls -A | sort)", '-'),
    ("chmod u+x,g-w @x", '-'),
    // Its complaints come in the order of a listing.
    ("chmod -R a+rX @d 2>&1 | sort", '-'),
    ("chmod 660 @f; cat @f > /dev/null; echo $?; chmod 644 @f", '-'),
    ("stat -c '%a %u:%g %F' @x", '-'),
    ("stat -L -c '%a %F' @f", '-'),
    ("ls -A @d | sort", '-'),
    ("ls -ld @x | cut -c1-10", '-'),
    ("wc -c < @f", '-'),
    ("head -c 100 @f | od -An -tx1 | head -2", '-'),
    ("tail -c 20 @f | od -An -c", '-'),
    ("dd if=@f of=@n bs=512 count=3 conv=notrunc status=none", 'f'),
    // With a count: from a file to itself it would have no end.
    ("dd if=@f of=@f bs=100 count=40 seek=7 skip=1 conv=notrunc,sparse status=none", '-'),
    ("truncate -s 5000 @f", '-'),
    ("truncate -s +1M @f; cksum @f", '-'),
    ("split -b 3000 @f @n.", '-'),
    ("cmp @f @f", '-'),
    ("diff -rq @d @d | sort", '-'),
    ("cksum @f", '-'),
    ("sha256sum @f", '-'),
    ("gzip -nc @f | gunzip | cksum", '-'),
    ("install -m 750 @f @n", 'f'),
    ("install -d @n/deep/er", 'd'),
    ("rm -f fifo; mkfifo fifo; echo through > fifo & cat fifo; wait; rm -f fifo", '-'),
    ("(echo one; exit 3) & wait $!; echo done $?", '-'),
    ("trap 'echo trapped' USR1; kill -USR1 $$; trap - USR1", '-'),
    ("trap 'echo bye > @n' EXIT", 'f'),
    ("sh -c 'exit 3'; echo $?", '-'),
    // In a shell of its own that tells no process number.
    ("dash -c 'dash -c \"kill -9 \\$\\$\"; echo $?'", '-'),
    ("(ulimit -f 1; trap '' XFSZ; head -c 5000 /dev/zero > @n); echo $?", 'f'),
    ("exec 3< @f && { head -c 5 <&3 | od -An -c; exec 3<&-; }", '-'),
    ("exec 4>> @f && { echo q >&4; exec 4>&-; }", '-'),
    ("for i in 1 2 3; do echo $i > @n$i; done", '-'),
    ("i=0; while [ $i -lt 20 ]; do echo $i; i=$((i+1)); done >> @n", 'f'),
    ("[ -e @x ]; echo $?", '-'),
    ("test -w @x; echo $?", '-'),
    ("test @f -ef @f; echo $?", '-'),
    ("umask 077; echo u > @n; umask 022", 'f'),
    ("readlink @x", '-'),
    ("realpath --relative-to=. @x", '-'),
    ("echo err >&2", '-'),
    ("printf '%s\\n' @d/* | sort", '-'),
    ("set -- *; echo $#", '-'),
    ("bash -c 'cat <<< \"here $((1+1))\" > \"$1\"' - @n", 'f'),
    ("env -i PATH=\"$PATH\" sh -c 'pwd | sed s/.*work//; umask'", '-'),
    ("( exec 1>&-; echo lost ) 2>/dev/null; echo $?", '-'),
    ("yes | head -2000 | tail -1", '-'),
    ("seq 3000 | tee @n | sort -rn | head -1", 'f'),
    ("printf '#!/bin/sh\\necho ran \"$@\"; exit 4\\n' > @n; chmod +x @n; ./@n 1 2; echo $?", 'f'),
    ("setfattr -n user.s -v 1 @f 2>/dev/null; getfattr --only-values -n user.s @f 2>/dev/null", '-'),
    // No `flock`: a command that follows another within a moment can be refused its lock, with a message, as overtaken by it.
    ("comm -12 @f @f | wc -l", '-'),
    ("mv @d @n && echo in > @n/in", 'd'),
    ("rm -rf @d 2>/dev/null && mkdir @d && echo new > @d/new", '-'),
    // Of what cannot be removed the order is a listing's.
    ("rm -rf @d 2>/dev/null; ln -s . @d", '-'),
    ("rm -f @f; mkdir @f", '-'),
    ("find . -type l -exec readlink {} + | sort", '-'),
    ("ls -AR . | head -40", '-'),
    ("exit 5", '-'),
    ("kill -TERM $$", '-'),
];

impl Grammar {
    /// A line, its names drawn.
    pub(super) fn line(&mut self) -> String {
        let (template, made) = match self.dice.percent(3) {
            // The last ones end the script: seldom.
            true => LINES[LINES.len() - 1 - self.dice.below(2)],
            false => LINES[self.dice.below(LINES.len() - 2)],
        };
        let mut line = String::new();
        let mut rest = template;
        // A folder copied into itself depends on the order of its listing, also by a link (`-T`: not into what that leads to).
        let new = if template.starts_with("cp -") { self.name() } else { self.fresh() };
        let goes = ["mv ", "cp "].iter().any(|tool| template.starts_with(tool));
        let mut last = None;
        let mut moved: Option<Vec<u8>> = None;
        while let Some(at) = rest.find('@') {
            line.push_str(&rest[..at]);
            let letter = rest[at + 1..].chars().next();
            let mut path = match letter {
                Some('f') => self.existing(&[File]),
                Some('d') => self.existing(&[Folder]),
                Some('n') => new.clone(),
                Some('x') => self.existing(&[File, Folder, Link]),
                _ => {
                    // "$@" and the like.
                    line.push('@');
                    rest = &rest[at + 1..];
                    continue;
                }
            };
            // Neither a mount into itself, which is moved piece by piece, nor a folder, of which some is copied.
            while goes && moved.as_ref().is_some_and(|from| is_within(&path, from)) {
                path = self.name();
            }
            moved.get_or_insert(path.clone());
            if letter == Some('x') {
                last = self.known.iter().find(|(known, _)| *known == path).map(|(_, likely)| *likely);
            }
            line.push_str(&quoted(&path));
            rest = &rest[at + 2..];
        }
        line.push_str(rest);
        match made {
            'f' => self.learn(&new, File),
            'd' => self.learn(&new, Folder),
            'l' => self.learn(&new, Link),
            'x' => self.learn(&new, last.unwrap_or(File)),
            _ => {}
        }
        line
    }
}

fn is_within(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A name as a word of a shell; those that a line of text cannot have are replaced.
fn quoted(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path).replace(['\n', '\u{fffd}', '\\'], "_");
    let text = if text.starts_with('-') { format!("./{text}") } else { text };
    let plain = |c: char| c.is_ascii_alphanumeric() || "./_".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{text}'") }
}
