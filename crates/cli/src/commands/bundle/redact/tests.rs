//! What must not come through, and what must.

use super::*;
use serde_json::json;

fn text(text: &str) -> String {
    Redactor::default().text(text)
}

/// Lines with a secret of letters and digits that look like an ordinary word, so that only its place gives it away.
#[test]
fn what_stands_behind_a_name_that_sounds_secret_is_left_out() {
    let lines = [
        "password = hunter two",
        "password=hunter",
        "Password: hunter",
        "db.password=\"hunter\"",
        "  \"passphrase\" : \"a hunter\", \"b\": 1",
        "{\\\"api_key\\\":\\\"hunter\\\"}",
        "'secret-key': 'hunter'",
        "apiKey: hunter",
        "API key: hunter",
        "aws_secret_access_key=hunter",
        "export GITHUB_TOKEN=hunter",
        "x env=[\"CI_JOB_TOKEN=hunter\"]",
        "Authorization: Bearer hunter",
        "authorization: Basic hunter",
        "cookie: a=b; session=hunter",
        "Set-Cookie: sid=hunter; path=/",
        "curl -H 'X-Api-Key: hunter' host",
        "curl -u admin:hunter http://host/",
        "mysql --password hunter",
        "mysql --password=hunter",
        "tool --auth-token hunter --verbose",
        "got Bearer hunter from there",
        "the password is hunter2 now",
        "login u password hunter2",
        "postgres://gleaner:hunter@db/gleaner",
        "postgres://gleaner:hun/ter@db/gleaner",
        "key = \"\"\"hunter\"\"\"",
        "the passphrase was hunter, they said",
        "GET /x?token=hunter&y=1",
        "secret := hunter",
        "token => hunter",
        "pwd=hunter",
        "node{key=hunter}",
        "private_key: |hunter",
    ];
    for line in lines {
        let shown = text(line);
        assert!(!shown.contains("hunter") && !shown.contains("hun/ter"), "{line} became {shown}");
        assert!(shown.contains(LEFT_OUT), "{line} became {shown}");
    }
}

#[test]
fn what_has_the_shape_of_a_key_is_left_out() {
    let secrets = [
        "gleaner1-00ff00ff",
        "ghp_abcdefghijkl",
        "github_pat_11ABCDEFG0",
        "glpat-abcdefghij",
        "xoxb-1234-abcdefgh",
        "sk-abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "9F86D081884C7D659A2FEAA0C55AD015",
        "5f2b1c9e-7d43-4c38-9f57-0f6f2d1b8e6a",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "bPxRfiCY9EXAMP7LEKEY3zz",
        "MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF",
        "JBSWY3DPEHPK3PXP",
        "k3j4h5k3j4h5kj3h45h34k5j",
    ];
    for secret in secrets {
        let beside = [secret.to_owned(), format!("x={secret} y"), format!("a \"{secret}\", b")];
        // With `/` in it it could be a part of a path.
        let in_path = (!secret.contains('/')).then(|| format!("/a/{secret}"));
        for line in beside.into_iter().chain(in_path) {
            let shown = text(&line);
            assert!(!shown.contains(secret), "{line} became {shown}");
        }
    }
    let bytes = "read [48, 83, 2, 1, 1, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32] there";
    assert_eq!(text(bytes), format!("read [{LEFT_OUT}] there"));
    let block = "a\n-----BEGIN PRIVATE KEY-----\nMC4C\nfoo\n-----END PRIVATE KEY-----\nb\n";
    assert_eq!(text(block), format!("a\n{LEFT_OUT}\nb\n"));
    assert_eq!(text("a -----BEGIN EC PRIVATE KEY-----\nfoo\nbar"), format!("a {LEFT_OUT}"), "one that is cut off");
}

