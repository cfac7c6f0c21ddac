//! Reading the maps and sets that share structure. imbl's own reading takes memory for as many entries as a length
//! claims; these take it as entries come.

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};

/// For `#[serde(deserialize_with)]` of a map.
pub(super) fn map<'de, K, V, D>(deserializer: D) -> Result<OrdMap<K, V>, D::Error>
where
    K: Deserialize<'de> + Ord + Clone,
    V: Deserialize<'de> + Clone,
    D: Deserializer<'de>,
{
    Ok(BTreeMap::deserialize(deserializer)?.into_iter().collect())
}

/// For `#[serde(deserialize_with)]` of a set.
pub(super) fn set<'de, T, D>(deserializer: D) -> Result<OrdSet<T>, D::Error>
where
    T: Deserialize<'de> + Ord + Clone,
    D: Deserializer<'de>,
{
    Ok(BTreeSet::deserialize(deserializer)?.into_iter().collect())
}

/// For `#[serde(deserialize_with)]` of a map of sets.
pub(super) fn map_of_sets<'de, K, T, D>(deserializer: D) -> Result<OrdMap<K, OrdSet<T>>, D::Error>
where
    K: Deserialize<'de> + Ord + Clone,
    T: Deserialize<'de> + Ord + Clone,
    D: Deserializer<'de>,
{
    let sets: BTreeMap<K, BTreeSet<T>> = Deserialize::deserialize(deserializer)?;
    Ok(sets.into_iter().map(|(key, set)| (key, set.into_iter().collect::<OrdSet<T>>())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Shared {
        #[serde(deserialize_with = "map")]
        map: OrdMap<u8, u8>,
        #[serde(deserialize_with = "set")]
        set: OrdSet<u8>,
        #[serde(deserialize_with = "map_of_sets")]
        sets: OrdMap<u8, OrdSet<u8>>,
    }

    #[test]
    fn what_is_written_is_read_and_a_forged_length_takes_no_memory() {
        let set: OrdSet<u8> = [1, 2].into_iter().collect();
        let shared = Shared { map: OrdMap::unit(3, 4), set: set.clone(), sets: OrdMap::unit(5, set) };
        let bytes = codec::encode(&shared).expect("encodes");
        assert_eq!(bytes, [1, 1, 3, 4, 2, 1, 2, 1, 5, 2, 1, 2]);
        assert_eq!(codec::decode::<Shared>(&bytes, 64), Ok(shared));
        for at in [1, 4, 7, 9] {
            let forged = [&bytes[..at], &[253, 0, 0, 0, 0, 0, 0, 0, 1], &bytes[at + 1..]].concat();
            assert!(codec::decode::<Shared>(&forged, 64).is_err(), "length at {at}");
        }
    }
}
