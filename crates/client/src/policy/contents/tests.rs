//! Secrets and what only looks like one. The keys are put together here, so that this file is none itself.

use super::*;

const BODY: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

fn in_file(name: &str, mode: u32, bytes: &[u8]) -> Option<Denial> {
    secret_in(&Looked { name: name.as_bytes(), mode, size: bytes.len() as u64, bytes })
}

fn of(text: &str) -> Option<Denial> {
    in_file("notes", 0o644, text.as_bytes())
}

fn armoured(kind: &str, body: &str) -> String {
    format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
}

#[test]
fn private_keys_as_text_whatever_the_file_is_called() {
    for kind in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "PGP PRIVATE KEY BLOCK",
    ] {
        assert_eq!(of(&armoured(kind, BODY)), Some(Denial::Key), "{kind}");
        assert_eq!(of(&armoured(kind, BODY).replace('\n', "\r\n")), Some(Denial::Key), "{kind}");
        let certificate = armoured("CERTIFICATE", BODY);
        assert_eq!(
            of(&format!("{certificate}{}", armoured(kind, BODY))),
            Some(Denial::Key),
            "{kind} behind a certificate"
        );
        let in_json = format!("{{\"private_key\": \"{}\"}}", armoured(kind, BODY).replace('\n', "\\n"));
        assert_eq!(of(&in_json), Some(Denial::Key), "{kind}");
        let in_yaml = format!("key: |\n    {}", armoured(kind, BODY).replace('\n', "\n    "));
        assert_eq!(of(&in_yaml), Some(Denial::Key), "{kind}");
        let in_program = format!("const KEY = \"-----BEGIN {kind}-----\\n\" +\n  \"{BODY}\\n\";\n");
        assert_eq!(of(&in_program), Some(Denial::Key), "{kind}");
    }
    let encrypted = format!("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{BODY}");
    assert_eq!(of(&armoured("RSA PRIVATE KEY", &encrypted)), Some(Denial::Key));
    assert_eq!(of(&armoured("PRIVATE KEY", "short")), Some(Denial::Key), "however short it is");
    let ssh2 =
        format!("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{BODY}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n");
    assert_eq!(of(&ssh2), Some(Denial::Key));
    let far = format!("{}\n{}", "x".repeat(200_000), armoured("PRIVATE KEY", BODY));
    assert_eq!(of(&far), Some(Denial::Key));
}

#[test]
fn keys_of_other_tools_as_text() {
    let age = format!(
        "# created: 2026\n# public key: age1x\nAGE-SECRET-{}1{}\n",
        "KEY-",
        "QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L".repeat(2)
    );
    let putty = format!(
        "PuTTY-User-Key-{}: ssh-rsa\nEncryption: none\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 1\n{BODY}\n",
        "File-3"
    );
    let gpg = "(21:protected-private-".to_owned() + "key(3:rsa(1:n3:abc)))";
    let gpg_text = "Created: 2026\nKey: (private-".to_owned() + "key (rsa (n #00#)))";
    let guard = format!("[Interface]\nPrivate{} = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n", "Key");
    let kube = format!("users:\n- user:\n    client-key-{}: {BODY}\n", "data");
    let jwk = format!("{{\"kty\":\"RSA\",\"n\":\"{BODY}\",\"d\":\"{BODY}\"}}");
    let signer = "untrusted comment: minisign encrypted secret key\nRWRTY0Iy\n".to_owned();
    for key in [age, putty, gpg, gpg_text, guard, kube, jwk, signer] {
        assert_eq!(of(&key), Some(Denial::Key), "{key}");
    }
}

#[test]
fn what_speaks_of_keys_is_none() {
    for text in [
        armoured("CERTIFICATE", BODY),
        armoured("PUBLIC KEY", BODY),
        armoured("CERTIFICATE REQUEST", BODY),
        armoured("DH PARAMETERS", BODY),
        armoured("PRIVATE KEY", "..."),
        "if line == \"-----BEGIN PRIVATE KEY-----\" {\n    a_function_of_a_very_long_name(line);\n}\n".into(),
        "#define PEM_STRING_RSA \"RSA PRIVATE KEY\"\n#define PEM_STRING_PKCS8 \"ENCRYPTED PRIVATE KEY\"\n".into(),
        "A PRIVATE KEY is kept at home.\n-----END PRIVATE KEY-----\n".into(),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ user@host\n".into(),
        "untrusted comment: minisign public key\nRWRTY0Iy\n".into(),
        "{\"kty\":\"RSA\",\"n\":\"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4\",\"e\":\"AQAB\"}".into(),
        "AGE-SECRET-KEY- is how they begin\n".into(),
        "private-key (x) and client-key-data and PrivateKey = \n".into(),
        "machine learning with password fields\nmore\n".into(),
        "aws_secret_access_key = os.environ['X']\n".into(),
    ] {
        assert_eq!(of(&text), None, "{text}");
    }
}

