//! What a caller can do about changes that the write policy refused.

use super::error::Refusal;
use base::TreePath;
use std::collections::HashSet;

/// Paths that are named one by one; where more are refused, the folder that has them all is.
const NAMED_MAX: usize = 3;

/// Tells of a path and of the reason why it was refused.
pub type MayBeGranted<'a> = Box<dyn Fn(&TreePath, &str) -> bool + 'a>;

/// What is known of the command whose changes were refused.
pub struct Remedies<'a> {
    /// The user's home, which is shown as `~`.
    pub home: Option<&'a TreePath>,
    /// Whether the project's file may grant a path that was refused for such a reason.
    pub may_be_granted: MayBeGranted<'a>,
    /// Why the project's file grants nothing, if there is one and it does not.
    pub grants_nothing: Option<&'a str>,
}

impl Remedies<'_> {
    /// The command that allows it for once, if one does.
    pub(super) fn once(&self, refused: &[Refusal]) -> Option<String> {
        // A folder would let more in than was refused: also other files that decide what runs here.
        let by_folder = refused.iter().all(|refusal| (self.may_be_granted)(&refusal.path, &refusal.reason));
        let paths = named(refused.iter().filter(|refusal| refusal.may_be_allowed()), by_folder);
        let options: String = paths.iter().map(|path| format!("--allow-write {} ", self.word(path))).collect();
        (!options.is_empty()).then(|| format!("remrun {options}..."))
    }

    /// The entry of the project's file that grants it, if one does.
    pub(super) fn entry(&self, refused: &[Refusal]) -> Option<String> {
        let may_be = |refusal: &&Refusal| (self.may_be_granted)(&refusal.path, &refusal.reason);
        let paths = named(refused.iter().filter(may_be), true);
        let texts: Option<Vec<String>> = paths.iter().map(|path| self.text(path)).collect();
        let texts = texts.filter(|texts| !texts.is_empty())?;
        Some(format!("write = [\"{}\"]", texts.join("\", \"")))
    }

    /// `text` with the home in its paths as `~`.
    pub(super) fn shortened(&self, text: &str) -> String {
        let Some(home) = self.home.filter(|home| !home.is_root()) else { return text.to_owned() };
        let home = format!("{home}/");
        let mut short = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(&home) {
            short.push_str(&rest[..at]);
            // Not in the middle of another path.
            let begins =
                short.chars().next_back().is_none_or(|before| before.is_whitespace() || "\"'(".contains(before));
            short.push_str(if begins { "~/" } else { &home });
            rest = &rest[at + home.len()..];
        }
        short + rest
    }

    /// `path` as a word for the shell.
    fn word(&self, path: &TreePath) -> String {
        let short = self.shortened(&path.to_string());
        let is_plain = |letter: char| letter.is_alphanumeric() || "/~._-+@%,:=".contains(letter);
        match short.chars().all(is_plain) {
            true => short,
            false => format!("'{}'", path.to_string().replace('\'', r"'\''")),
        }
    }

    /// `path` as it stands in quotes in the project's file; `None` if it would have to be written otherwise.
    fn text(&self, path: &TreePath) -> Option<String> {
        let plain = std::str::from_utf8(path.as_bytes()).ok()?;
        let is_plain = |letter: char| !base::path::is_unseen(letter) && !matches!(letter, '"' | '\\');
        plain.chars().all(is_plain).then(|| self.shortened(plain))
    }
}

/// The paths of these, without those beneath others; if they are many, and it may be, the folder that has all, if it is one by itself.
fn named<'a>(refused: impl Iterator<Item = &'a Refusal>, by_folder: bool) -> Vec<TreePath> {
    let mut paths: Vec<&TreePath> = refused.map(|refusal| &refusal.path).collect();
    paths.sort();
    let mut kept: HashSet<TreePath> = HashSet::new();
    let mut first: Vec<&TreePath> = Vec::new();
    for path in paths {
        if !std::iter::successors(Some(path.clone()), TreePath::parent).any(|above| kept.contains(&above)) {
            kept.insert(path.clone());
            first.push(path);
        }
    }
    if first.len() > NAMED_MAX
        && by_folder
        && let Some(common) = common(&first)
    {
        return vec![common];
    }
    first.into_iter().take(NAMED_MAX).cloned().collect()
}

