use super::*;
use crate::wire::FailureKind;

fn code<T>(result: Result<T, Failure>) -> u64 {
    match result.map(|_| ()).expect_err("refused").kind {
        FailureKind::TokenRefused { code } => code,
        other => panic!("{other:?}"),
    }
}

fn template(attributes: &[(A, V)]) -> Attributes {
    attributes.iter().cloned().collect()
}

#[test]
fn a_generated_key_has_softhsms_defaults() {
    let plan = generate(0x1080, &template(&[(A::VALUE_LEN, V::Number(32)), (A::SIGN, V::Bool(false))]));
    let plan = plan.expect("a plan");
    assert_eq!(plan.algorithm, KeyAlgorithm::Aes { bits: 256 });
    let facts = template(&[(A::VALUE_LEN, V::Number(32)), (A::CHECK_VALUE, V::Bytes(vec![1, 2, 3]))]);
    let record = key_record(plan, &facts, History::Generated(0x1080));
    for yes in [
        A::ENCRYPT,
        A::DECRYPT,
        A::VERIFY,
        A::WRAP,
        A::UNWRAP,
        A::PRIVATE,
        A::SENSITIVE,
        A::ALWAYS_SENSITIVE,
        A::NEVER_EXTRACTABLE,
        A::LOCAL,
        A::MODIFIABLE,
        A::COPYABLE,
        A::DESTROYABLE,
    ] {
        assert!(record.flag(yes), "{yes}");
    }
    for no in [A::SIGN, A::DERIVE, A::EXTRACTABLE, A::TRUSTED, A::WRAP_WITH_TRUSTED] {
        assert!(!record.flag(no), "{no}");
    }
    assert_eq!(record.attributes.get(&A::KEY_GEN_MECHANISM), Some(&V::Number(0x1080)));
    assert_eq!(record.attributes.get(&A::VALUE_LEN), Some(&V::Number(32)));
    assert_eq!(record.attributes.get(&A::START_DATE), Some(&V::Bytes(Vec::new())));
}

#[test]
fn wrong_templates_have_their_numbers() {
    let aes = |extra: &[(A, V)]| {
        let mut all = template(&[(A::VALUE_LEN, V::Number(16))]);
        all.extend(extra.iter().cloned());
        generate(0x1080, &all)
    };
    assert!(aes(&[(A::CLASS, V::Number(4)), (A::KEY_TYPE, V::Number(0x1F))]).is_ok());
    assert_eq!(code(generate(0x1080, &Attributes::new())), ckr::TEMPLATE_INCOMPLETE);
    assert_eq!(code(generate(0x131, &Attributes::new())), ckr::MECHANISM_INVALID);
    assert_eq!(code(aes(&[(A::VALUE_LEN, V::Number(17))])), ckr::KEY_SIZE_RANGE);
    assert_eq!(code(aes(&[(A::CLASS, V::Number(3))])), ckr::TEMPLATE_INCONSISTENT);
    assert_eq!(code(aes(&[(A::KEY_TYPE, V::Number(0x10))])), ckr::TEMPLATE_INCONSISTENT);
    assert_eq!(code(aes(&[(A::VALUE, V::Bytes(vec![0; 16]))])), ckr::TEMPLATE_INCONSISTENT);
    assert_eq!(code(aes(&[(A::MODULUS, V::Bytes(vec![0; 16]))])), ckr::ATTRIBUTE_TYPE_INVALID);
    assert_eq!(code(aes(&[(A(0x8000_0001), V::Bytes(vec![]))])), ckr::ATTRIBUTE_TYPE_INVALID);
    assert_eq!(code(aes(&[(A::SIGN, V::Number(1))])), ckr::ATTRIBUTE_VALUE_INVALID);
    assert_eq!(code(aes(&[(A::START_DATE, V::Bytes(b"2026-1-1".to_vec()))])), ckr::ATTRIBUTE_VALUE_INVALID);
    assert_eq!(code(aes(&[(A::LOCAL, V::Bool(true))])), ckr::ATTRIBUTE_READ_ONLY);
    let trusted = template(&[(A::TRUSTED, V::Bool(true))]);
    assert_eq!(code(check_trusted(&trusted, Some(Role::User))), ckr::ATTRIBUTE_READ_ONLY);
    assert_eq!(check_trusted(&trusted, Some(Role::SecurityOfficer)), Ok(()));
}

