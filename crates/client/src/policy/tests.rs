//! The policies, by tables of commands and paths.

mod granted;
mod outputs;
mod reached;

use super::testing::Marked;
use super::*;

fn path(text: &str) -> TreePath {
    TreePath::parse(text.as_bytes()).unwrap()
}

fn scope(home: &str, uid: u32, cwd: &str, argv: &str, env: &[&str]) -> Scope {
    scope_of(Trust::Others, home, uid, cwd, argv, env)
}

fn scope_of(trust: Trust, home: &str, uid: u32, cwd: &str, argv: &str, env: &[&str]) -> Scope {
    let argv: Vec<Vec<u8>> = argv.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let env: Vec<Vec<u8>> = env.iter().map(|entry| entry.as_bytes().to_vec()).collect();
    let (home, cwd) = (path(home), path(cwd));
    let input = ScopeInput { home: Some(&home), uid, cwd: &cwd, argv: &argv, env: &env, program: &[], trust };
    let roots = &["/home/u/proj", "/root/proj", "/home/u/.dotfiles", "/srv/site"];
    // ~/.netrc is a link to it.
    Scope::new(&input, &Marked { roots, secrets: &["dotfiles/netrc"] })
}

const MINE: FileFacts = FileFacts { uid: 1000, mode: 0o644, directory: false };
const FOLDER: FileFacts = FileFacts { uid: 1000, mode: 0o755, directory: true };

#[derive(Debug, PartialEq)]
enum Sees {
    All,
    Way,
    Nothing,
}

fn sees(policy: &ReadPolicy, text: &str) -> Sees {
    let facts = if text.ends_with('/') { FOLDER } else { MINE };
    let text = if text == "/" { text } else { text.trim_end_matches('/') };
    match policy.decide(&path(text), &facts) {
        Access::Allow => Sees::All,
        Access::Pass => Sees::Way,
        Access::Deny(_) => Sees::Nothing,
    }
}

/// A compiler's in a project, with tools and an environment elsewhere in the home.
fn policy_of_a_project() -> ReadPolicy {
    let env = ["PATH=/usr/bin:/home/u/tools/bin", "VIRTUAL_ENV=/home/u/envs/x", "HOME=/home/u"];
    ReadPolicy::new(scope("/home/u", 1000, "/home/u/proj/src", "gcc -c /home/u/data/in.c -I/home/u/inc", &env))
}

#[test]
fn a_project_and_what_it_names_can_be_read() {
    let policy = policy_of_a_project();
    for all in [
        "/",
        "/usr/include/stdio.h",
        "/etc/passwd",
        "/tmp/x",
        "/opt/tool/bin",
        "/home/",
        "/home/u/proj/",
        "/home/u/proj/a/b.c",
        "/home/u/proj/.env",
        "/home/u/data/in.c",
        "/home/u/inc/deep/x.h",
        "/home/u/tools/bin/t",
        "/home/u/envs/x/lib/p.py",
        "/home/u/.cargo/bin/rustc",
        "/home/u/.rustup/toolchains/s/bin/rustc",
        "/home/u/.gitconfig",
        "/home/u/.local/lib/python3/x.py",
        "/home/u/.cache/pip/x",
        "/home/u/.config/git/config",
    ] {
        assert_eq!(sees(&policy, all), Sees::All, "{all}");
    }
}

