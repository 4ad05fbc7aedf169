//! Tests of key management, authentication and the key file.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::{
    AuthError, Authenticator, Error, FixedKey, InvalidFixedKey, KeyRing, NewKey, Plaintext, find,
    parse,
};
use crate::model::caller::{Quota, Scopes};

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/keys.json");
    (folder, path)
}

fn new(name: &str) -> NewKey {
    NewKey {
        name: name.to_owned(),
        scopes: Scopes::usual(),
        quota: Quota::default(),
        policy: None,
        network: None,
        expires_at: None,
    }
}

fn accepts(ring: &KeyRing, key: &Plaintext) -> bool {
    ring.authenticate(key.expose()).unwrap().is_some()
}

/// Waits, with a time limit, until the ring sees a change by another one.
fn until(ring: &KeyRing, what: impl Fn(&KeyRing) -> bool) -> Duration {
    let start = Instant::now();
    while !what(ring) {
        assert!(start.elapsed() < Duration::from_secs(10), "the change did not become visible");
        std::thread::yield_now();
    }
    start.elapsed()
}

#[test]
fn a_key_is_created_accepted_and_revoked() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    assert!(ring.is_empty().unwrap());
    let quota =
        Quota { sessions: Some(3), storage_bytes: Some(1 << 30), executions_per_minute: Some(60) };
    let (key, text) = ring.create(NewKey { quota, ..new("ci") }).unwrap();

    let caller = ring.authenticate(text.expose()).unwrap().unwrap();
    assert_eq!(caller.id.as_str(), format!("key:{}", key.id));
    assert_eq!((&*caller.name, caller.scopes, caller.quota), ("ci", Scopes::usual(), quota));
    assert_eq!(ring.list().unwrap(), [key]);

    let revoked = ring.revoke("ci").unwrap();
    assert!(revoked.revoked_at.is_some());
    assert!(!accepts(&ring, &text));
    assert!(!ring.is_empty().unwrap(), "revoking the last key must not open the server");
    assert!(matches!(ring.revoke("ci"), Err(Error::AlreadyRevoked(_))));
    assert!(matches!(ring.revoke("other"), Err(Error::Unknown(_))));
}

#[test]
fn a_key_is_long_random_and_not_in_the_file() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let (key, text) = ring.create(new("a")).unwrap();
    let (_, other) = ring.create(new("b")).unwrap();
    let parts: Vec<&str> = text.expose().split('_').collect();
    assert_eq!(parts[0], "woma");
    assert_eq!(parts[1], key.id);
    assert_eq!((parts.len(), parts[1].len(), parts[2].len()), (3, 12, 64));
    assert_ne!(text, other);
    let stored = fs::read_to_string(&path).unwrap();
    assert!(!stored.contains(parts[2]));
    assert!(stored.contains(&key.id));
    assert!(!format!("{text:?}{ring:?}").contains(parts[2]));
}

#[test]
fn the_file_is_for_its_owner_only_and_nothing_is_left_beside_it() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    ring.create(new("a")).unwrap();
    // A leftover of a killed writer does not interfere, and its mode is not kept.
    let left = path.with_extension("json.new");
    fs::write(&left, "torn").unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o666)).unwrap();
    ring.create(new("b")).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["keys.json", "keys.json.lock"]);
}

#[test]
fn files_created_by_root_belong_to_the_owner_of_the_folder() {
    let (_folder, path) = folder();
    let place = path.parent().unwrap();
    fs::create_dir_all(place).unwrap();
    // Only root can change the owner of a folder; otherwise the folder is the user's own.
    if fs::metadata(place).unwrap().uid() == 0 {
        std::os::unix::fs::chown(place, Some(12_345), Some(12_346)).unwrap();
    }
    let ring = KeyRing::open(&path).unwrap();
    ring.create(new("a")).unwrap();
    ring.create(new("b")).unwrap();
    let owner = fs::metadata(place).unwrap().uid();
    for name in ["keys.json", "keys.json.lock"] {
        let found = fs::metadata(place.join(name)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (owner, 0o600), "{name}");
    }
}

