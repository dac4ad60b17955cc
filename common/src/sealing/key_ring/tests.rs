//! Values open where they belong, and nowhere else; key rings are checked.

use super::*;
use crate::ids::{AccountId, UserId, WebhookId, WorkspaceId};

const OLD: &str = "old:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const NEW: &str = "new:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f";

fn ring(text: &str) -> KeyRing {
    text.parse().unwrap()
}

fn webhook() -> Place<'static> {
    Place::WebhookSecret {
        workspace: WorkspaceId::generate(),
        webhook: WebhookId::generate(),
    }
}

/// It opens as it is, and not with any byte altered or missing.
fn assert_guarded(keys: &KeyRing, place: Place<'_>, sealed: &[u8]) {
    assert_eq!(keys.open(place, sealed).unwrap().expose(), b"the secret");
    for index in 0..sealed.len() {
        let mut altered = sealed.to_owned();
        altered[index] ^= 1;
        assert!(keys.open(place, &altered).is_err(), "byte {index}");
        let cut = keys.open(place, &sealed[..index]);
        assert!(cut.is_err(), "cut at {index}");
    }
}

fn assert_refused(keys: &KeyRing, place: Place<'_>, sealed: &[u8]) {
    let opened = keys.open(place, sealed);
    assert_eq!(opened.unwrap_err(), OpenError::Refused, "{place:?}");
}

#[test]
fn a_sealed_value_opens_in_its_place_only() {
    let keys = ring(OLD);
    let workspace = WorkspaceId::generate();
    let webhook = WebhookId::generate();
    let here = Place::WebhookSecret { workspace, webhook };
    let sealed = keys.seal(here, b"the secret").unwrap();
    assert_eq!(keys.open(here, &sealed).unwrap().expose(), b"the secret");

    let elsewhere = WorkspaceId::generate();
    let other = WebhookId::generate();
    for (workspace, webhook) in [(elsewhere, webhook), (workspace, other)] {
        assert_refused(&keys, Place::WebhookSecret { workspace, webhook }, &sealed);
    }
}

#[test]
fn a_credential_is_bound_to_its_user_header_and_address() {
    let keys = ring(OLD);
    let workspace = WorkspaceId::generate();
    let account = AccountId::generate();
    let user = UserId::generate();
    let place = |account, user, header, base_url| Place::AccountCredential {
        workspace,
        account,
        user,
        header,
        base_url,
    };
    let own = "authorization";
    let url = "https://a.example/";
    let here = place(account, user, own, url);
    let sealed = keys.seal(here, b"the token").unwrap();
    assert_eq!(keys.open(here, &sealed).unwrap().expose(), b"the token");
    for other in [
        place(AccountId::generate(), user, own, url),
        place(account, UserId::generate(), own, url),
        place(account, user, "cookie", url),
        place(account, user, own, "https://b.example/"),
        place(account, user, "authorizationh", "ttps://a.example/"),
    ] {
        assert_refused(&keys, other, &sealed);
    }
}

/// A credential that is bound to its row alone, as an earlier version sealed it, does not open, and
/// is not sealed again.
#[test]
fn a_credential_that_is_bound_to_its_row_alone_does_not_open() {
    let keys = ring(OLD);
    let here = Place::AccountCredential {
        workspace: WorkspaceId::generate(),
        account: AccountId::generate(),
        user: UserId::generate(),
        header: "authorization",
        base_url: "https://a.example/",
    };
    let [workspace, row] = here.row();
    let column = here.column();
    let table = column.table().as_bytes();
    let name = column.name().as_bytes();
    let bound: [&[u8]; 6] = [b"letterbox.sealed.v1", table, name, workspace, row, b"old"];
    let aad = framed(bound.into_iter());
    let msg = b"the token";
    let payload = Payload { msg, aad: &aad };
    let nonce = [7; NONCE_BYTES];
    let encrypted = keys.first.cipher.encrypt(&Nonce::from(nonce), payload);
    let sealed = [&[OWN, 3], b"old".as_slice(), &nonce, &encrypted.unwrap()].concat();
    assert_refused(&keys, here, &sealed);
    let both = ring(&format!("{NEW},{OLD}"));
    assert!(both.reseal(here, &sealed).is_err());
}

#[test]
fn any_altered_or_missing_byte_is_noticed() {
    let keys = ring(OLD);
    let place = webhook();
    assert_guarded(&keys, place, &keys.seal(place, b"the secret").unwrap());
}

#[test]
fn the_first_key_seals_and_all_open() {
    let here = webhook();
    let both = ring(&format!("{NEW},{OLD}"));
    let old = ring(OLD).seal(here, b"s").unwrap();
    assert_eq!(both.open(here, &old).unwrap().expose(), b"s");

    let new = both.reseal(here, &old).unwrap().unwrap();
    assert_eq!(both.reseal(here, &new), Ok(None));
    let missing = OpenError::UnknownKey {
        id: "new".to_owned(),
        setting: "LETTERBOX_WEBHOOK_KEYS",
    };
    assert_eq!(ring(OLD).open(here, &new).unwrap_err(), missing);
}

#[test]
fn two_seals_of_one_secret_differ() {
    let keys = ring(OLD);
    let place = webhook();
    assert_ne!(keys.seal(place, b"s"), keys.seal(place, b"s"));
}

#[test]
fn key_rings_are_checked_and_never_printed() {
    let cases = [
        ("", KeyRingError::Empty),
        (" , ", KeyRingError::Empty),
        ("abc", KeyRingError::NoColon(1)),
        (":00", KeyRingError::Id(1)),
        ("a b:00", KeyRingError::Id(1)),
        ("a:00", KeyRingError::Key(1)),
        (&OLD.replace("00", "zz"), KeyRingError::Key(1)),
        (&format!("a:{}", "0".repeat(64)), KeyRingError::Key(1)),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<KeyRing>().unwrap_err(), error, "{text}");
    }
    let twice = format!("{OLD},{OLD}").parse::<KeyRing>();
    assert_eq!(twice.unwrap_err(), KeyRingError::Repeated(2));
    let both = ring(&format!("{NEW},{OLD}"));
    assert_eq!(format!("{both:?}"), r#"["new", "old"]"#);
    assert!(!format!("{:?}", Secret::new(b"canary".to_vec())).contains("canary"));
}

/// What the public half of a key has sealed opens in its place, with this key only; a rotation
/// seals it as all others.
#[test]
fn what_was_handed_in_opens_where_it_belongs() {
    let old = ring(OLD);
    let here = webhook();
    let elsewhere = webhook();
    let recipient = old.recipient();
    let carried = Recipient::from_bytes(recipient.key_id().to_owned(), &recipient.to_bytes());
    let sealed = carried.unwrap().seal(here, b"the secret").unwrap();
    assert_guarded(&old, here, &sealed);
    assert_refused(&old, elsewhere, &sealed);
    let named_alike = NEW.replace("new", "old");
    assert_refused(&ring(&named_alike), here, &sealed);
    let own = old.reseal(here, &sealed).unwrap().unwrap();
    assert_eq!(old.open(here, &own).unwrap().expose(), b"the secret");
    assert_eq!(old.reseal(here, &own), Ok(None));
    assert!(Recipient::from_bytes("old".to_owned(), &[1; 31]).is_none());
}