/// The folder that has all of these, if it is deep enough to be no home and no folder of the system's, and no
/// folder of settings.
fn common(paths: &[&TreePath]) -> Option<TreePath> {
    const DEPTH_MIN: usize = 3;
    let (first, last) = (paths.first()?, paths.last()?);
    let both = first.components().zip(last.components()).take_while(|(one, other)| one == other);
    let folder = both.fold(TreePath::root(), |at, (name, _)| at.join(name));
    let has_all = paths.iter().all(|path| path.is_within(&folder));
    let is_hidden = folder.name().starts_with(b".");
    (has_all && !is_hidden && folder.components().count() >= DEPTH_MIN).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::super::CommitError;
    use super::*;
    use base::TaskId;

    const OUTSIDE: &str = "is outside the write policy";

    fn path(text: &str) -> TreePath {
        TreePath::parse(text.as_bytes()).expect("a normal path")
    }

    fn said(refused: &[(&str, &str)], grants_nothing: Option<&str>) -> String {
        let home = path("/home/u");
        let may_be_granted = Box::new(|_: &TreePath, reason: &str| reason == OUTSIDE);
        let refused = refused.iter().map(|(at, reason)| Refusal { path: path(at), reason: (*reason).to_owned() });
        let remedies = Remedies { home: Some(&home), may_be_granted, grants_nothing };
        CommitError::Refused(refused.collect()).explain(TaskId(0x8f3a_0000 << 96), &remedies, true)
    }

    #[test]
    fn a_refusal_reads_as_promised() {
        assert_eq!(
            said(&[("/home/u/.bashrc", OUTSIDE)], None),
            "remrun: nothing committed: ~/.bashrc is outside the write policy\n  kept: gleaner recover 8f3a0000      \
             once: remrun --allow-write ~/.bashrc ...\n  project: write = [\"~/.bashrc\"] in .gleaner.toml, then gleaner \
             trust"
        );
    }

    #[test]
    fn what_no_file_may_grant_has_no_such_line() {
        let text = said(&[("/home/u/p/.git/hooks/x", "decides what is run here later (.git/hooks)")], None);
        assert!(text.ends_with("once: remrun --allow-write ~/p/.git/hooks/x ..."), "{text}");
        let text = said(&[("/etc/x", crate::policy::COULD_NOT)], None);
        assert!(text.ends_with("gleaner recover 8f3a0000"), "no caller can allow it: {text}");
    }

    #[test]
    fn a_file_that_grants_nothing_is_told_once() {
        let text = said(&[("/srv/x", OUTSIDE), ("/srv/y", OUTSIDE)], Some("it was never trusted"));
        assert!(text.ends_with("\n  .gleaner.toml grants nothing: it was never trusted"), "{text}");
        assert_eq!(text.matches("grants nothing").count(), 1);
    }

    #[test]
    fn paths_are_named_so_that_they_can_be_copied() {
        let text = said(&[("/home/u/a b", OUTSIDE), ("/mnt/home/u/c", OUTSIDE)], None);
        assert!(text.contains("once: remrun --allow-write '/home/u/a b' --allow-write /mnt/home/u/c ..."), "{text}");
        assert!(text.contains("write = [\"~/a b\", \"/mnt/home/u/c\"]"), "{text}");
        let quoted = said(&[("/home/u/it's", OUTSIDE), ("/home/u/say \"x\"", OUTSIDE)], None);
        assert!(quoted.contains(r"'/home/u/it'\''s'") && !quoted.contains("write ="), "{quoted}");
    }

    #[test]
    fn no_folder_is_named_for_what_decides_what_runs_here() {
        const GUARDED: &str = "decides what is run here later";
        let paths: Vec<String> = (0..11).map(|at| format!("/home/u/p/+{at}/.envrc")).collect();
        let mut refused: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "is a decoy")).collect();
        refused.push(("/home/u/p/.git/hooks/pre-commit", GUARDED));
        let text = said(&refused, None);
        assert!(text.contains("~/p/.git/hooks/pre-commit decides"), "the first of each reason is named: {text}");
        assert!(
            text.contains("once: remrun --allow-write ~/p/+0/.envrc --allow-write") && !text.contains("~/p ..."),
            "{text}"
        );
    }

    #[test]
    fn many_paths_are_named_by_their_folder() {
        let of = |folder: &str| {
            let paths: Vec<String> = (0..9).map(|at| format!("{folder}/f{at}")).collect();
            let refused: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), OUTSIDE)).collect();
            said(&refused, None)
        };
        assert!(of("/home/u/out").contains("once: remrun --allow-write ~/out ...\n  project: write = [\"~/out\"]"));
        assert!(of("/home/u/.config").contains("--allow-write ~/.config/f0 --allow-write"));
        let home = of("/home/u");
        assert!(home.contains("--allow-write ~/f0 --allow-write ~/f1 --allow-write ~/f2 ..."), "{home}");
        let nested = said(&[("/home/u/d", OUTSIDE), ("/home/u/d-e", OUTSIDE), ("/home/u/d/x", OUTSIDE)], None);
        assert!(nested.contains("once: remrun --allow-write ~/d --allow-write ~/d-e ..."), "{nested}");
    }
}
