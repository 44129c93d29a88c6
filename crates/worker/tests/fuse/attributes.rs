//! Extended attributes, in mirrors that show them and in those that do not.

use super::*;
use rustix::fs::XattrFlags;

/// A client with attributes, and a mirror that shows them or not.
fn attributed(shown: bool) -> Option<World> {
    let world = World::with(|options| options.with_xattrs = shown, |client| client.with_xattrs = true)?;
    fs::write(world.at("f"), b"f").expect("the client can write");
    fs::create_dir(world.at("d")).expect("the client can make folders");
    for name in ["f", "d"] {
        rustix::fs::setxattr(world.at(name), "user.colour", b"red", XattrFlags::empty()).expect("ext4 has them");
    }
    Some(world)
}

#[test]
fn attributes_in_the_user_namespace() {
    let Some(world) = attributed(true) else { return };
    let lane = world.launch();
    let merged = overlay(&world, &lane, "task");
    for top in [lane.path(), merged.clone()] {
        let mut value = [0; 16];
        assert_eq!(rustix::fs::getxattr(top.join("d"), "user.colour", &mut value[..]), Ok(3));
        let none = rustix::fs::getxattr(top.join("f"), "user.size", &mut value[..]);
        assert_eq!(none, Err(rustix::io::Errno::NODATA));
        let len = rustix::fs::listxattr(top.join("f"), &mut value[..]).unwrap_or(0);
        assert_eq!(&value[..len], b"user.colour\0");
    }
    end_overlay(&merged);
}

#[test]
fn attributes_that_a_mirror_does_not_show_are_noticed() {
    let Some(world) = attributed(false) else { return };
    fs::write(world.at("plain"), b"p").expect("the client can write");
    let lane = world.launch();
    assert_eq!(fs::read(lane.path().join("plain")).expect("mirrored"), b"p");
    assert!(!misses_xattrs(&lane, 50), "none came up");
    reading_misses(&lane, "f");
}

#[test]
fn attributes_whose_values_stay_at_the_client_are_noticed() {
    let Some(world) = attributed(true) else { return };
    let kept_back = base::Xattr::kept_back(b"user.kept".to_vec()).value;
    fs::write(world.at("closed"), b"c").expect("the client can write");
    rustix::fs::setxattr(world.at("closed"), "user.kept", &kept_back, XattrFlags::empty()).expect("ext4 has them");
    let lane = world.launch();
    assert_eq!(fs::read(lane.path().join("f")).expect("mirrored"), b"f");
    assert!(!lane.keeps_xattrs_back() && !misses_xattrs(&lane, 50), "none came up");
    reading_misses(&lane, "closed");
    drop(lane);
    let lane = world.launch();
    assert_eq!(fs::read(lane.path().join("closed")).expect("mirrored"), b"c");
    assert!(lane.keeps_xattrs_back() && !misses_xattrs(&lane, 50), "it is known");
}

/// Whether a path with attributes that are not shown comes up within so many milliseconds.
fn misses_xattrs(lane: &LaneGuard, wait_ms: u64) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let missed = async { tokio::time::timeout(std::time::Duration::from_millis(wait_ms), lane.xattrs_missed()).await };
    runtime.block_on(missed).is_ok()
}

fn reading_misses(lane: &LaneGuard, name: &str) {
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| fs::read(lane.path().join(name)));
        assert!(misses_xattrs(lane, 10_000), "one came up");
        assert!(!reading.is_finished(), "who asked waits to be killed");
        lane.cancel();
        assert!(reading.join().expect("ends").is_err());
    });
}