#[test]
fn a_pair_keeps_its_two_templates_apart() {
    let public = template(&[
        (A::MODULUS_BITS, V::Number(2048)),
        (A::PUBLIC_EXPONENT, V::Bytes(vec![0, 1, 0, 1])),
        (A::LABEL, V::Bytes(b"pub".to_vec())),
    ]);
    let private = template(&[(A::LABEL, V::Bytes(b"priv".to_vec())), (A::SIGN, V::Bool(true))]);
    let plan = generate_pair(0, &public, &private).expect("a plan");
    assert_eq!(plan.algorithm, KeyAlgorithm::Rsa { bits: 2048 });
    assert_eq!(plan.public.get(&A::LABEL), Some(&V::Bytes(b"pub".to_vec())));
    assert_eq!(plan.public.get(&A::PRIVATE), Some(&V::Bool(false)));
    assert_eq!(plan.private.get(&A::LABEL), Some(&V::Bytes(b"priv".to_vec())));
    let facts = template(&[(A::MODULUS, V::Bytes(vec![0xFF; 256]))]);
    let record = public_record(plan.algorithm, plan.public, &facts, History::Generated(0));
    assert_eq!(record.attributes.get(&A::MODULUS_BITS), Some(&V::Number(2048)));
    assert!(record.flag(A::VERIFY_RECOVER) && record.flag(A::LOCAL) && !record.flag(A::DERIVE));

    assert_eq!(code(generate_pair(0, &Attributes::new(), &private)), ckr::TEMPLATE_INCOMPLETE);
    let even = template(&[(A::MODULUS_BITS, V::Number(2048)), (A::PUBLIC_EXPONENT, V::Bytes(vec![3]))]);
    assert_eq!(code(generate_pair(0, &even, &private)), ckr::ATTRIBUTE_VALUE_INVALID);
    assert_eq!(code(generate_pair(0x1040, &public, &private)), ckr::TEMPLATE_INCONSISTENT);
}

#[test]
fn objects_without_keys_are_created() {
    let certificate = template(&[
        (A::CLASS, V::Number(1)),
        (A::CERTIFICATE_TYPE, V::Number(0)),
        (A::SUBJECT, V::Bytes(vec![0x30, 0])),
        (A::VALUE, V::Bytes(vec![0x30, 0])),
    ]);
    let Ok(Brought::Plain(record)) = create(&certificate) else { panic!("no certificate") };
    assert_eq!((record.class, record.bytes(A::VALUE)), (ObjectClass::Certificate, &[0x30, 0][..]));
    assert!(!record.flag(A::PRIVATE) && record.attributes.contains_key(&A::ISSUER));
    let mut bad = certificate.clone();
    bad.remove(&A::VALUE);
    assert_eq!(code(create(&bad)), ckr::TEMPLATE_INCOMPLETE);
    bad.insert(A::VALUE, V::Bytes(vec![]));
    assert_eq!(code(create(&bad)), ckr::ATTRIBUTE_VALUE_INVALID);
    let Ok(Brought::Plain(data)) = create(&template(&[(A::CLASS, V::Number(0))])) else { panic!("no data") };
    assert_eq!(data.attributes.get(&A::VALUE), Some(&V::Bytes(vec![])));
    assert_eq!(code(create(&Attributes::new())), ckr::TEMPLATE_INCOMPLETE);
    assert_eq!(code(create(&template(&[(A::CLASS, V::Number(9))]))), ckr::ATTRIBUTE_VALUE_INVALID);
}