#[test]
fn the_rest_of_a_home_cannot_be_read() {
    let policy = policy_of_a_project();
    for way in [
        "/home/u/",
        "/home/u/data/",
        "/home/u/tools/",
        "/home/u/envs/",
        "/home/u/.local/",
        "/home/u/.config/",
        "/home/u/.cache/",
    ] {
        assert_eq!(sees(&policy, way), Sees::Way, "{way}");
    }
    for nothing in [
        "/home/u/diary.txt",
        "/home/u/data/other.c",
        "/home/u/Documents/",
        "/home/u/.ssh/",
        "/home/u/.ssh/id_rsa",
        "/home/u/.aws/config",
        "/home/u/.netrc",
        "/home/u/.mozilla/x",
        "/home/u/.cargo/credentials.toml",
        "/home/u/.config/gh/hosts.yml",
        "/home/u/.bash_history",
        "/home/u/.docker/config.json",
        "/home/u/.npmrc",
        "/home/u/.cache/mozilla/x",
        "/home/u/.local/share/keyrings/x",
        "/home/v/x",
        "/home/v/.bashrc",
        "/root/x",
        "/etc/shadow",
        "/etc/ssh/ssh_host_rsa_key",
        "/run/secrets/x",
        "/home/u/proj/.ssh/config",
        "/home/u/proj/id_ed25519",
        "/home/u/.config/git/credentials",
        "/home/u/.git-credentials",
        "/home/u/keys.kdbx",
        "/tmp/gleaner-1000/instance",
        "/run/user/1000/gleaner/door",
    ] {
        assert_eq!(sees(&policy, nothing), Sees::Nothing, "{nothing}");
    }
    let of_root = FileFacts { uid: 0, mode: 0o644, directory: false };
    assert_eq!(policy.decide(&path("/home/u/vendor.so"), &of_root), Access::Allow);
    let private = FileFacts { mode: 0o600, ..of_root };
    assert!(matches!(policy.decide(&path("/home/u/vendor.so"), &private), Access::Deny(_)));
}

#[test]
fn a_projects_files_are_its_own_whatever_they_are_called() {
    let policy = policy_of_a_project();
    for all in [
        "price_history",
        "src/bash_history.c",
        "token.rs",
        "secret.c",
        "password.py",
        "credentials.rs",
        "id_rsa.pub",
        "key.h",
        ".env",
        ".env.test",
        "tests/server.key",
        "tests/ca.pem",
        "store.jks",
        "known_hosts",
        "secrets/x",
        "netrc",
        "keyrings/x.c",
    ] {
        assert_eq!(sees(&policy, &format!("/home/u/proj/{all}")), Sees::All, "{all}");
    }
    for all in ["/srv/data/price_history", "/etc/ssl/certs/ca.pem", "/usr/share/x/test.key", "/srv/x/.env"] {
        assert_eq!(sees(&policy, all), Sees::All, "whoever may is to read {all}");
    }
    assert_eq!(policy.decide(&path("/home/u/envs/x/lib/certifi/cacert.pem"), &MINE), Access::Allow);
    assert_eq!(policy.decide(&path("/home/u/.cargo/registry/src/x/test.key"), &MINE), Access::Allow);
}

#[test]
fn on_workers_of_ones_own_a_home_is_open_but_for_secrets() {
    let policy = ReadPolicy::new(scope_of(Trust::Own, "/home/u", 1000, "/home/u/work/src", "gcc -c a.c", &[]));
    for all in [
        "/home/u/",
        "/home/u/work/h.h",
        "/home/u/lib/libx.so",
        "/home/u/data/table.csv",
        "/home/u/work/.git/",
        "/home/u/.local/share/tool/x",
        "/home/u/envs/e/bin/python",
        "/home/u/.ssh/",
        "/home/u/notes_history",
        // A name alone tells nothing.
        "/home/u/slides.key",
        "/home/u/certs/ca.pem",
        "/home/v/shared.h",
        "/home/v/",
    ] {
        assert_eq!(sees(&policy, all), Sees::All, "{all}");
    }
    for nothing in [
        "/home/u/.ssh/config",
        "/home/u/.netrc",
        "/home/u/dotfiles/netrc",
        "/home/u/.bash_history",
        "/home/u/.mozilla/x",
        "/home/u/.config/gh/hosts.yml",
        "/home/v/.aws/config",
        "/etc/shadow",
    ] {
        assert_eq!(sees(&policy, nothing), Sees::Nothing, "{nothing}");
    }
    let private = FileFacts { mode: 0o600, ..MINE };
    assert_eq!(policy.decide(&path("/home/u/data/mine.csv"), &private), Access::Allow, "a umask of 077 closes no data");
    assert_eq!(policy.decide(&path("/home/u/.tool/session"), &private), Access::Deny(Denial::Private));
    assert_eq!(policy.decide(&path("/home/u/.bashrc"), &private), Access::Allow);
    assert_eq!(
        policy.decide(&path("/home/u/.python_history"), &private),
        Access::Allow,
        "python reads it at each start"
    );
    let of_other = FileFacts { uid: 1001, mode: 0o640, directory: false };
    assert_eq!(policy.decide(&path("/home/v/x"), &of_other), Access::Deny(Denial::OthersHome));
}