/// An element of DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    match len {
        0..128 => [&[tag, len as u8][..], content].concat(),
        _ => [&[tag, 0x82, (len >> 8) as u8, len as u8][..], content].concat(),
    }
}

#[test]
fn private_keys_as_bytes() {
    let rsa = der(OBJECT, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]);
    let by_password = der(OBJECT, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13]);
    let store = der(OBJECT, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1]);
    let number = |value: u8| der(INTEGER, &[value]);
    let large = der(INTEGER, &[7; 200]);
    let whole = |parts: &[&[u8]]| der(SEQUENCE, &parts.concat());
    let octets = der(OCTETS, &[9; 200]);
    for key in [
        whole(&[&number(0), &der(SEQUENCE, &rsa), &octets]),
        whole(&[&number(0), &large, &large]),
        whole(&[&number(1), &der(OCTETS, &[3; 32])]),
        whole(&[&number(3), &der(SEQUENCE, &[&store[..], &octets].concat())]),
        whole(&[&der(SEQUENCE, &by_password), &octets]),
        [&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2][..], &[0; 9]].concat(),
        [&[0x03, 0xd9, 0xa2, 0x9a][..], &[0; 9]].concat(),
        [&[5, 2, 0, 0, 0, 80][..], &[0; 80]].concat(),
        [&[0x95, 3, 0x98, 4, 1, 2, 3, 4, 1][..], &[0; 80]].concat(),
        [&b"openssh-key-v1\0"[..], &[0; 80]].concat(),
    ] {
        assert_eq!(in_file("x.bin", 0o644, &key), Some(Denial::Key), "{key:02x?}");
    }
    let certificate =
        whole(&[&der(SEQUENCE, &[&der(0xa0, &number(2))[..], &large].concat()), &der(SEQUENCE, &rsa), &octets]);
    for other in [
        certificate.clone(),
        whole(&[&der(SEQUENCE, &rsa), &der(3, &[0; 200])]),
        [&whole(&[&number(1), &der(OCTETS, &[3; 32])])[..], b"more"].concat(),
        b"\x7fELF\0\0\0\0".to_vec(),
        vec![0; 64],
        vec![0x30],
        vec![0x30, 0x84, 0xff],
    ] {
        assert_eq!(in_file("x.bin", 0o644, &other), None, "{other:02x?}");
    }
    assert_eq!(in_file("x.der", 0o600, &certificate), None);
}

#[test]
fn the_key_of_a_hub_or_a_worker_is_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("hub.key");
    wire::Key::load_or_create(&file).expect("made");
    let bytes = std::fs::read(&file).expect("read");
    assert!(is_gleaner_key(&bytes));
    assert_eq!(in_file("whatever", 0o644, &bytes), Some(Denial::Key));
    assert!(!is_gleaner_key(&bytes[..40]) && !is_gleaner_key(b""));
}

