//! The mechanisms that every member's token has, less those that a group cannot carry.

use crate::domain::{KeyAlgorithm, MechanismInfo};
use std::collections::BTreeMap;

/// CKF_GENERATE and CKF_GENERATE_KEY_PAIR
const GENERATES: u64 = 0x8000 | 0x1_0000;
/// The sizes of RSA keys that a group makes, bits.
const RSA_BITS: (u64, u64) = (2048, 4096);

/// Mechanisms whose state lies in the token, so that one member's use would be unknown to the others: one-time
/// passwords, and the stateful hash-based signatures with their key generation.
const STATEFUL: [u64; 12] =
    [0x280, 0x282, 0x290, 0x291, 0x2A0, 0x2A1, 0x4032, 0x4033, 0x4034, 0x4035, 0x4036, 0x4037];

/// CKM_CONCATENATE_BASE_AND_KEY: its parameter is a second key, which nobody would be asked about.
const NAMES_A_KEY: u64 = 0x360;

/// Families whose keys a group does not keep: DSA, DH and X9.42, RC2, RC4, DES.
const FOREIGN: [std::ops::RangeInclusive<u64>; 3] = [0x10..=0x18, 0x20..=0x34, 0x100..=0x15F];

/// True if the virtual slot refuses a mechanism that tokens may have: it keeps state in the token, or names a key.
pub fn is_refused(mechanism: u64) -> bool {
    STATEFUL.contains(&mechanism) || mechanism == NAMES_A_KEY
}

/// True if a group can carry what a mechanism generates.
pub fn is_generator(mechanism: u64) -> bool {
    KeyAlgorithm::promised().iter().any(|algorithm| algorithm.generator() == mechanism)
}

/// What all members share: the largest of the smallest sizes, the smallest of the largest, the flags in common.
pub fn shared<'a>(members: impl IntoIterator<Item = &'a [MechanismInfo]>) -> Vec<MechanismInfo> {
    let mut members = members.into_iter();
    let first = members.next().unwrap_or_default();
    let mut shared: BTreeMap<u64, MechanismInfo> = first.iter().map(|info| (info.number, *info)).collect();
    for member in members {
        let theirs: BTreeMap<u64, &MechanismInfo> = member.iter().map(|info| (info.number, info)).collect();
        shared.retain(|number, ours| {
            let Some(theirs) = theirs.get(number) else { return false };
            ours.min_key = ours.min_key.max(theirs.min_key);
            ours.max_key = ours.max_key.min(theirs.max_key);
            ours.flags &= theirs.flags;
            true
        });
    }
    shared.into_values().filter_map(carried).collect()
}

/// A shared mechanism as a group has it; None if it has not.
fn carried(mut info: MechanismInfo) -> Option<MechanismInfo> {
    if is_refused(info.number) || FOREIGN.iter().any(|family| family.contains(&info.number)) {
        return None;
    }
    if info.flags & GENERATES != 0 {
        if !is_generator(info.number) {
            return None;
        }
        if info.number == (KeyAlgorithm::Rsa { bits: 2048 }).generator() {
            info.min_key = info.min_key.max(RSA_BITS.0);
            info.max_key = info.max_key.min(RSA_BITS.1);
        }
    }
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(number: u64, min_key: u64, max_key: u64, flags: u64) -> MechanismInfo {
        MechanismInfo { number, min_key, max_key, flags }
    }

    #[test]
    fn what_all_members_have_and_a_group_carries() {
        const SIGN: u64 = 0x800;
        let one = [
            info(0, 512, 16384, 0x1_0000),
            info(1, 512, 4096, SIGN | 0x100),
            info(0x120, 0, 0, 0x8000),
            info(0x291, 0, 0, SIGN),
            info(0x1041, 112, 521, SIGN),
        ];
        let two = [
            info(0, 1024, 16384, 0x1_0000),
            info(1, 1024, 8192, SIGN),
            info(0x120, 0, 0, 0x8000),
            info(0x291, 0, 0, SIGN),
        ];
        let found = shared([&one[..], &two[..]]);
        assert_eq!(found, [info(0, 2048, 4096, 0x1_0000), info(1, 1024, 4096, SIGN)]);
        assert_eq!(shared([]), []);
    }
}
