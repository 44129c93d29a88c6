//! Which variables of the environment stay at home.

use super::Trust;

/// An environment, sorted out.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Environment {
    /// What travels, each `NAME=value`, in the order given.
    pub kept: Vec<Vec<u8>>,
    /// Names of what stays, for `explain`.
    pub withheld: Vec<Vec<u8>>,
}

const SECRET_PARTS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "API_KEY",
    "APIKEY",
    "CREDENTIAL",
    "AUTH",
    "PRIVATE_KEY",
    "ACCESS_KEY",
    "SECRETKEY",
    "PRIVATEKEY",
    "ACCESSKEY",
    "MASTERKEY",
    "MASTER_KEY",
    "COOKIE",
    "JWT",
    "BW_SESSION",
    "OP_SESSION",
    "CONNECTION_STRING",
    "CONNECTIONSTRING",
    "WEBHOOK",
    "MNEMONIC",
    "SEED_PHRASE",
    "ENCRYPTION_KEY",
    "SIGNATURE_KEY",
    "SIGNING_KEY",
    "PASS_WORD",
];
const SECRET_ENDINGS: &[&str] = &["_KEY", "_KEYS", "_KEY_PEM", "_PASS", "_PWD", "_PW", "_PAT", "_DSN"];
const SECRET_NAMES: &[&str] = &[
    "PASS",
    "PASSWORDS",
    "PGPASS",
    "SSHPASS",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "GPG_TTY",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "XAUTHORITY",
    "KRB5CCNAME",
    "GNOME_KEYRING_CONTROL",
    "GNOME_KEYRING_PID",
    "VAULT_ADDR",
    "DOCKER_HOST",
    "KUBECONFIG",
    "NETRC",
];
/// Parts of names that only look secret.
const HARMLESS_PARTS: &[&str] = &["AUTHOR", "TOKENIZER"];
/// What secrets start with, wherever they are.
const SECRET_VALUES: &[&str] = &[
    "-----BEGIN",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "hf_",
    "gsk_",
    "glrt-",
    "xai-",
    "dckr_pat_",
    "shpat_",
    "SG.",
    "AKIA",
    "ASIA",
    "hvs.",
    "npm_",
    "pypi-",
    "dop_v1_",
    "AIza",
    "ya29.",
    "AGE-SECRET-KEY-",
    "eyJhbGciOi",
];

/// What stands before a secret within a value, in small letters.
const BEFORE_SECRETS: &[&str] =
    &["_authtoken=", "authorization:", "bearer ", ";password=", ";pwd=", "--password=", "--token="];
/// Shorter words within a value are no secrets, whatever they start with.
const SECRET_WORD_LETTERS: usize = 16;

/// Sorts out what looks secret; to workers of one's own everything travels.
pub fn environment(trust: Trust, env: &[Vec<u8>]) -> Environment {
    let mut sorted = Environment::default();
    for entry in env {
        let at = entry.iter().position(|byte| *byte == b'=').unwrap_or(entry.len());
        let (name, value) = (&entry[..at], entry.get(at + 1..).unwrap_or_default());
        if trust != Trust::Own && looks_secret(name, value) {
            sorted.withheld.push(name.to_vec());
        } else {
            sorted.kept.push(entry.clone());
        }
    }
    sorted
}

/// Whether a variable of this name with this value looks secret.
pub fn looks_secret(name: &[u8], value: &[u8]) -> bool {
    let mut name = String::from_utf8_lossy(name).to_uppercase();
    // `DB_PASS2`, `DEPLOY_KEY_1`.
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_');
    let ends_so = |ending: &&str| name.ends_with(*ending) || stem.ends_with(*ending);
    if SECRET_NAMES.contains(&name.as_str()) || SECRET_ENDINGS.iter().any(ends_so) {
        return true;
    }
    for harmless in HARMLESS_PARTS {
        name = name.replace(harmless, "");
    }
    if SECRET_PARTS.iter().any(|part| name.contains(part)) {
        return true;
    }
    let value = String::from_utf8_lossy(value);
    begins_secret(&value) || has_password(&value) || has_secret(&value)
}

fn begins_secret(text: &str) -> bool {
    SECRET_VALUES.iter().any(|start| text.starts_with(start))
}

/// Whether a value has a secret among other things.
fn has_secret(value: &str) -> bool {
    let small = value.to_lowercase();
    let mut words = value.split(|letter: char| letter.is_whitespace() || "\"'`=,:;/@&?()".contains(letter));
    BEFORE_SECRETS.iter().any(|before| small.contains(before))
        || words.any(|word| word.len() >= SECRET_WORD_LETTERS && begins_secret(word))
}

/// Whether a value is an address with a user and password in it, or with a token for a user.
pub(super) fn has_password(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.split_once('@').is_some_and(|(user, _)| user.contains(':') || begins_secret(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_secret_stays() {
        let secret = [
            "GITHUB_TOKEN=x",
            "AWS_SECRET_ACCESS_KEY=x",
            "AWS_ACCESS_KEY_ID=x",
            "DB_PASSWORD=x",
            "OPENAI_API_KEY=x",
            "SSH_AUTH_SOCK=/x",
            "npm_config__auth=x",
            "GOOGLE_APPLICATION_CREDENTIALS=/x",
            "PGPASSWORD=x",
            "SIGNING_KEY=x",
            "MYSQL_PWD=x",
            "DATABASE_URL=postgres://u:p@h/d",
            "FOO=ghp_abc",
            "BAR=-----BEGIN RSA PRIVATE KEY-----",
            "XAUTHORITY=/x",
            "DB_PASS2=x",
            "PGPASS=x",
            "MASTERKEY=x",
            "DEPLOY_KEY_1=x",
            "REPO_URL=https://ghp_0123456789abcdefghij@github.com/x/y",
            "NPMRC=//r/:_authToken=x",
            "HDR=Authorization: Bearer x",
            "PAYMENT=sk_test_x",
            "MODEL=hf_x",
            "ARGS=-v --with gsk_0123456789abcdefghij",
            "DB=Server=h;Database=d;Password=x",
        ];
        let harmless = [
            "PATH=/bin",
            "GIT_AUTHOR_NAME=A",
            "TOKENIZERS_PARALLELISM=false",
            "HOME=/h",
            "PWD=/x",
            "OLDPWD=/x",
            "KEYMAP=de",
            "LANG=C",
            "MAKEFLAGS=-j8",
            "CFLAGS=-O2",
            "URL=http://host/a@b:c",
            "DISPLAY=:0",
            "MONKEY=1",
            "COMPASS2=x",
            "KEYS_2=x",
            "PACKAGES=task-spooler sk-learn",
            "REPO=https://git@github.com/x/y",
            "EMPTY=",
            "NOVALUE",
        ];
        let env: Vec<Vec<u8>> = secret.iter().chain(&harmless).map(|entry| entry.as_bytes().to_vec()).collect();
        let sorted = environment(Trust::Others, &env);
        assert_eq!(sorted.kept, harmless.map(|entry| entry.as_bytes().to_vec()));
        assert_eq!(sorted.withheld.len(), secret.len());
        let all = |bytes: &[Vec<u8>]| bytes.concat();
        assert!(!String::from_utf8_lossy(&all(&sorted.withheld)).contains('='), "names, never values");
        assert_eq!(environment(Trust::Anybody, &env), sorted);
        assert_eq!(environment(Trust::Own, &env).kept, env, "to one's own workers everything travels");
    }
}