#[test]
fn what_is_made_to_be_looked_at_for_long_is_not() {
    let begun = std::time::Instant::now();
    let times = |part: &str| part.repeat(LOOK_BYTES / part.len());
    let open_ssh = ["b3BlbnNzaC1rZXkt", "djE"].concat();
    for part in [
        "PRIVATE KEY",
        "PuTTY-User-Key-File-\n",
        "\"kty\" \"d\":",
        "PrivateKey",
        "-",
        "private-key",
        &open_ssh,
        "BEGIN ",
        "machine ",
    ] {
        let bytes = times(part);
        let _ = of(&bytes);
        let _ = in_file("config", 0o600, bytes.as_bytes());
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn variables_with_values_that_look_secret() {
    let env = |text: &str| in_file(".env", 0o644, text.as_bytes());
    for text in [
        "PORT=3000\nDB_PASSWORD=hunter2\n",
        "export API_TOKEN='abc'\n",
        "  SECRET_KEY_BASE = 0a1b2c\n",
        "DATABASE_URL=postgres://u:p@db/x\n",
        "X=ghp_abcdefghijklmnop\n",
    ] {
        assert_eq!(env(text), Some(Denial::Passwords), "{text}");
        for name in [".env.local", "prod.env", ".envrc"] {
            assert_eq!(in_file(name, 0o644, text.as_bytes()), Some(Denial::Passwords), "{name}: {text}");
        }
        for name in [".env.example", "settings.txt", "env.py"] {
            assert_eq!(in_file(name, 0o644, text.as_bytes()), None, "{name}: {text}");
        }
    }
    for text in [
        "PORT=3000\n",
        "DB_PASSWORD=\n",
        "API_TOKEN=<token>\n",
        "# TOKEN=x\n",
        "TOKEN=${TOKEN}\n",
        "SECRET=changeme\n",
        "USE_AUTH=true\n",
    ] {
        assert_eq!(env(text), None, "{text}");
    }
    let npmrc = |text: &str| in_file(".npmrc", 0o644, text.as_bytes());
    assert_eq!(npmrc("//registry.npmjs.org/:_authToken=npm_0123\n"), Some(Denial::Passwords));
    assert_eq!(npmrc("//registry.npmjs.org/:_authToken=${NPM_TOKEN}\nfund=false\n"), None);
    assert_eq!(of("default login me password x\n"), Some(Denial::Passwords));
    assert_eq!(of("machine host.example\n  login me\n  password x\n"), Some(Denial::Passwords));
    let cloud = format!("[default]\naws_secret_access_{} = {}\n", "key", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzz");
    assert_eq!(of(&cloud), Some(Denial::Passwords));
}

#[test]
fn settings_with_a_password_in_an_address() {
    let of = |name: &str, text: &str| in_file(name, 0o644, text.as_bytes());
    let remote = |url: &str| format!("[remote \"origin\"]\n\turl = {url}\n");
    assert_eq!(of("config", &remote("https://me:ghp_x@host/x.git")), Some(Denial::Passwords));
    assert_eq!(
        of("config", "[http \"https://h/\"]\n\textraheader = AUTHORIZATION: basic eDp5\n"),
        Some(Denial::Passwords)
    );
    for url in ["https://host/x.git", "git@host:x.git", "ssh://git@host:22/x.git", "../part"] {
        assert_eq!(of("config", &remote(url)), None, "{url}");
    }
    assert_eq!(of("notes.txt", &remote("https://me:ghp_x@host/x.git")), None);
}

#[test]
fn a_closed_file_of_a_keys_name_is_one_unless_it_is_public() {
    assert_eq!(in_file("server.key", 0o600, b"odd"), Some(Denial::Key));
    assert_eq!(in_file("server.key", 0o644, b"odd"), None);
    assert_eq!(in_file("ca.pem", 0o600, armoured("CERTIFICATE", BODY).as_bytes()), None, "a certificate is no secret");
    assert_eq!(in_file(".env", 0o400, b"PORT=3000\n"), Some(Denial::Passwords));
    assert_eq!(in_file("table.csv", 0o600, b"a,b\n"), None);
}

/// As it is in an archive without compression, in what a program had in memory, in a database, in text of two bytes a letter.
#[test]
fn private_keys_in_what_holds_texts() {
    let key = armoured("OPENSSH PRIVATE KEY", BODY);
    let padded = |start: &[u8], len: usize| [start, &vec![0; len - start.len()]].concat();
    let mut tar = padded(b".ssh/id_ed25519", 512);
    tar[257..262].copy_from_slice(b"ustar");
    let core = padded(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0", 4096);
    let program = padded(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0", 4096);
    for (start, is_secret) in [
        (tar, true),
        (core, true),
        (padded(b"SQLite format 3\0", 4096), true),
        (padded(b"070701", 110), true),
        (program, false),
    ] {
        let bytes = [&start[..], key.as_bytes()].concat();
        assert_eq!(in_file("x", 0o644, &bytes), is_secret.then_some(Denial::Key));
    }
    let wide = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
        std::iter::once(0xfeff).chain(key.encode_utf16()).flat_map(order).collect()
    };
    for wide in [wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
        assert_eq!(in_file("key.txt", 0o644, &wide), Some(Denial::Key));
    }
}

#[test]
fn known_forms_in_other_clothes() {
    let of_variables = |name: &str, text: &str| in_file(name, 0o644, text.as_bytes());
    for name in [".env-prod", ".env_prod", "env.production", ".envrc.private", ".dev.vars"] {
        assert_eq!(of_variables(name, "DB_PASSWORD=hunter2222\n"), Some(Denial::Passwords), "{name}");
    }
    assert_eq!(of_variables("w.env", "A=1; export DB_PASSWORD=hunter2222\n"), Some(Denial::Passwords));
    assert_eq!(of("# mine\n\n# and yours\nmachine h login u password s\n"), Some(Denial::Passwords));
    let swap = [&b"b0VIM 8.2\0"[..], &[0; 5000], armoured("PRIVATE KEY", BODY).as_bytes()].concat();
    assert_eq!(in_file(".notes.swp", 0o644, &swap), Some(Denial::Key));
    // PKCS #12, whose length is given by its end.
    let object = der(0x06, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 7, 1]);
    let store = [&[0x30, 0x80][..], &der(0x02, &[3]), &der(0x30, &object), &[0, 0]].concat();
    assert_eq!(in_file("x", 0o644, &store), Some(Denial::Key));
    let with_token = "[remote \"origin\"]\n\turl = https://ghp_0123456789@github.com/x/y\n";
    assert_eq!(in_file("config", 0o644, with_token.as_bytes()), Some(Denial::Passwords));
}