#[test]
fn what_is_known_to_be_secret_is_left_out_however_it_is_written() {
    let mut redactor = Redactor::default();
    redactor.knows("correct horse\nbattery staple");
    redactor.knows("tiny");
    redactor.knows_bytes(&[0xab, 0xcd, 0xef, 1]);
    for line in ["x correct horse y", "\"correct horse\\nbattery staple\"", "battery staple", "ABCDEF01", "0xabcdef01"]
    {
        let shown = redactor.text(line);
        assert!(shown.contains(LEFT_OUT) && !shown.contains("horse") && !shown.contains("staple"), "{line}: {shown}");
    }
    assert_eq!(redactor.text("tiny"), "tiny", "it would be part of words");
    assert!(redactor.take_counts()["known values"] >= 5);
    assert!(redactor.take_counts().is_empty());
}

#[test]
fn a_colour_between_name_and_value_hides_nothing() {
    let line = "\u{1b}[3mpassword\u{1b}[0m\u{1b}[2m=\u{1b}[0m\"hunter\" \u{1b}[";
    assert_eq!(text(line), format!("password=\"{LEFT_OUT}\" "));
}

#[test]
fn passwords_of_addresses_are_known_as_they_are_meant() {
    let found = passwords_in_addresses("journal = \"postgres://g:a%40b%zz@h/d\"\nhttp://h/x@y");
    assert_eq!(found, ["a@b%zz", "a%40b%zz"]);
    assert!(is_secret_variable("X", "ghp_abc") && is_secret_variable("PGPASSWORD", "x"));
    assert!(!is_secret_variable("X", "y") && !is_secret_variable("PATH", "/bin"));
}

/// A bundle is of use only if what happened can be read in it.
#[test]
fn what_tells_what_happened_stays() {
    let lines = [
        "2026-11-27T09:13:40.123456Z  INFO hub::greet: joined node=1f00aa22 name=\"desk\" role=\"worker\"",
        "2026-11-27T09:13:40Z  WARN worker::fuse::serve: requests to the mirror ended unanswered late=3 killed=1",
        "the hub cannot be reached; trying again error=no answer within 5 s",
        "reading /usr/lib/x86_64-linux-gnu/libc.so.6: No such file or directory (os error 2)",
        "/home/ada/src/gleaner/target/debug/deps/libworker-rlib.so",
        "no tokens could be made",
        "the key of a worker is used twice: its state folder was copied",
        "PWD=/home/ada/src",
        "hub at 10.0.0.5:7433, round trip 310 us",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "CPU(s): 16, kernel 6.18.44-amd64, 64 GiB",
        "INTERNALIZATION",
    ];
    for line in lines {
        assert_eq!(text(line), line);
    }
    assert_eq!(text("task=8f3a1234000000000000000000000001 done"), "task=8f3a1234… done", "as `explain` takes it");
    assert_eq!(text("blob-8f3a1234000000000000000000000001.new"), "blob-8f3a1234….new");
    assert_eq!(text("token: \"\""), "token: \"\"");
}

#[test]
fn json_keeps_its_shape() {
    let value = json!({
        "argv": ["mysql", "-phunter2", "x"],
        "jobs": [{"argv": ["make"], "token": "hunter2", "api_key": ["hunter2"], "secret": {"a": "hunter2"}}],
        "settings": {"node.journal": {"value": "postgres://g:hunter2@h/d", "source": "x"}},
        "password": null,
        "takes_tokens": true,
        "note": "GITHUB_TOKEN=hunter2",
        "count": 7,
    });
    let mut redactor = Redactor::default();
    let shown = redactor.json(value);
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
    assert_eq!(shown["argv"], json!(["mysql", "[2 arguments redacted]"]));
    assert_eq!(shown["jobs"][0]["argv"], json!(["make"]));
    assert_eq!((&shown["password"], &shown["takes_tokens"], &shown["count"]), (&json!(null), &json!(true), &json!(7)));
    assert_eq!(redactor.take_counts()["arguments of commands"], 2);
}

#[test]
fn names_of_users_are_replaced_if_asked_for() {
    let line = "/home/ada/x and /home/bob/y of ada, adaptive; /home/";
    assert_eq!(text(line), line);
    let mut redactor = Redactor::default();
    redactor.hide_names(Some("ada"));
    assert_eq!(redactor.text(line), "/home/user1/x and /home/user2/y of user1, adaptive; /home/");
    assert_eq!(redactor.text("bob\n"), "user2\n");
}
