//! What the mirror costs when it is warm.

use super::*;

/// Prints what warm calls cost.
#[test]
fn warm_costs() {
    let Some(world) = World::new() else { return };
    fs::write(world.at("f"), [7; 4096]).expect("the client can write");
    let lane = world.launch();
    let merged = overlay(&world, &lane, "task");
    for (name, top) in [("native", world.at("")), ("mirror", lane.path()), ("overlay", merged.clone())] {
        let (file, absent) = (top.join("f"), top.join("absent"));
        let time = |what: &dyn Fn()| {
            what();
            let started = Instant::now();
            (0..2000).for_each(|_| what());
            started.elapsed().as_nanos() / 2000
        };
        let stat = |path: &Path| rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map(|stat| stat.st_ino).ok();
        let (stat_ns, absent_ns) =
            (time(&|| assert!(stat(&file).is_some())), time(&|| assert!(stat(&absent).is_none())));
        let read_ns = time(&|| drop(fs::read(&file)));
        println!("{name}: stat {stat_ns} ns, absent {absent_ns} ns, open+read+close of 4 KiB {read_ns} ns");
    }
    let (_, asked) = world.asked(|| fs::read(merged.join("f")).expect("mirrored"));
    assert_eq!(asked, Counters::default(), "warm, nothing is asked");
    end_overlay(&merged);
    drop(lane);
    let mut update = world.client.launch();
    let mut take = |changed: u64| {
        let started = Instant::now();
        for round in 0..200 {
            // Paths that the kernel was told to be absent, bound anew each time.
            let bound = |at| Bound {
                path: path_of(&format!("/name{at}")),
                seq: Seq(1_000_000 + update.version.0 * 1000 + at),
                binding: if round % 2 == 0 { Binding::Denied } else { Binding::Absent },
            };
            if changed > 0 {
                update = ViewUpdate {
                    base: update.version,
                    version: Version(update.version.0 + 1),
                    set: (0..changed).map(bound).collect(),
                    ..update.clone()
                };
                world.mirror.apply(&update).expect("the updates are in order");
            }
            let lane = world.mirror.take_lane(VIEW, update.version, TaskId(7)).expect("just applied");
            (0..changed).for_each(|at| drop(fs::symlink_metadata(lane.path().join(format!("name{at}")))));
        }
        started.elapsed().as_nanos() / 200
    };
    println!("a lane taken and released: {} ns; with 10 changes, each looked up: {} ns", take(0), take(10));
}
