use super::*;
use crate::domain::KeyAlgorithm;
use proptest::prelude::*;

fn record(number: u8, label: u8, flags: u8) -> AttributeRecord {
    let class = if number.is_multiple_of(2) { ObjectClass::SecretKey } else { ObjectClass::PublicKey };
    AttributeRecord {
        class,
        algorithm: Some(KeyAlgorithm::Aes { bits: 256 }),
        attributes: [
            (A::LABEL, V::Bytes(vec![b'a' + label % 4])),
            (A::ID, V::Bytes(vec![number % 3])),
            (A::VALUE_LEN, V::Number(u64::from(number % 2))),
            (A::PRIVATE, V::Bool(flags & 1 == 1)),
            (A::SIGN, V::Bool(flags & 2 == 2)),
            (A::SENSITIVE, V::Bool(true)),
            (A::VALUE, V::Bytes(vec![7])),
        ]
        .into(),
    }
}

fn asked(template: u8) -> Attributes {
    let all = [
        (A::CLASS, V::Number(4)),
        (A::LABEL, V::Bytes(vec![b'a' + template % 5])),
        (A::ID, V::Bytes(vec![template % 3])),
        (A::SIGN, V::Bool(template & 4 == 4)),
        (A::VALUE_LEN, V::Number(1)),
    ];
    all.into_iter().enumerate().filter(|(bit, _)| template >> bit & 1 == 1).map(|(_, one)| one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The index finds what a scan of all records finds, while objects come, change and go.
    #[test]
    fn finds_what_a_scan_finds(
        steps in proptest::collection::vec((0u64..12, any::<u8>(), any::<u8>(), any::<bool>()), 1..60),
        templates in proptest::collection::vec(any::<u8>(), 1..12),
        private in any::<bool>(),
        after in 0u64..12,
    ) {
        let mut index = Index::default();
        let mut all = BTreeMap::new();
        for (id, label, flags, gone) in steps {
            let id = ObjectId(id);
            if gone {
                index.remove(id);
                all.remove(&id);
            } else {
                let made = record(flags, label, flags);
                index.enter(id, Version(1), &made);
                all.insert(id, visible(&made));
            }
        }
        for template in templates.into_iter().map(asked) {
            let scan: Vec<ObjectId> = all
                .iter()
                .filter(|(id, _)| id.0 > after)
                .filter(|(_, record)| private || !record.flag(A::PRIVATE))
                .filter(|(_, record)| template.iter().all(|(a, v)| record.attributes.get(a) == Some(v)))
                .map(|(id, _)| *id)
                .collect();
            let page = index.find(&template, private, Some(ObjectId(after)), 3, |_| true);
            prop_assert_eq!(&page.objects[..], &scan[..scan.len().min(3)]);
            prop_assert_eq!(page.more, scan.len() > 3);
        }
        for id in index.ids().collect::<Vec<_>>() {
            index.remove(id);
        }
        prop_assert!(index.postings.is_empty());
    }
}

#[test]
fn a_hidden_value_finds_nothing() {
    let mut index = Index::default();
    index.enter(ObjectId(1), Version(1), &record(0, 0, 0));
    let by = |a, v| index.find(&Attributes::from([(a, v)]), true, None, 9, |_| true).objects;
    assert_eq!(by(A::VALUE, V::Bytes(vec![7])), []);
    assert_eq!(by(A::LABEL, V::Bytes(b"a".to_vec())), [ObjectId(1)]);
    assert_eq!(by(A::SENSITIVE, V::Bool(true)), [ObjectId(1)]);
    assert_eq!(by(A::TRUSTED, V::Bool(false)), []);
}
