//! SHA-256 in a few hundred bytes of code: the crate that everything else here uses is ten times as large, and an
//! outpost travels to every place. It is for comparing files, and nothing secret depends on it.

/// Square roots and cube roots of the first primes, see FIPS 180-4.
const BEGIN: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
#[rustfmt::skip]
const K: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

#[derive(Debug)]
pub(super) struct Sha256 {
    state: [u32; 8],
    block: [u8; 64],
    /// Of the block.
    filled: usize,
    bytes: u64,
}

impl Sha256 {
    pub(super) fn new() -> Self {
        Self { state: BEGIN, block: [0; 64], filled: 0, bytes: 0 }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        self.bytes = self.bytes.wrapping_add(bytes.len() as u64);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(64 - self.filled));
            self.block[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == 64 {
                self.compress();
            }
        }
    }

    pub(super) fn finish(mut self) -> [u8; 32] {
        let bits = self.bytes.wrapping_mul(8);
        self.update(&[0x80]);
        while self.filled != 56 {
            self.update(&[0]);
        }
        self.update(&bits.to_be_bytes());
        let mut hash = [0; 32];
        for (word, out) in self.state.iter().zip(hash.chunks_exact_mut(4)) {
            out.copy_from_slice(&word.to_be_bytes());
        }
        hash
    }

    fn compress(&mut self) {
        let mut w = [0_u32; 64];
        for (word, bytes) in w.iter_mut().zip(self.block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        for i in 16..64 {
            let (a, b) = (w[i - 15], w[i - 2]);
            let low = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
            let high = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
            w[i] = w[i - 16].wrapping_add(low).wrapping_add(w[i - 7]).wrapping_add(high);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = self.state;
        for i in 0..64 {
            let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = e & f ^ !e & g;
            let one = h.wrapping_add(high).wrapping_add(choice).wrapping_add(K[i]).wrapping_add(w[i]);
            let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let two = low.wrapping_add(a & b ^ a & c ^ b & c);
            (h, g, f, e) = (g, f, e, d.wrapping_add(one));
            (d, c, b, a) = (c, b, a, one.wrapping_add(two));
        }
        for (word, add) in self.state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = word.wrapping_add(add);
        }
        self.filled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;

    /// Against the crate, for every length around the borders of blocks and in pieces of all kinds.
    #[test]
    fn it_is_sha_256() {
        let bytes: Vec<u8> = (0..300_u32).map(|n| (n * 7 + n / 3) as u8).collect();
        for len in 0..bytes.len() {
            for piece in [1, 3, 63, 64, 65, 300] {
                let mut hash = Sha256::new();
                bytes[..len].chunks(piece).for_each(|piece| hash.update(piece));
                assert_eq!(hash.finish()[..], sha2::Sha256::digest(&bytes[..len])[..], "{len} by {piece}");
            }
        }
    }
}