#[test]
fn what_its_owner_has_closed_outside_homes_stays_here() {
    let of = |trust, argv, env: &[&str]| ReadPolicy::new(scope_of(trust, "/home/u", 1000, "/srv/site/src", argv, env));
    let closed = |uid, mode| FileFacts { uid, mode, directory: false };
    for trust in [Trust::Own, Trust::Others] {
        let policy = of(
            trust,
            "make /srv/data/named.csv /srv/whole",
            &["PATH=/usr/bin:/opt/tool/bin", "GLEANER_STATE_DIR=/srv/state"],
        );
        let says = |text: &str, uid, mode| policy.decide(&path(text), &closed(uid, mode));
        for mode in [0o600, 0o400, 0o700, 0o500] {
            for text in [
                "/srv/data/x",
                "/opt/x/secret",
                "/data/token.txt",
                "/srv/state/hub/nodes.json",
                "/tmp/x",
                "/tmp/tmpdir/x",
            ] {
                assert_eq!(says(text, 1000, mode), Access::Deny(Denial::Closed), "{trust:?} {text} {mode:o}");
            }
            for text in ["/srv/site/config", "/srv/data/named.csv", "/srv/whole/deep/x", "/opt/tool/bin/x"] {
                assert_eq!(says(text, 1000, mode), Access::Allow, "{trust:?} {text} {mode:o}");
            }
            assert_eq!(says("/srv/data/x", 0, mode), Access::Deny(Denial::Closed), "of root");
        }
        for mode in [0o644, 0o664, 0o755] {
            assert_eq!(says("/srv/data/x", 1000, mode), Access::Allow, "{mode:o}");
        }
        for mode in [0o640, 0o660] {
            let of_group = says("/srv/data/x", 1000, mode);
            assert_eq!(of_group == Access::Allow, trust == Trust::Own, "{trust:?} {mode:o}: {of_group:?}");
        }
        assert_eq!(
            says("/etc/ppp/chap-secrets", 0, 0o640),
            Access::Deny(Denial::Closed),
            "of the system's settings all that are not everybody's"
        );
        assert_eq!(
            policy.decide(&path("/srv/closed"), &FileFacts { directory: true, ..closed(1000, 0o700) }),
            Access::Allow
        );
    }
    let (own, others) = (of(Trust::Own, "make", &[]), of(Trust::Others, "make", &[]));
    let of_a_moment = |policy: &ReadPolicy, uid| policy.decide(&path("/tmp/tmp.a1B2"), &closed(uid, 0o600));
    assert_eq!(of_a_moment(&own, 1000), Access::Allow, "mktemp closes all that it makes");
    assert_eq!(of_a_moment(&own, 0), Access::Deny(Denial::Closed));
    assert_eq!(of_a_moment(&others, 1000), Access::Deny(Denial::Closed));
    let mut scope = scope_of(Trust::Own, "/home/u", 1000, "/srv/site/src", "make", &[]);
    scope.closes_all = true;
    let with_umask = ReadPolicy::new(scope);
    assert_eq!(
        with_umask.decide(&path("/srv/data/x"), &closed(1000, 0o600)),
        Access::Allow,
        "with a umask of 077 all is closed"
    );
    assert_eq!(with_umask.decide(&path("/srv/data/x"), &closed(1001, 0o600)), Access::Deny(Denial::Closed));
    assert_eq!(with_umask.decide(&path("/etc/x"), &closed(1000, 0o600)), Access::Deny(Denial::Closed));
    assert_ne!(with_umask.fingerprint(), own.fingerprint());
    assert_ne!(
        own.fingerprint(),
        of(Trust::Own, "make /srv/data/x", &[]).fingerprint(),
        "what is named is open to it alone"
    );
}

