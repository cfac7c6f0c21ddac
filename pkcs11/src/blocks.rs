//! Multi-part encryption by whole operations: how a stream of parts is cut so that each cut is an operation of its own,
//! which any member can do. Pure.

use cryptoki_sys::{CK_MECHANISM_TYPE, CKM_AES_CBC, CKM_AES_CBC_PAD, CKM_AES_CTR, CKM_AES_ECB};
use keyraft_engine::domain::{Mechanism, Parameters};
use zeroize::Zeroizing;

/// AES's block, bytes.
const BLOCK: usize = 16;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// C_Encrypt
    Encrypt,
    /// C_Decrypt
    Decrypt,
}

/// A mode whose stream can be cut at blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    /// Blocks on their own.
    Ecb,
    /// The next cut's IV is the last ciphertext block. Padded at the end if `pad`.
    Cbc { iv: [u8; BLOCK], pad: bool },
    /// The next cut's counter is this one's plus its blocks.
    Ctr { counter_bits: u64, block: [u8; BLOCK] },
}

/// The state between the parts of one stream.
#[derive(Clone)]
pub(crate) struct Stream {
    mode: Mode,
    way: Way,
    /// What did not fill a block yet, or must be held back.
    carry: Zeroizing<Vec<u8>>,
}

/// One cut: a whole operation.
pub(crate) struct Cut {
    /// How.
    pub mechanism: Mechanism,
    /// On what.
    pub data: Zeroizing<Vec<u8>>,
}

impl Stream {
    /// Begins a stream; None for a mechanism whose stream cannot be cut. `plain_cbc` says whether CKM_AES_CBC may be
    /// used, which the cuts of a padded stream need.
    pub fn new(mechanism: &Mechanism, way: Way, plain_cbc: bool) -> Option<Self> {
        let mode = match (mechanism.number, &mechanism.parameters) {
            (CKM_AES_ECB, Parameters::None) => Mode::Ecb,
            (CKM_AES_CBC, Parameters::Bytes(iv)) => {
                Mode::Cbc { iv: iv.as_slice().try_into().ok()?, pad: false }
            }
            (CKM_AES_CBC_PAD, Parameters::Bytes(iv)) if plain_cbc => {
                Mode::Cbc { iv: iv.as_slice().try_into().ok()?, pad: true }
            }
            (CKM_AES_CTR, Parameters::Ctr { counter_bits, block }) => {
                Mode::Ctr { counter_bits: *counter_bits, block: *block }
            }
            _ => return None,
        };
        Some(Self { mode, way, carry: Zeroizing::default() })
    }

    /// Bytes that an update with `more` bytes gives.
    pub fn update_length(&self, more: usize) -> usize {
        let have = self.carry.len() + more;
        // The last block of a padded ciphertext is only taken apart at the end.
        let held = usize::from(self.way == Way::Decrypt && matches!(self.mode, Mode::Cbc { pad: true, .. }));
        have.saturating_sub(held) / BLOCK * BLOCK
    }

    /// Takes a part; the cut that it completes, if any.
    pub fn update(&mut self, part: &[u8]) -> Option<Cut> {
        let length = self.update_length(part.len());
        self.carry.extend_from_slice(part);
        if length == 0 {
            return None;
        }
        let rest = Zeroizing::new(self.carry.split_off(length));
        let data = std::mem::replace(&mut self.carry, rest);
        Some(Cut { mechanism: self.mechanism(false), data })
    }

    /// Takes note of a cut's result: the chain goes on from it.
    pub fn advance(&mut self, data: &[u8], output: &[u8]) {
        let ciphertext = if self.way == Way::Encrypt { output } else { data };
        match &mut self.mode {
            Mode::Ecb => {}
            Mode::Cbc { iv, .. } => {
                if let Some(last) = ciphertext.last_chunk::<BLOCK>() {
                    *iv = *last;
                }
            }
            Mode::Ctr { counter_bits, block } => {
                *block = counted(*block, *counter_bits, data.len().div_ceil(BLOCK) as u128);
            }
        }
    }

