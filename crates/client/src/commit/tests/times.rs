//! Times of the last access: set where the delta has one, else left as they are.

use super::*;

#[test]
fn times_of_the_last_access_are_set_or_stay() {
    let scene = Scene::new("for f in a b c d e; do echo $f > $f; done; ln d d2; mkdir g h");
    // In the future, so that no look moves them.
    let before = Time(4_000_000_000_500_000_000);
    scene.shell("touch -a -d @4000000000.5 a b c d e g h");
    let saw = scene.saw();
    let (second, set) = (1_000_000_000, Time(-7_250_000_000));
    Task::new(&saw)
        .write("/a", "replaced")
        .file("/b", "", 0o600, FileChange::Attributes)
        .append("/c", "c\nmore", 2)
        .write("/d", "written in place")
        .file("/e", "", 0o644, FileChange::Attributes)
        .accessed(set)
        .directory("/g", 0o755)
        .accessed(set)
        .directory("/h", 0o700)
        .write("/new", "n")
        .accessed(set)
        .symlink("/link", "a")
        .accessed(set)
        .directory("/made", 0o755)
        .accessed(Time(3 * second))
        .commit(&scene.committer(), 1)
        .expect("commits");
    let accessed = |at: &str| {
        let meta = scene.at(at).symlink_metadata().expect("is there");
        Time::from_parts(meta.atime(), meta.atime_nsec())
    };
    for kept in ["/a", "/b", "/c", "/d", "/d2", "/h"] {
        assert_eq!(accessed(kept), before, "{kept}");
    }
    for given in ["/e", "/g", "/new", "/link"] {
        assert_eq!(accessed(given), set, "{given}");
    }
    assert_eq!(accessed("/made"), Time(3 * second));
}