#[test]
fn a_system_folder_that_is_named_opens_nothing_closed() {
    let policy = ReadPolicy::new(scope_of(
        Trust::Own,
        "/root",
        0,
        "/srv/site",
        "tar c /etc /tmp /var/tmp /etc/ppp/chap-secrets",
        &[],
    ));
    let closed = FileFacts { uid: 0, mode: 0o600, directory: false };
    for text in ["/etc/ppp/chap-secrets", "/tmp/x", "/var/tmp/x", "/etc/crypttab"] {
        assert_eq!(policy.decide(&path(text), &closed), Access::Deny(Denial::Closed), "{text}");
    }
}

#[test]
fn anybodys_workers_get_what_is_named_and_what_is_everybodys() {
    let policy = ReadPolicy::new(scope_of(
        Trust::Anybody,
        "/home/u",
        1000,
        "/home/u/proj",
        "gcc -c a.c",
        &["PATH=/home/u/bin:/usr/bin"],
    ));
    let public = FileFacts { uid: 0, mode: 0o644, directory: false };
    assert_eq!(policy.decide(&path("/usr/include/stdio.h"), &public), Access::Allow);
    assert_eq!(sees(&policy, "/home/u/proj/a.c"), Sees::All);
    for nothing in
        ["/home/u/proj/b.h", "/home/u/bin/tool", "/home/u/.bashrc", "/srv/data/x", "/tmp/x", "/home/u/.ssh/config"]
    {
        assert_eq!(sees(&policy, nothing), Sees::Nothing, "{nothing}");
    }
    assert_eq!(policy.decide(&path("/etc/x"), &FileFacts { mode: 0o640, ..public }), Access::Deny(Denial::Unnamed));
    assert_eq!(sees(&policy, "/home/u/proj/"), Sees::Way);
}

#[test]
fn anybodys_workers_get_no_more_than_others() {
    let command = "grep -r x /home/u/.bash_history /home/u/docs /etc/x.conf";
    for trust in [Trust::Own, Trust::Others, Trust::Anybody] {
        let policy = ReadPolicy::new(scope_of(trust, "/home/u", 0, "/home/u/proj", command, &[]));
        let closed = FileFacts { uid: 0, mode: 0o600, directory: false };
        for (text, denial) in [
            ("/home/u/.bash_history", Denial::Typed),
            ("/home/u/docs/.x_history", Denial::Typed),
            ("/etc/x.conf", Denial::Closed),
        ] {
            assert_eq!(policy.decide(&path(text), &closed), Access::Deny(denial), "{trust:?}: {text}");
        }
    }
}

#[test]
fn whose_the_workers_are_is_in_the_fingerprint() {
    let of = |trust| ReadPolicy::new(scope_of(trust, "/home/u", 1000, "/home/u/proj", "gcc -c a.c", &[])).fingerprint();
    assert_ne!(of(Trust::Own), of(Trust::Others));
    assert_ne!(of(Trust::Anybody), of(Trust::Others));
}

#[test]
fn roots_home_is_a_home() {
    let policy = ReadPolicy::new(scope("/root", 0, "/root/proj", "make", &[]));
    let of_root = FileFacts { uid: 0, mode: 0o644, directory: false };
    assert!(matches!(policy.decide(&path("/root/notes"), &of_root), Access::Deny(_)));
    assert_eq!(policy.decide(&path("/root/proj/x"), &of_root), Access::Allow);
    assert!(matches!(policy.decide(&path("/home/u/x"), &of_root), Access::Deny(_)));
    assert_eq!(policy.decide(&path("/usr/bin/gcc"), &of_root), Access::Allow);
}

#[test]
fn reading_at_home() {
    let policy = ReadPolicy::new(scope("/home/u", 1000, "/home/u", "gcc hello.c -o hello -Iinc", &[]));
    for all in ["/home/u/hello.c", "/home/u/hello.h", "/home/u/inc/x.h", "/home/u/"] {
        assert_eq!(sees(&policy, all), Sees::All, "{all}");
    }
    for nothing in ["/home/u/.secrets", "/home/u/Documents/", "/home/u/Documents/x", "/home/u/id_rsa"] {
        assert_eq!(sees(&policy, nothing), Sees::Nothing, "{nothing}");
    }
}

#[test]
fn an_unset_home_closes_nothing_but_homes() {
    let policy = ReadPolicy::new(scope("/", 1000, "/srv/site", "make", &[]));
    assert_eq!(sees(&policy, "/srv/other"), Sees::All);
    assert_eq!(sees(&policy, "/home/v/x"), Sees::Nothing);
}

