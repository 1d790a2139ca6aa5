//! Tokens with an end: HS256, signed by the emulator with a key of its own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Claims {
    /// `auth`, or the task that the router lets its holder into, or the id of a sandbox that its holder has made.
    pub(crate) sub: String,
    pub(crate) exp: u64,
}

#[derive(Debug)]
pub(crate) struct Signer([u8; 32]);

impl Signer {
    pub(crate) fn new() -> Self {
        Self(crate::ids::random())
    }

    pub(crate) fn sign(&self, sub: &str, life: Duration) -> String {
        self.sign_until(sub, now() + life.as_secs())
    }

    /// It outlives the sandbox, which may be asked about then.
    pub(crate) fn sign_of_sandbox(&self, id: &str) -> String {
        self.sign(id, Duration::from_secs(365 * 24 * 3600))
    }

    pub(crate) fn sign_expired(&self, sub: &str) -> String {
        self.sign_until(sub, now().saturating_sub(1))
    }

    fn sign_until(&self, sub: &str, exp: u64) -> String {
        let claims = Claims { sub: sub.into(), exp };
        let head = BASE64.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let body = BASE64.encode(serde_json::to_vec(&claims).unwrap_or_default());
        let text = format!("{head}.{body}");
        let mac = BASE64.encode(hmac(&self.0, text.as_bytes()));
        format!("{text}.{mac}")
    }

    /// What it says, if it is ours and not over.
    pub(crate) fn check(&self, token: &str) -> Result<Claims, &'static str> {
        let (text, mac) = token.rsplit_once('.').ok_or("malformed token")?;
        let (_, body) = text.split_once('.').ok_or("malformed token")?;
        let mac = BASE64.decode(mac).map_err(|_| "malformed token")?;
        // A test's emulator on loopback: nobody measures how long this takes.
        if mac != hmac(&self.0, text.as_bytes()) {
            return Err("token signature is invalid");
        }
        let body = BASE64.decode(body).map_err(|_| "malformed token")?;
        let claims: Claims = serde_json::from_slice(&body).map_err(|_| "malformed token")?;
        if claims.exp <= now() { Err("token is expired") } else { Ok(claims) }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// RFC 2104, with a key of 32 bytes.
fn hmac(key: &[u8; 32], text: &[u8]) -> Vec<u8> {
    let (mut inner, mut outer) = ([0x36; 64], [0x5c; 64]);
    for (at, byte) in key.iter().enumerate() {
        inner[at] ^= byte;
        outer[at] ^= byte;
    }
    let first = Sha256::new().chain_update(inner).chain_update(text).finalize();
    Sha256::new().chain_update(outer).chain_update(first).finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::{Signer, hmac};
    use std::time::Duration;

    #[test]
    fn mac_is_that_of_others() {
        // printf '%s' text | openssl dgst -sha256 -mac HMAC -macopt hexkey:0b0b…
        let hex: String = hmac(&[0x0b; 32], b"Hi There").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "198a607eb44bfbc69903a0f1cf2bbdc5ba0aa3f3d9ae3c1c7a3b1696a0b68cf7");
    }

    #[test]
    fn ours_alive_and_whole() {
        let signer = Signer::new();
        let good = signer.sign("ta-1", Duration::from_secs(60));
        assert_eq!(signer.check(&good).map(|claims| claims.sub), Ok("ta-1".into()));
        assert_eq!(signer.check(&signer.sign_expired("ta-1")), Err("token is expired"));
        assert_eq!(Signer::new().check(&good), Err("token signature is invalid"));
        assert_eq!(signer.check("a.b"), Err("malformed token"));
        assert_eq!(signer.check(""), Err("malformed token"));
    }
}
