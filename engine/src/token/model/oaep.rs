//! RSA-OAEP (SHA-1, RFC 8017) for simulations: encryption whose randomness comes from the `getrandom` crate, since
//! that of the library comes from the kernel and differs in every run; and the file of RSA-3072 keys.

use super::super::der::{self, Pkcs8, Reader};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, PrivateDecryptingKey};
use zeroize::Zeroizing;

/// RSA-3072 keys (PKCS#1, DER), one behind the other. For simulations only: everybody has them.
static PAIRS: &[u8] = include_bytes!("pairs.der");
/// How many there are.
const PAIR_COUNT: usize = 24;
const HASH_BYTES: usize = 20;

/// One of the keys as PKCS#8.
pub(super) fn pair(index: usize) -> Option<Zeroizing<Vec<u8>>> {
    let mut all = Reader::new(PAIRS);
    let mut keys = std::iter::from_fn(|| all.sequence());
    keys.nth(index % PAIR_COUNT).map(|key| der::rsa_pkcs8(key.rest()))
}

/// The modulus and the public exponent of a PKCS#8 key.
pub(super) fn public(pkcs8: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let Pkcs8::Rsa([modulus, exponent, ..]) = der::pkcs8(pkcs8)? else { return None };
    Some((modulus.to_vec(), exponent.to_vec()))
}

/// Decrypts with a PKCS#8 key; None if it was encrypted to another one.
pub(super) fn decrypt(pkcs8: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let key = OaepPrivateDecryptingKey::new(PrivateDecryptingKey::from_pkcs8(pkcs8).ok()?).ok()?;
    let mut out = Zeroizing::new(vec![0; key.min_output_size()]);
    let length = key.decrypt(&OAEP_SHA1_MGF1SHA1, sealed, &mut out, None).ok()?.len();
    out.truncate(length);
    Some(out)
}

/// Encrypts to a public key; None if `clear` is too long for it, or there are no random bytes.
pub(in super::super) fn encrypt(modulus: &[u8], exponent: &[u8], clear: &[u8]) -> Option<Vec<u8>> {
    let length = modulus.len();
    let padding = length.checked_sub(clear.len() + 2 * HASH_BYTES + 2)?;
    let mut seed = [0; HASH_BYTES];
    getrandom::fill(&mut seed).ok()?;
    let mut block = Zeroizing::new(Vec::with_capacity(length));
    block.extend_from_slice(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[]).as_ref());
    block.resize(HASH_BYTES + padding, 0);
    block.push(1);
    block.extend_from_slice(clear);
    mask(&mut block, &seed);
    mask(&mut seed, &block);
    let message = Zeroizing::new([&[0], &seed[..], &block[..]].concat());
    Some(power(&message, exponent, modulus))
}

/// MGF1 of the seed, added bit by bit.
fn mask(target: &mut [u8], seed: &[u8]) {
    for (part, counter) in target.chunks_mut(HASH_BYTES).zip(0u32..) {
        let pad = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[seed, &counter.to_be_bytes()].concat());
        part.iter_mut().zip(pad.as_ref()).for_each(|(byte, pad)| *byte ^= pad);
    }
}

/// base ^ exponent mod modulus. Slow and not in constant time: nothing here is secret outside a simulation.
fn power(base: &[u8], exponent: &[u8], modulus: &[u8]) -> Vec<u8> {
    let size = modulus.len().div_ceil(8);
    let (base, modulus_limbs) = (limbs(base, size), limbs(modulus, size));
    let mut result = limbs(&[1], size);
    for bit in bits(exponent) {
        result = product(&result, &result, &modulus_limbs);
        if bit {
            result = product(&result, &base, &modulus_limbs);
        }
    }
    let bytes: Vec<u8> = result.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
    bytes[bytes.len() - modulus.len()..].to_vec()
}

/// The bits of a big-endian number from the highest.
fn bits(number: &[u8]) -> impl Iterator<Item = bool> + '_ {
    number.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1))
}

/// A big-endian number as limbs from the lowest.
fn limbs(number: &[u8], size: usize) -> Vec<u64> {
    let mut out = vec![0; size];
    for (byte, place) in number.iter().rev().zip(0..size * 8) {
        out[place / 8] |= u64::from(*byte) << (place % 8 * 8);
    }
    out
}

/// a * b mod modulus, by doubling and adding.
fn product(a: &[u64], b: &[u64], modulus: &[u64]) -> Vec<u64> {
    let mut result = vec![0; modulus.len()];
    for bit in b.iter().rev().flat_map(|limb| (0..64).rev().map(move |bit| limb >> bit & 1 == 1)) {
        let twin = result.clone();
        add(&mut result, &twin, modulus);
        if bit {
            add(&mut result, a, modulus);
        }
    }
    result
}

/// target + other mod modulus; both are below it.
fn add(target: &mut [u64], other: &[u64], modulus: &[u64]) {
    let mut carry = false;
    for (limb, other) in target.iter_mut().zip(other) {
        (*limb, carry) = limb.carrying_sum(*other, carry);
    }
    if carry || target.iter().rev().ge(modulus.iter().rev()) {
        let mut borrow = false;
        for (limb, other) in target.iter_mut().zip(modulus) {
            (*limb, borrow) = limb.borrowing_rest(*other, borrow);
        }
    }
}

/// One limb of a long sum or difference, with what goes on to the next.
trait Limb: Sized {
    fn carrying_sum(self, other: Self, carry: bool) -> (Self, bool);
    fn borrowing_rest(self, other: Self, borrow: bool) -> (Self, bool);
}

impl Limb for u64 {
    fn carrying_sum(self, other: Self, carry: bool) -> (Self, bool) {
        let (sum, first) = self.overflowing_add(other);
        let (sum, second) = sum.overflowing_add(Self::from(carry));
        (sum, first || second)
    }

    fn borrowing_rest(self, other: Self, borrow: bool) -> (Self, bool) {
        let (rest, first) = self.overflowing_sub(other);
        let (rest, second) = rest.overflowing_sub(Self::from(borrow));
        (rest, first || second)
    }
}