#[test]
fn arguments_in_the_project_do_not_change_the_fingerprint() {
    let of = |argv| ReadPolicy::new(scope("/home/u", 1000, "/home/u/proj", argv, &[])).fingerprint();
    assert_eq!(of("gcc -c a.c"), of("gcc -c b.c /usr/lib/x.o"));
    assert_ne!(of("gcc -c a.c"), of("gcc -c /home/u/other.c"));
}

#[derive(Debug, PartialEq)]
enum Becomes {
    Kept,
    Dropped,
    Refused,
}

const NEW: WriteFacts = WriteFacts {
    owner: None,
    directory: false,
    may_write: true,
    new_repository: false,
    goes_with_all: false,
    is_no_root: false,
    in_folder_of_service: false,
};
const OWN: WriteFacts = WriteFacts { owner: Some(1000), ..NEW };

fn becomes(policy: &WritePolicy, text: &str, facts: &WriteFacts) -> Becomes {
    match policy.decide(&path(text), facts) {
        WriteDecision::Commit => Becomes::Kept,
        WriteDecision::Scratch(_) => Becomes::Dropped,
        WriteDecision::Refuse(why) => {
            assert!(why.starts_with(text), "{why}");
            Becomes::Refused
        }
    }
}

fn writing_policy_of_a_project() -> WritePolicy {
    let env = ["VIRTUAL_ENV=/home/u/envs/x"];
    let argv =
        "ffmpeg -i /home/u/in/a.mov -o /home/u/Videos/x.mp4 --log=/srv/log/y.log /home/u/.bashrc /home/u/docs/p.tex";
    WritePolicy::new(scope("/home/u", 1000, "/home/u/proj/src", argv, &env), vec![path("/home/u/.allowed")])
}

#[test]
fn what_a_project_makes_is_kept_and_caches_are_dropped() {
    let policy = writing_policy_of_a_project();
    for kept in [
        "/home/u/proj/a.o",
        "/home/u/proj/.git/index",
        "/home/u/proj/.git/objects/ab/c",
        "/home/u/proj/.git/modules/a/index",
        "/home/u/proj/.git/modules/a/refs/heads/hooks/config",
        "/home/u/proj/store.jks",
        "/home/u/proj/.cache/x",
        "/home/u/Videos/x.mp4",
        "/home/u/envs/x/lib/y.py",
        "/home/u/envs/x/lib/__pycache__/y.pyc",
        "/tmp/cc1.s",
        "/var/tmp/x",
        "/srv/log/y.log",
        "/home/u/.allowed",
        "/home/u/docs/p.pdf",
        "/home/u/docs/p.tex",
        "/home/u/proj/__pycache__/x.pyc",
    ] {
        assert_eq!(becomes(&policy, kept, &OWN), Becomes::Kept, "{kept}");
        assert_eq!(becomes(&policy, kept, &NEW), Becomes::Kept, "{kept}");
    }
    for dropped in [
        "/home/u/.cache/pip/x",
        "/home/u/.cargo/registry/x",
        "/home/u/.npm/x",
        "/usr/lib/python3/__pycache__/x.pyc",
        "/var/cache/x",
        "/home/u/.python_history",
        "/home/u/.local/lib/python3/__pycache__/y.pyc",
    ] {
        assert_eq!(becomes(&policy, dropped, &NEW), Becomes::Dropped, "{dropped}");
    }
    let directory = WriteFacts { directory: true, ..NEW };
    assert_eq!(becomes(&policy, "/home/u/Videos", &directory), Becomes::Kept, "made on the way to an output");
    for above in ["/home/u/.config", "/home/u/.config/go", "/home/u/.local/share"] {
        assert_eq!(becomes(&policy, above, &directory), Becomes::Dropped, "{above} is made on the way to a cache");
        assert_eq!(becomes(&policy, above, &NEW), Becomes::Refused, "{above} is a file");
        assert_eq!(
            becomes(&policy, above, &WriteFacts { directory: true, ..OWN }),
            Becomes::Refused,
            "{above} is there"
        );
    }
    assert_eq!(becomes(&policy, "/home/u/.config/go/telemetry/local/x", &NEW), Becomes::Dropped);
    assert_eq!(becomes(&policy, "/home/u/.config/go/env", &NEW), Becomes::Refused);
}