#[test]
fn only_the_exact_key_is_accepted() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let (key, text) = ring.create(new("a")).unwrap();
    let (_, other) = ring.create(new("b")).unwrap();
    let text = text.expose();
    let secret = text.rsplit('_').next().unwrap();
    let other_secret = other.expose().rsplit('_').next().unwrap();
    let last = if text.ends_with('0') { "1" } else { "0" };
    let table = [
        String::new(),
        "woma_".to_owned(),
        "woma__".to_owned(),
        key.id.clone(),
        secret.to_owned(),
        format!("woma_{}_", key.id),
        format!("woma_{}_{other_secret}", key.id),
        format!("woma_{secret}_{}", key.id),
        format!("woma_000000000000_{secret}"),
        format!("{text}0"),
        format!("{text}\0"),
        format!("{text} "),
        format!(" {text}"),
        format!("{text}\n"),
        format!("{}{last}", &text[..text.len() - 1]),
        text[..text.len() - 1].to_owned(),
        text.to_ascii_uppercase(),
        text.replace("woma_", "woma-"),
        "woma_".to_owned() + &"é".repeat(38),
        "x".repeat(1 << 20),
    ];
    for presented in &table {
        assert_eq!(ring.authenticate(presented).unwrap(), None, "{presented:?}");
    }
    assert!(ring.authenticate(text).unwrap().is_some());
}

#[test]
fn a_key_has_an_id_and_a_secret_of_exact_form() {
    let (id, secret) = ("0123456789ab", "cd".repeat(32));
    assert_eq!(parse(&format!("woma_{id}_{secret}")), Some((id, &*secret)));
    for (id, secret) in [(id, &secret[1..]), (&id[1..], &secret), (id, &*secret.to_uppercase())] {
        assert_eq!(parse(&format!("woma_{id}_{secret}")), None, "{id} and {secret}");
    }
}

#[test]
fn a_key_expires() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let end = Timestamp::now() + SignedDuration::from_hours(1);
    let (_, text) = ring.create(NewKey { expires_at: Some(end), ..new("a") }).unwrap();
    let keys = ring.keys(true).unwrap();
    let second = SignedDuration::from_secs(1);
    assert!(find(&keys, text.expose(), end - second).is_some());
    assert!(find(&keys, text.expose(), end).is_none());
    assert!(find(&keys, text.expose(), end + second).is_none());
    let past = Timestamp::now() - second;
    let refused = ring.create(NewKey { expires_at: Some(past), ..new("b") });
    assert!(matches!(refused, Err(Error::ExpiryPassed)));
}

#[test]
fn invalid_names_are_refused() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let long = "a".repeat(65);
    let table = [
        "",
        " ",
        "a b",
        "-a",
        ".a",
        "_a",
        "a/b",
        "a\0b",
        "a\nb",
        "é",
        "default",
        "0123456789ab",
        "woma_0123",
        &long,
    ];
    for name in table {
        assert!(matches!(ring.create(new(name)), Err(Error::Name { .. })), "{name:?}");
    }
    assert!(!path.exists(), "a refused name writes nothing");
    for name in ["a", "A.b_c-9", "0", &"a".repeat(64), "deadbeef"] {
        ring.create(new(name)).unwrap();
    }
    assert!(matches!(ring.create(new("a")), Err(Error::NameTaken(_))));
    let nothing = NewKey { scopes: Scopes::none(), ..new("b") };
    assert!(matches!(ring.create(nothing), Err(Error::NoScope)));
}

#[test]
fn a_revoked_key_frees_its_name() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let (old, old_text) = ring.create(new("ci")).unwrap();
    ring.revoke(&old.id).unwrap();
    let (fresh, fresh_text) = ring.create(new("ci")).unwrap();
    assert!(!accepts(&ring, &old_text));
    assert!(accepts(&ring, &fresh_text));
    assert_eq!(ring.revoke("ci").unwrap().id, fresh.id);
    assert!(!accepts(&ring, &fresh_text));
}

#[test]
fn a_pasted_key_is_revoked_and_not_echoed() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let (key, text) = ring.create(new("a")).unwrap();
    assert_eq!(ring.revoke(text.expose()).unwrap().id, key.id);
    let secret = text.expose().rsplit('_').next().unwrap();
    let again = ring.revoke(text.expose()).unwrap_err().to_string();
    let named = ring.create(new(text.expose())).unwrap_err().to_string();
    assert!(!again.contains(secret) && !named.contains(secret), "{again} {named}");
}

