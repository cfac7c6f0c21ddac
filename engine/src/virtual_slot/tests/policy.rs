use super::*;
use crate::domain::{Attributes, KeyAlgorithm};
use crate::wire::FailureKind;

const USER: Asker = Asker { role: Some(Role::User), today: *b"20260301" };

fn code(result: Result<(), Failure>) -> u64 {
    match result.expect_err("refused").kind {
        FailureKind::TokenRefused { code } => code,
        other => panic!("{other:?}"),
    }
}

fn secret(attributes: &[(A, V)]) -> AttributeRecord {
    let mut all = Attributes::from([(A::PRIVATE, V::Bool(true)), (A::WRAP, V::Bool(true))]);
    all.extend(attributes.iter().cloned());
    AttributeRecord {
        class: ObjectClass::SecretKey,
        algorithm: Some(KeyAlgorithm::Aes { bits: 256 }),
        attributes: all,
    }
}

#[test]
fn days_are_civil() {
    for (seconds, date) in [
        (0, b"19700101"),
        (951_782_399, b"20000228"),
        (951_782_400, b"20000229"),
        (1_709_251_199, b"20240229"),
        (1_709_251_200, b"20240301"),
        (1_767_225_599, b"20251231"),
        (4_107_542_400, b"21000301"),
    ] {
        assert_eq!(day(UnixMillis(seconds * 1000)), *date);
    }
}

#[test]
fn a_use_needs_its_flag_mechanism_day_and_login() {
    const CBC: u64 = 0x1082;
    let may = |record: &AttributeRecord, mechanism, asker| {
        may_use(&Traits::of(record), Need::Encrypt, mechanism, asker)
    };
    let key = secret(&[(A::ENCRYPT, V::Bool(true))]);
    assert_eq!(may(&key, CBC, USER), Ok(()));
    assert_eq!(code(may(&key, CBC, Asker { role: None, ..USER })), ckr::USER_NOT_LOGGED_IN);
    let officer = Asker { role: Some(Role::SecurityOfficer), ..USER };
    assert_eq!(code(may(&key, CBC, officer)), ckr::USER_NOT_LOGGED_IN);
    assert_eq!(code(may(&key, 0x1041, USER)), ckr::KEY_TYPE_INCONSISTENT);
    assert_eq!(code(may(&key, 0x4033, USER)), ckr::MECHANISM_INVALID);
    assert_eq!(code(may(&secret(&[]), CBC, USER)), ckr::KEY_FUNCTION_NOT_PERMITTED);
    let list = V::Bytes(0x1087u64.to_le_bytes().to_vec());
    let key = secret(&[(A::ENCRYPT, V::Bool(true)), (A::ALLOWED_MECHANISMS, list)]);
    assert_eq!(code(may(&key, CBC, USER)), ckr::MECHANISM_INVALID);
    assert_eq!(may(&key, 0x1087, USER), Ok(()));
    for (attribute, date, good) in [
        (A::START_DATE, b"20260301", true),
        (A::START_DATE, b"20260302", false),
        (A::END_DATE, b"20260301", true),
        (A::END_DATE, b"20260228", false),
    ] {
        let key = secret(&[(A::ENCRYPT, V::Bool(true)), (attribute, V::Bytes(date.to_vec()))]);
        assert_eq!(may(&key, CBC, USER).is_ok(), good, "{attribute} {date:?}");
    }
    let data = AttributeRecord { class: ObjectClass::Data, algorithm: None, attributes: Attributes::new() };
    assert_eq!(code(may(&data, CBC, USER)), ckr::KEY_HANDLE_INVALID);
}

#[test]
fn only_what_may_leave_is_wrapped() {
    const KEY_WRAP: u64 = 0x2109;
    fn may(wrapping: &AttributeRecord, key: &AttributeRecord) -> Result<(), Failure> {
        may_wrap(wrapping, key, KEY_WRAP, USER)
    }
    let wrapping = secret(&[]);
    let good = secret(&[(A::EXTRACTABLE, V::Bool(true))]);
    assert_eq!(may(&wrapping, &good), Ok(()));
    assert_eq!(code(may(&wrapping, &secret(&[]))), ckr::KEY_UNEXTRACTABLE);
    let picky = secret(&[(A::EXTRACTABLE, V::Bool(true)), (A::WRAP_WITH_TRUSTED, V::Bool(true))]);
    assert_eq!(code(may(&wrapping, &picky)), ckr::KEY_NOT_WRAPPABLE);
    assert_eq!(may(&secret(&[(A::TRUSTED, V::Bool(true))]), &picky), Ok(()));
    let demanding = |label: &[u8]| {
        let template = [(A::LABEL, V::Bytes(label.to_vec()))].into();
        secret(&[(A::WRAP_TEMPLATE, V::Template(template))])
    };
    let named = secret(&[(A::EXTRACTABLE, V::Bool(true)), (A::LABEL, V::Bytes(b"x".to_vec()))]);
    assert_eq!(may(&demanding(b"x"), &named), Ok(()));
    assert_eq!(code(may(&demanding(b"y"), &named)), ckr::KEY_NOT_WRAPPABLE);
}

#[test]
fn permissions_are_flags() {
    let key = Traits::of(&secret(&[(A::DESTROYABLE, V::Bool(true))]));
    assert_eq!(may_touch(&key, A::DESTROYABLE, Some(Role::User)), Ok(()));
    assert_eq!(code(may_touch(&key, A::COPYABLE, Some(Role::User))), ckr::ACTION_PROHIBITED);
    assert_eq!(code(may_touch(&key, A::DESTROYABLE, None)), ckr::USER_NOT_LOGGED_IN);
}
