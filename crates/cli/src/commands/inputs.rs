//! Files that a command reads must outlast the one that it writes: writing begins with cutting the file to nothing.

use crate::error::{CliError, Result};
use std::fs::{File, Metadata};
use std::io::stdin;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where a command reads from.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    File(&'a Path),
    Stdin,
}

impl Input<'_> {
    fn metadata(self) -> std::io::Result<Metadata> {
        match self {
            Self::File(path) => path.metadata(),
            Self::Stdin => File::from(stdin().as_fd().try_clone_to_owned()?).metadata(),
        }
    }
}

/// Refuses a drawing that would replace one of the files that `--trace` reads, by whatever name or link. What is not there
/// yet, or cannot be looked at, is left to whoever opens it.
pub fn keep<'a>(inputs: impl IntoIterator<Item = Input<'a>>, drawing: &Path) -> Result {
    // Nothing is lost of a pipe or a terminal that is both.
    let Some(there) = drawing.metadata().ok().filter(Metadata::is_file) else { return Ok(()) };
    let is_it = |input: &Metadata| (input.dev(), input.ino()) == (there.dev(), there.ino());
    let Some(input) = inputs.into_iter().find(|input| input.metadata().is_ok_and(|input| is_it(&input))) else {
        return Ok(());
    };
    let name = match input {
        Input::File(path) => path.display().to_string(),
        Input::Stdin => "standard input".to_owned(),
    };
    let what = format!(
        "--draw {}: it is the file that --trace reads ({name}); the drawing would replace the values",
        drawing.display()
    );
    Err(CliError::user(what).hint("nothing was written; name another file: --draw FILE.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_that_is_read_is_not_drawn_over_by_any_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("load.csv"), "1\n").expect("written");
        std::fs::write(at("other.csv"), "1\n").expect("written");
        symlink("load.csv", at("link")).expect("linked");
        std::fs::hard_link(at("load.csv"), at("second")).expect("linked");
        symlink("nowhere.svg", at("new")).expect("linked");
        let (load, other, missing) = (at("load.csv"), at("other.csv"), at("missing"));
        let inputs = || [&missing, &other, &load].map(|path| Input::File(path));
        for name in ["load.csv", "./load.csv", "link", "second"] {
            let error = keep(inputs(), &at(name)).expect_err("it is read").message;
            assert!(error.contains("the file that --trace reads (") && error.contains("load.csv)"), "{name}: {error}");
        }
        for name in ["load.svg", "new", "no/such/folder"] {
            keep(inputs(), &at(name)).expect("it is not there yet");
        }
        keep([Input::File(&other)], &load).expect("another file");
        let null = Path::new("/dev/null");
        keep([Input::File(null), Input::Stdin], null).expect("no file");
    }
}
