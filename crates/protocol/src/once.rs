//! Numbers of requests that must not be done twice, but may be asked for twice because the answer was lost.
//!
//! An engine chooses a random number for the request and counts its attempts in the lowest bits; 0 is no number. An
//! outpost that did the request, or failed to, answers every later attempt as it answered then, and does nothing more. An
//! attempt that comes when a newer one has been there is refused with [`crate::ErrorKind::CalledOff`]; so is one that finds
//! an older one under way, which is called off: who asked is to come back with the next attempt.
//!
//! An outpost remembers a number for [`REMEMBERED`] after the last attempt, and an engine asks again only within half of
//! that. If there are too many to remember, an attempt that is not the first is refused with
//! [`crate::ErrorKind::Forgotten`], since it may have been one of those.
//!
//! Whatever the request was, a later attempt may be a mere look at something: if that is done, the request itself
//! was not, and never will be.

use std::time::Duration;

const ATTEMPTS: u32 = 16;

/// How long an outpost remembers a number. Half of it is more than an engine takes to connect again before it gives up.
pub const REMEMBERED: Duration = Duration::from_secs(20 * 60);

/// The first attempt of a request.
#[must_use]
pub fn first(random: u64) -> u64 {
    // Not 0, which is no number.
    random.max(1 << ATTEMPTS) >> ATTEMPTS << ATTEMPTS | 1
}

/// The next attempt, `None` when there were too many.
#[must_use]
pub fn next(number: u64) -> Option<u64> {
    number.checked_add(1).filter(|next| request_of(*next) == request_of(number))
}

/// Was the request asked for before?
#[must_use]
pub fn is_repeated(number: u64) -> bool {
    number != first(number)
}

/// What all attempts of a request have in common.
#[must_use]
pub fn request_of(number: u64) -> u64 {
    number >> ATTEMPTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_those_of_one_request_until_they_run_out() {
        for random in [0, 1, 1 << 16, 0x1234_5678_9abc_def0, u64::MAX] {
            let mut number = first(random);
            assert_ne!(request_of(number), 0);
            let request = request_of(number);
            assert!(!is_repeated(number));
            let mut attempts = 1;
            while let Some(later) = next(number) {
                assert!(later > number);
                assert!(is_repeated(later));
                assert_eq!(request_of(later), request);
                (number, attempts) = (later, attempts + 1);
            }
            assert_eq!(attempts, 0xffff);
        }
    }
}