#[test]
fn changes_by_another_process_are_seen_within_a_second() {
    let (_folder, path) = folder();
    let server = KeyRing::open(&path).unwrap();
    let operator = KeyRing::open(&path).unwrap();
    assert!(server.is_empty().unwrap());
    let (key, text) = operator.create(new("a")).unwrap();
    assert!(until(&server, |ring| accepts(ring, &text)) < Duration::from_secs(1));
    operator.revoke(&key.id).unwrap();
    assert!(until(&server, |ring| !accepts(ring, &text)) < Duration::from_secs(1));
}

#[test]
fn concurrent_writers_lose_no_keys() {
    let (_folder, path) = folder();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let ring = KeyRing::open(path).unwrap();
                for number in 0..8 {
                    ring.create(new(&format!("w{writer}-{number}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(KeyRing::open(&path).unwrap().list().unwrap().len(), 32);
}

#[test]
fn a_damaged_file_is_an_error_that_names_it_and_is_not_overwritten() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    let (_, text) = ring.create(new("a")).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let doubled = {
        let mut document: serde_json::Value = serde_json::from_str(&good).unwrap();
        let keys = document["keys"].as_array_mut().unwrap();
        keys.push(keys[0].clone());
        document.to_string()
    };
    let table = [
        ("", "EOF"),
        ("{}", "version"),
        ("[]", "invalid length"),
        ("null", "null"),
        ("not json", "expected"),
        (&good[..good.len() / 2], "EOF"),
        (&good.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        (&good.replace("\"name\"", "\"nom\""), "nom"),
        (&good.replace("\"created_at\"", "\"revokedat\": 1, \"created_at\""), "revokedat"),
        (&good.replace("\"read\"", "\"rule\""), "rule"),
        (&good.replace("\"sha256\": \"", "\"sha256\": \"zz"), "not a key"),
        (&good.replace("\"id\": \"", "\"id\": \"zz"), "not a key"),
        (&doubled, "twice"),
        (&format!("{good}{{}}"), "trailing"),
    ];
    for (content, hint) in table {
        fs::write(&path, content).unwrap();
        let error = KeyRing::open(&path).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::Damaged { .. }), "{content:?}: {message}");
        assert!(message.contains("keys.json") && message.contains(hint), "{hint}: {message}");
        // A ring that was open before refuses too, and does not overwrite the file.
        assert!(ring.list().is_err(), "{content:?}");
        assert!(ring.authenticate(text.expose()).is_err());
        assert!(ring.create(new("b")).is_err());
        assert!(ring.revoke("a").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    fs::write(&path, &good).unwrap();
    ring.list().unwrap();
    assert!(accepts(&ring, &text), "a restored file is accepted again");
}

#[test]
fn a_file_that_others_may_write_is_not_believed() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    ring.create(new("a")).unwrap();
    for (mode, good) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(KeyRing::open(&path).is_ok(), good, "{mode:o}");
        assert_eq!(ring.list().is_ok(), good, "{mode:o}");
    }
}

#[test]
fn a_file_that_vanishes_closes_the_ring() {
    let (_folder, path) = folder();
    let ring = KeyRing::open(&path).unwrap();
    ring.create(new("a")).unwrap();
    let authenticator = Authenticator::new(None, ring, false);
    fs::remove_file(&path).unwrap();
    until(authenticator.ring(), |ring| ring.is_empty().is_err());
    assert!(matches!(authenticator.authenticate(None), Err(AuthError::Unavailable(_))));
}

#[test]
fn open_fixed_and_named_keys_authenticate() {
    const FIXED: &str = "correct-horse";
    let (_folder, path) = folder();
    let fixed = || Some(FixedKey::new(FIXED).unwrap());
    let ring = || KeyRing::open(&path).unwrap();
    let who = |authenticator: &Authenticator, presented: Option<&str>| match authenticator
        .authenticate(presented)
    {
        Ok(caller) => caller.id.to_string(),
        Err(AuthError::Missing) => "missing".to_owned(),
        Err(AuthError::Invalid) => "invalid".to_owned(),
        Err(AuthError::Unavailable(error)) => error.to_string(),
    };

    let open = Authenticator::new(None, ring(), false);
    assert_eq!(who(&open, None), "local");
    assert_eq!(who(&open, Some("whatever")), "local");

    let required = Authenticator::new(None, ring(), true);
    assert_eq!(who(&required, None), "missing");
    assert_eq!(who(&required, Some("whatever")), "invalid");

    let single = Authenticator::new(fixed(), ring(), false);
    let table = [
        (None, "missing"),
        (Some(FIXED), "key:default"),
        (Some(""), "invalid"),
        (Some("correct-horsE"), "invalid"),
        (Some("correct-hors"), "invalid"),
        (Some("correct-horse\0"), "invalid"),
        (Some("correct-horse "), "invalid"),
    ];
    for (presented, expected) in table {
        assert_eq!(who(&single, presented), expected, "{presented:?}");
    }
    assert_eq!(single.authenticate(Some(FIXED)).unwrap().scopes, Scopes::all());

    // The first named key closes an open server and does not affect API_KEY.
    let (key, text) = ring().create(new("a")).unwrap();
    let named = format!("key:{}", key.id);
    until(open.ring(), |ring| !ring.is_empty().unwrap());
    until(single.ring(), |ring| !ring.is_empty().unwrap());
    assert_eq!(who(&open, None), "missing");
    assert_eq!(who(&open, Some("whatever")), "invalid");
    assert_eq!(who(&open, Some(text.expose())), named);
    assert_eq!(who(&single, Some(text.expose())), named);
    assert_eq!(who(&single, Some(FIXED)), "key:default");
}

#[test]
fn a_fixed_key_must_be_a_valid_header_value() {
    for (text, expected) in [
        ("", InvalidFixedKey::Empty),
        (" ", InvalidFixedKey::NotPresentable),
        ("a b", InvalidFixedKey::NotPresentable),
        ("a\n", InvalidFixedKey::NotPresentable),
        ("a\0b", InvalidFixedKey::NotPresentable),
        ("é", InvalidFixedKey::NotPresentable),
    ] {
        assert_eq!(FixedKey::new(text).unwrap_err(), expected, "{text:?}");
    }
    let fixed = FixedKey::new("s3cret-of-ours").unwrap();
    assert!(!format!("{fixed:?}").contains("s3cret"));
}

#[test]
fn a_short_fixed_key_can_be_guessed() {
    let (_folder, path) = folder();
    for (fixed, is_guessable) in [(None, false), (Some(23), true), (Some(24), false)] {
        let fixed = fixed.map(|bytes| FixedKey::new(&"k".repeat(bytes)).unwrap());
        let authenticator = Authenticator::new(fixed, KeyRing::open(&path).unwrap(), false);
        assert_eq!(authenticator.has_guessable_key(), is_guessable);
    }
}

#[test]
fn a_file_is_current_until_it_is_replaced() {
    let (_folder, path) = folder();
    let missing = super::file::read(&path).unwrap();
    assert!(missing.is_missing() && missing.is_current(&path));
    let ring = KeyRing::open(&path).unwrap();
    ring.create(new("a")).unwrap();
    let read = super::file::read(&path).unwrap();
    assert!(!missing.is_current(&path) && read.is_current(&path) && !read.is_missing());
    ring.create(new("b")).unwrap();
    assert!(!read.is_current(&path));
}

#[test]
fn there_is_an_end_to_keys() {
    let (_folder, path) = folder();
    KeyRing::open(&path).unwrap().create(new("first")).unwrap();
    let mut stored: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let keys = stored["keys"].as_array_mut().unwrap();
    let first = keys[0].clone();
    for number in 1..super::KEYS_MAX {
        let mut key = first.clone();
        key["key"]["id"] = format!("{number:012x}").into();
        key["key"]["name"] = format!("key-{number}").into();
        keys.push(key);
    }
    fs::write(&path, stored.to_string()).unwrap();
    let ring = KeyRing::open(&path).unwrap();
    assert_eq!(ring.list().unwrap().len(), super::KEYS_MAX);
    assert!(matches!(ring.create(new("one-more")), Err(Error::TooMany)));
}
