//! What is an output of a command, and what is not, though it is named or lies where it works.

use super::*;

/// What is named to be run may be read; whatever its result says, it stays as it is.
#[test]
fn a_program_is_no_output_of_its_own() {
    let policy =
        |argv: &str| WritePolicy::new(scope("/root", 0, "/srv/w", argv, &["PATH=/root/bin:/usr/bin"]), Vec::new());
    let own = WriteFacts { owner: Some(0), ..NEW };
    for (argv, program) in [
        ("/usr/bin/make all", "/usr/bin/make"),
        ("env A=1 timeout 5 /usr/local/bin/tool", "/usr/local/bin/tool"),
        ("sh -c /root/bin/tool", "/root/bin/tool"),
        ("/mnt/tools/tool", "/mnt/tools/tool"),
    ] {
        assert_eq!(becomes(&policy(argv), program, &own), Becomes::Refused, "{argv}");
    }
    assert_eq!(becomes(&policy("install -m755 tool /usr/local/bin/tool"), "/usr/local/bin/tool", &own), Becomes::Kept);
    assert_eq!(becomes(&policy("/srv/w/tool"), "/srv/w/tool", &own), Becomes::Kept, "the project's own");
    let of_service = WriteFacts { in_folder_of_service: true, ..NEW };
    for note in ["/run/tool.pid", "/run/tool", "/run/tool/state"] {
        assert_eq!(becomes(&policy("tool"), note, &NEW), Becomes::Kept, "{note}");
    }
    assert_eq!(becomes(&policy("tool"), "/run/sshd/tool.pid", &of_service), Becomes::Kept);
    assert_eq!(becomes(&policy("tool"), "/run/sshd/tool", &of_service), Becomes::Refused);
    for told in ["/run/userdb/x.user", "/run/depmod.d/x.conf", "/run/initramfs/shutdown", "/run/nologin"] {
        assert_eq!(becomes(&policy("tool"), told, &NEW), Becomes::Refused, "{told}");
    }
}

#[test]
fn an_output_that_is_named_is_never_dropped_without_a_word() {
    let argv = "cp a /home/u/.cache/out.txt /home/u/.gradle/init.gradle";
    let policy = WritePolicy::new(scope("/home/u", 1000, "/home/u/p", argv, &[]), Vec::new());
    for named in ["/home/u/.cache/out.txt", "/home/u/.gradle/init.gradle"] {
        assert_eq!(becomes(&policy, named, &NEW), Becomes::Refused, "{named}");
    }
    assert_eq!(becomes(&policy, "/home/u/.cache/other", &NEW), Becomes::Dropped);
    let mut scope = scope("/home/u", 1000, "/home/u/p", "make", &[]);
    scope.closed.push(path("/home/u/p/ssh"));
    assert_eq!(
        becomes(&WritePolicy::new(scope, Vec::new()), "/home/u/p/ssh/config", &NEW),
        Becomes::Refused,
        "a link leads there"
    );
}

#[test]
fn integration_counts_at_the_root_of_a_repository() {
    let policy = writing_policy_of_a_project();
    let inner = WriteFacts { is_no_root: true, ..OWN };
    assert_eq!(becomes(&policy, "/home/u/proj/node_modules/a/.travis.yml", &inner), Becomes::Kept);
    assert_eq!(becomes(&policy, "/home/u/proj/vendor/.npmrc", &inner), Becomes::Refused);
    assert_eq!(becomes(&policy, "/home/u/proj/.github/workflows/a.yml", &OWN), Becomes::Refused);
    let removed = WriteFacts { goes_with_all: true, ..OWN };
    assert_eq!(becomes(&policy, "/home/u/proj/clone/.git/config", &removed), Becomes::Kept);
}

#[test]
fn programs_are_not_put_into_a_home() {
    let policy =
        WritePolicy::new(scope("/home/u", 1000, "/home/u", "sh x.sh", &["PATH=/home/u/tools:/usr/bin"]), Vec::new());
    for program in ["/home/u/bin/ls", "/home/u/tools/ls", "/home/u/go/bin/x", "/home/u/R/lib/x"] {
        assert_eq!(becomes(&policy, program, &NEW), Becomes::Refused, "{program}");
    }
    assert_eq!(becomes(&policy, "/home/u/notes/x", &NEW), Becomes::Kept);
}

#[test]
fn what_variables_name_as_settings() {
    let env = ["XDG_CONFIG_HOME=/home/u/p/cfg", "GIT_CONFIG_GLOBAL=/home/u/p/gitconfig", "ENV=production"];
    let policy = WritePolicy::new(scope("/home/u", 1000, "/home/u/p", "make", &env), Vec::new());
    let said = |at: &str| policy.variable_of_settings(&path(at));
    assert_eq!(said("/home/u/p/gitconfig"), Some("GIT_CONFIG_GLOBAL"));
    assert_eq!(said("/home/u/p/cfg/git/config"), Some("XDG_CONFIG_HOME"));
    assert_eq!([said("/home/u/p/cfg/app/state"), said("/home/u/p/production"), said("/home/u/p")], [None; 3]);
}

/// Who makes what a hub knows its own account by, or reads it, is taken for that account.
#[test]
fn what_this_program_is_known_by_is_neither_made_nor_read() {
    let argv = "tar x -C /dev/shm /tmp/gleaner-1000 /dev/shm/gleaner-1000";
    let policy = WritePolicy::new(scope("/home/u", 1000, "/home/u/proj", argv, &[]), Vec::new());
    let at_shm = WritePolicy::new(scope("/dev/shm", 1000, "/dev/shm/p", "make", &[]), Vec::new());
    let own = ReadPolicy::new(scope_of(Trust::Own, "/home/u", 1000, "/home/u/proj", argv, &[]));
    let others = ReadPolicy::new(scope("/home/u", 1000, "/home/u/proj", argv, &[]));
    for secret in ["/dev/shm/gleaner-1000", "/dev/shm/.gleaner-00112233", "/tmp/gleaner-1000/instance"] {
        for facts in [NEW, OWN] {
            assert_eq!(becomes(&policy, secret, &facts), Becomes::Refused, "{secret}");
            assert_eq!(becomes(&at_shm, secret, &facts), Becomes::Refused, "{secret}");
        }
        assert_eq!([sees(&own, secret), sees(&others, secret)], [Sees::Nothing, Sees::Nothing], "{secret}");
    }
    assert_eq!(becomes(&policy, "/dev/shm/sem.x", &NEW), Becomes::Kept);
}