#[test]
fn a_secret_comes_in_by_value() {
    let secret = template(&[
        (A::CLASS, V::Number(4)),
        (A::KEY_TYPE, V::Number(0x10)),
        (A::VALUE, V::Bytes(vec![7; 20])),
        (A::SENSITIVE, V::Bool(false)),
        (A::EXTRACTABLE, V::Bool(true)),
    ]);
    let Ok(Brought::Key(plan, value)) = create(&secret) else { panic!("no key") };
    assert_eq!((plan.algorithm, value.len()), (KeyAlgorithm::GenericSecret { bytes: 20 }, 20));
    assert!(!plan.attributes.contains_key(&A::VALUE));
    let facts = template(&[(A::VALUE, V::Bytes(value.to_vec()))]);
    let record = key_record(plan, &facts, History::Imported);
    assert!(
        !record.flag(A::LOCAL) && !record.flag(A::ALWAYS_SENSITIVE) && !record.flag(A::NEVER_EXTRACTABLE)
    );
    assert_eq!(super::super::visible(&record).bytes(A::VALUE), [7; 20]);
    let hidden = change(&record, &template(&[(A::SENSITIVE, V::Bool(true))])).expect("changed");
    assert_eq!(super::super::visible(&hidden).bytes(A::VALUE), b"");
}

#[test]
fn what_comes_obeys_the_template_of_the_key_in_use() {
    let asked = template(&[(A::CLASS, V::Number(4)), (A::KEY_TYPE, V::Number(0x1F))]);
    let demanded = V::Template(template(&[(A::EXTRACTABLE, V::Bool(true))]));
    let plan = coming(&asked, Some(&demanded), None).expect("a plan");
    assert_eq!(plan.attributes.get(&A::EXTRACTABLE), Some(&V::Bool(true)));
    let mut other = asked.clone();
    other.insert(A::EXTRACTABLE, V::Bool(false));
    assert_eq!(code(coming(&other, Some(&demanded), None)), ckr::TEMPLATE_INCONSISTENT);
    assert_eq!(code(coming(&Attributes::new(), None, None)), ckr::TEMPLATE_INCOMPLETE);
    let plan = coming(&Attributes::new(), None, Some((ObjectClass::SecretKey, 0x10))).expect("a plan");
    assert_eq!((plan.class, plan.key_type), (ObjectClass::SecretKey, 0x10));
    let public = template(&[(A::CLASS, V::Number(2)), (A::KEY_TYPE, V::Number(0))]);
    assert_eq!(code(coming(&public, None, None)), ckr::TEMPLATE_INCONSISTENT);
}

#[test]
fn changes_and_copies_only_tighten() {
    let plan = generate(0x1080, &template(&[(A::VALUE_LEN, V::Number(32)), (A::EXTRACTABLE, V::Bool(true))]));
    let record = key_record(plan.expect("a plan"), &Attributes::new(), History::Generated(0x1080));
    let set = |a, v| change(&record, &template(&[(a, v)]));
    assert_eq!(set(A::LABEL, V::Bytes(b"new".to_vec())).expect("changed").label(), "new");
    assert!(!set(A::EXTRACTABLE, V::Bool(false)).expect("changed").flag(A::EXTRACTABLE));
    assert!(!set(A::SIGN, V::Bool(false)).expect("changed").flag(A::SIGN));
    assert_eq!(code(set(A::SENSITIVE, V::Bool(false))), ckr::ATTRIBUTE_READ_ONLY);
    assert_eq!(code(set(A::PRIVATE, V::Bool(false))), ckr::ATTRIBUTE_READ_ONLY);
    assert_eq!(code(set(A::VALUE, V::Bytes(vec![1]))), ckr::ATTRIBUTE_READ_ONLY);
    assert_eq!(code(set(A::MODULUS, V::Bytes(vec![1]))), ckr::ATTRIBUTE_TYPE_INVALID);
    let copied = |a, v| copy(&record, &template(&[(a, v)]));
    assert!(!copied(A::MODIFIABLE, V::Bool(false)).expect("copied").flag(A::MODIFIABLE));
    assert_eq!(code(copied(A::PRIVATE, V::Bool(false))), ckr::TEMPLATE_INCONSISTENT);
    assert_eq!(code(copied(A::SENSITIVE, V::Bool(false))), ckr::ATTRIBUTE_READ_ONLY);
    let closed = set(A::EXTRACTABLE, V::Bool(false)).expect("changed");
    assert_eq!(
        code(change(&closed, &template(&[(A::EXTRACTABLE, V::Bool(true))]))),
        ckr::ATTRIBUTE_READ_ONLY
    );
}