#[test]
fn what_runs_later_and_what_is_elsewhere_is_refused() {
    let policy = writing_policy_of_a_project();
    for refused in [
        "/home/u/.bashrc",
        "/home/u/notes.txt",
        "/home/u/.ssh/authorized_keys",
        "/home/u/proj/.git/config",
        "/home/u/proj/.git/hooks/pre-commit",
        "/home/u/proj/.envrc",
        "/home/u/proj/.vscode/tasks.json",
        "/home/u/proj/.cargo/config.toml",
        "/home/u/proj/.github/workflows/ci.yml",
        "/home/u/proj/.gleaner.toml",
        "/home/u/proj/sub/.git/hooks/post-checkout",
        "/home/u/proj/.git/modules/a/b/config",
        "/home/u/proj/.git/modules/a/hooks/post-merge",
        "/home/u/proj/.git/worktrees/w/config.worktree",
        "/home/u/proj/w/worktrees/.git/commondir",
        "/home/u/proj/.git/worktrees/.git/commondir",
        "/home/u/proj/.sl/config",
        "/home/u/proj/.roo/mcp.json",
        "/home/u/proj/.Renviron",
        "/etc/passwd",
        "/usr/bin/x",
        "/home/v/x",
        "/tmp",
        "/home/u",
        "/srv/other",
        "/home/u/Videos/y.mp4",
        "/home/u/docs/q.pdf",
        "/home/u/.config/autostart/x",
        "/run/systemd/system/x.service",
        "/run/user/1000/systemd/user/x.service",
        "/run/user/1000/gleaner/door",
        "/run/x/.git/hooks/post-merge",
    ] {
        assert_eq!(becomes(&policy, refused, &NEW), Becomes::Refused, "{refused}");
    }
    assert_eq!(becomes(&policy, "/tmp/others", &WriteFacts { owner: Some(0), ..NEW }), Becomes::Refused);
    assert_eq!(becomes(&policy, "/home/u/proj/x", &WriteFacts { may_write: false, ..NEW }), Becomes::Refused);
}

/// Who names a folder to read it has not said that all of it may be replaced.
#[test]
fn where_programs_and_settings_are_only_what_is_named_itself_is_written() {
    let decides = |trust, uid, argv: &str, text: &str, facts: &WriteFacts| {
        let scope = scope_of(trust, "/home/u", uid, "/srv/site", argv, &["PATH=/usr/bin:/home/u/bin"]);
        becomes(&WritePolicy::new(scope, Vec::new()), text, facts)
    };
    let of_root = WriteFacts { owner: Some(0), ..OWN };
    for (uid, argv, text, facts, want) in [
        (0, "grep -r x /etc", "/etc/cron.d/evil", &NEW, Becomes::Refused),
        (0, "ls /usr/bin", "/usr/bin/git", &of_root, Becomes::Refused),
        (0, "ls /usr/bin/git", "/usr/bin/git-x", &NEW, Becomes::Refused),
        (0, "cp tool /usr/local/bin", "/usr/local/bin/tool", &of_root, Becomes::Kept),
        (0, "cp tool /usr/local/bin", "/usr/local/bin/other", &NEW, Becomes::Refused),
        (0, "gcc -o /usr/local/bin/tool a.c", "/usr/local/bin/tool", &of_root, Becomes::Kept),
        (0, "make DESTDIR=/opt/x install", "/opt/x/usr/bin/t", &NEW, Becomes::Kept),
        (1000, "ls /home/u/bin", "/home/u/bin/git", &OWN, Becomes::Refused),
        (1000, "install tool /home/u/bin", "/home/u/bin/tool", &OWN, Becomes::Kept),
        (1000, "cp -r tool /home/u/bin", "/home/u/bin/tool/lib/x", &NEW, Becomes::Kept),
        (1000, "cp -r tool /home/u/bin", "/home/u/bin/other/x", &NEW, Becomes::Refused),
        (1000, "tar x -C /home/u/bin/tool", "/home/u/bin/tool/x", &NEW, Becomes::Kept),
        (1000, "ls -R /home/u", "/home/u/bin/git", &OWN, Becomes::Refused),
        (1000, "tar x -C /home/u/data", "/home/u/data/x", &OWN, Becomes::Kept),
    ] {
        for trust in [Trust::Own, Trust::Others] {
            assert_eq!(decides(trust, uid, argv, text, facts), want, "{trust:?} {argv}: {text}");
        }
    }
    let of_hosts = |trust| decides(trust, 0, "sed -i s/a/b/ /etc/hosts", "/etc/hosts", &of_root);
    assert_eq!((of_hosts(Trust::Own), of_hosts(Trust::Others)), (Becomes::Kept, Becomes::Refused));
}