    /// The last cut; None if nothing is left to do.
    pub fn finish(&mut self) -> Option<Cut> {
        let padded = matches!(self.mode, Mode::Cbc { pad: true, .. });
        if self.carry.is_empty() && !padded {
            return None;
        }
        Some(Cut { mechanism: self.mechanism(true), data: std::mem::take(&mut self.carry) })
    }

    fn mechanism(&self, last: bool) -> Mechanism {
        let (number, parameters): (CK_MECHANISM_TYPE, _) = match &self.mode {
            Mode::Ecb => (CKM_AES_ECB, Parameters::None),
            Mode::Cbc { iv, pad } => {
                (if *pad && last { CKM_AES_CBC_PAD } else { CKM_AES_CBC }, Parameters::Bytes(iv.to_vec()))
            }
            Mode::Ctr { counter_bits, block } => {
                (CKM_AES_CTR, Parameters::Ctr { counter_bits: *counter_bits, block: *block })
            }
        };
        Mechanism { number, parameters }
    }
}

/// A counter block after so many blocks: its low bits count, the others stay (NIST SP 800-38A, appendix B.1).
fn counted(block: [u8; BLOCK], counter_bits: u64, blocks: u128) -> [u8; BLOCK] {
    let value = u128::from_be_bytes(block);
    let mask = if counter_bits >= 128 { u128::MAX } else { (1 << counter_bits) - 1 };
    ((value & !mask) | (value.wrapping_add(blocks) & mask)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cbc(pad: bool, way: Way) -> Stream {
        let number = if pad { CKM_AES_CBC_PAD } else { CKM_AES_CBC };
        let mechanism = Mechanism { number, parameters: Parameters::Bytes(vec![9; BLOCK]) };
        Stream::new(&mechanism, way, true).expect("can be cut")
    }

    #[test]
    fn cuts_at_blocks_and_chains() {
        let mut stream = cbc(false, Way::Encrypt);
        assert!(stream.update(&[1; 15]).is_none());
        assert_eq!(stream.update_length(18), 32);
        let cut = stream.update(&[2; 18]).expect("two blocks");
        assert_eq!((cut.data.len(), cut.mechanism.number), (32, CKM_AES_CBC));
        stream.advance(&cut.data, &[7; 32]);
        let last = stream.finish().expect("one byte is left");
        assert_eq!(
            (last.data.as_slice(), &last.mechanism.parameters),
            (&[2][..], &Parameters::Bytes(vec![7; BLOCK]))
        );
    }

    #[test]
    fn a_padded_end_is_held_back() {
        let mut stream = cbc(true, Way::Decrypt);
        assert!(stream.update(&[1; 16]).is_none());
        let cut = stream.update(&[2; 16]).expect("the first block");
        stream.advance(&cut.data, &[0; 16]);
        let last = stream.finish().expect("the held block");
        assert_eq!(last.mechanism.number, CKM_AES_CBC_PAD);
        assert_eq!(last.mechanism.parameters, Parameters::Bytes(vec![1; BLOCK]));
        let mut encrypt = cbc(true, Way::Encrypt);
        let cut = encrypt.update(&[1; 16]).expect("a block");
        encrypt.advance(&cut.data, &[5; 16]);
        assert_eq!(encrypt.finish().expect("padding alone").data.len(), 0);
        assert!(Stream::new(&encrypt.mechanism(true), Way::Encrypt, false).is_none());
    }

    #[test]
    fn counters_wrap_within_their_bits() {
        let block = [0xFF; BLOCK];
        assert_eq!(counted(block, 128, 1), [0; BLOCK]);
        let mut kept = [0xFF; BLOCK];
        kept[12..].fill(0);
        assert_eq!(counted(block, 32, 1), kept);
        let number = CKM_AES_CTR;
        let mechanism =
            Mechanism { number, parameters: Parameters::Ctr { counter_bits: 64, block: [0; BLOCK] } };
        let mut stream = Stream::new(&mechanism, Way::Encrypt, false).expect("can be cut");
        let cut = stream.update(&[0; 48]).expect("three blocks");
        stream.advance(&cut.data, &cut.data);
        let cut = stream.update(&[0; 16]).expect("one");
        let Parameters::Ctr { block, .. } = cut.mechanism.parameters else { panic!("is CTR") };
        assert_eq!(u128::from_be_bytes(block), 3);
    }
}