#[test]
fn what_services_have_in_run_is_not_replaced() {
    let policy = writing_policy_of_a_project();
    for refused in ["/run/user/1000/bus", "/run/user/1000/keyring/control", "/run/user/1000/environment.d/x.conf"] {
        assert_eq!(becomes(&policy, refused, &NEW), Becomes::Refused, "{refused}");
    }
    assert_eq!(becomes(&policy, "/run/user/1000/x.sock", &OWN), Becomes::Refused);
    assert_eq!(becomes(&policy, "/run/user/1000/x.pid", &NEW), Becomes::Kept);
}

#[test]
fn a_new_repository_has_samples_of_hooks() {
    let policy = WritePolicy::new(scope("/home/u", 1000, "/home/u/proj/src", "git init x", &[]), Vec::new());
    let new = WriteFacts { new_repository: true, ..NEW };
    assert_eq!(becomes(&policy, "/home/u/proj/.git/hooks/x.sample", &new), Becomes::Kept);
    assert_eq!(becomes(&policy, "/home/u/proj/.git/hooks/x.sample", &NEW), Becomes::Refused);
    assert_eq!(becomes(&policy, "/home/u/proj/.git/hooks/pre-commit", &new), Becomes::Refused);
    assert_eq!(becomes(&policy, "/home/u/proj/.git/config", &new), Becomes::Refused);
}

#[test]
fn writing_at_home() {
    let policy = WritePolicy::new(scope("/home/u", 1000, "/home/u", "gcc hello.c -o hello", &[]), Vec::new());
    for (text, facts, want) in [
        ("/home/u/hello", &OWN, Becomes::Kept),
        ("/home/u/hello.o", &OWN, Becomes::Kept),
        ("/home/u/a.out", &OWN, Becomes::Kept),
        ("/home/u/new.txt", &NEW, Becomes::Kept),
        ("/home/u/newdir/x", &NEW, Becomes::Kept),
        ("/home/u/thesis.tex", &OWN, Becomes::Refused),
        ("/home/u/.new", &NEW, Becomes::Refused),
        ("/home/u/.profile", &OWN, Becomes::Refused),
    ] {
        assert_eq!(becomes(&policy, text, facts), want, "{text}");
    }
}

#[test]
fn projects_in_dot_folders_need_a_marker() {
    let marked = WritePolicy::new(scope("/home/u", 1000, "/home/u/.dotfiles/x", "make", &[]), Vec::new());
    assert_eq!(becomes(&marked, "/home/u/.dotfiles/y", &NEW), Becomes::Kept);
    let plain = WritePolicy::new(scope("/home/u", 1000, "/home/u/.config/x", "make", &[]), Vec::new());
    assert_eq!(becomes(&plain, "/home/u/.config/x/y", &NEW), Becomes::Refused);
}

#[test]
fn outside_homes_the_project_rule_is_the_same() {
    let policy =
        WritePolicy::new(scope("/home/u", 1000, "/srv/site/a", "make DESTDIR=/opt/x install", &[]), Vec::new());
    for (text, want) in [
        ("/srv/site/b", Becomes::Kept),
        ("/opt/x/usr/bin/t", Becomes::Kept),
        ("/srv/else", Becomes::Refused),
        ("/home/u/x", Becomes::Refused),
    ] {
        assert_eq!(becomes(&policy, text, &NEW), want, "{text}");
    }
}
