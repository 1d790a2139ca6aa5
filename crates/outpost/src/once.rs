//! What must not be done twice, but may be asked for twice because the answer was lost.
//!
//! Such a request has a number ([`farshell_protocol::once`]), in which its attempts are counted. What was done, or has
//! failed, is answered again: a failure may have had an effect. What is under way for an older attempt is called off, and
//! the asker is told to come back; what was called off may be tried again. An attempt that comes late, when a newer one
//! has been here, is refused.

use crate::filecalls::FileCall;
use farshell_protocol::message::to_bytes;
use farshell_protocol::once::{REMEMBERED, is_repeated, request_of};
use farshell_protocol::{ErrorKind, Failure, Reply};
use std::collections::VecDeque;
use std::time::Instant;

/// How many are remembered: a megabyte or two of them.
const MOST: usize = 8192;

#[derive(Debug, Default)]
pub(crate) struct Once {
    known: VecDeque<Known>,
    /// When the youngest of those was heard of that were forgotten because there were too many.
    forgotten: Option<Instant>,
}

#[derive(Debug)]
struct Known {
    /// That of the newest attempt.
    number: u64,
    /// When it was last heard of.
    at: Instant,
    /// While it is under way.
    call: Option<FileCall>,
    /// The answer, encoded, once there is one.
    reply: Vec<u8>,
    /// From where the first attempt that arrived takes its paths: the session may be elsewhere when the next one comes.
    cwd: Option<Vec<u8>>,
}

impl Once {
    fn find(&mut self, number: u64) -> Option<&mut Known> {
        self.known.iter_mut().rev().find(|known| request_of(known.number) == request_of(number))
    }

    /// An attempt arrives. Gives what it is answered with, if it is not to be made.
    pub(crate) fn attempt(&mut self, number: u64, now: Instant) -> Option<Result<Vec<u8>, Failure>> {
        if number == 0 {
            return None;
        }
        if let Some(known) = self.find(number) {
            known.at = now;
            if !known.reply.is_empty() {
                return Some(Ok(known.reply.clone()));
            }
            if known.number < number {
                known.number = number;
                known.call.as_ref()?.cancel();
            }
            return Some(Err(Failure::new(ErrorKind::CalledOff, "another attempt is under way")));
        }
        self.make_room(now);
        let young = |at| now.duration_since(at) <= REMEMBERED;
        let mut reply = Vec::new();
        if is_repeated(number) && self.forgotten.is_some_and(young) {
            let text = "too many changes were made since to remember whether this one was";
            reply = to_bytes(&Err::<Reply, _>(Failure::new(ErrorKind::Forgotten, text)));
        }
        let answer = Some(Ok(reply.clone())).filter(|_| !reply.is_empty());
        self.known.push_back(Known { number, at: now, call: None, reply, cwd: None });
        answer
    }

    fn make_room(&mut self, now: Instant) {
        self.known.retain(|known| known.call.is_some() || now.duration_since(known.at) <= REMEMBERED);
        if self.known.len() >= MOST
            && let Some(oldest) = self.known.iter().position(|known| known.call.is_none())
            && let Some(known) = self.known.remove(oldest)
        {
            self.forgotten = self.forgotten.max(Some(known.at));
        }
    }

    /// The directory from which an attempt takes its paths, if `cwd` is that of its session now.
    pub(crate) fn cwd(&mut self, number: u64, cwd: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let Some(known) = self.find(number) else { return cwd };
        if known.cwd.is_none() {
            known.cwd = cwd;
        }
        known.cwd.clone()
    }

    /// The attempt that arrived is being made.
    pub(crate) fn under_way(&mut self, number: u64, call: &FileCall) {
        if let Some(known) = self.find(number) {
            known.call = Some(call.clone());
        }
    }

    /// An attempt has ended.
    pub(crate) fn end(&mut self, number: u64, answer: &Result<Reply, Failure>, now: Instant) {
        let Some(known) = self.find(number) else { return };
        known.call = None;
        known.at = now;
        // Who finds something busy has not begun.
        let open = |failure: &Failure| matches!(failure.kind, ErrorKind::CalledOff | ErrorKind::Busy);
        if !answer.as_ref().is_err_and(open) {
            known.reply = to_bytes(answer);
            known.cwd = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DONE: Result<Reply, Failure> = Ok(Reply::Done);

    fn failed(kind: ErrorKind) -> Result<Reply, Failure> {
        Err(Failure::new(kind, "no"))
    }

    /// Attempts at one moment, unless that is moved on.
    struct Rig {
        once: Once,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            Self { once: Once::default(), now: Instant::now() }
        }

        /// `None`: it is made.
        fn attempt(&mut self, number: u64) -> Option<Result<Reply, Failure>> {
            let answer = self.once.attempt(number, self.now)?;
            Some(answer.and_then(|reply| farshell_protocol::message::from_bytes(&reply).unwrap()))
        }

        fn refused(&mut self, number: u64) -> Option<ErrorKind> {
            self.attempt(number).and_then(|answer| answer.err().map(|failure| failure.kind))
        }

        fn end(&mut self, number: u64, answer: &Result<Reply, Failure>) {
            self.once.end(number, answer, self.now);
        }
    }

    #[test]
    fn what_was_done_or_has_failed_is_answered_again() {
        let mut rig = Rig::new();
        for (request, answer) in [(0x1_0000, DONE), (0x2_0000, failed(ErrorKind::Exhausted))] {
            assert_eq!(rig.attempt(request | 1), None);
            rig.end(request | 1, &answer);
            for attempt in [1, 2, 9] {
                assert_eq!(rig.attempt(request | attempt), Some(answer.clone()));
            }
        }
        assert_eq!(rig.attempt(0x3_0001), None);
    }

    #[test]
    fn what_was_not_made_is_tried_again_but_not_by_who_comes_late() {
        for kind in [Some(ErrorKind::CalledOff), Some(ErrorKind::Busy), None] {
            let mut rig = Rig::new();
            assert_eq!(rig.attempt(0x1_0002), None);
            // `None`: refused before it began.
            if let Some(kind) = kind {
                rig.end(0x1_0002, &failed(kind));
            }
            assert_eq!(rig.refused(0x1_0001), Some(ErrorKind::CalledOff));
            assert_eq!(rig.refused(0x1_0002), Some(ErrorKind::CalledOff));
            assert_eq!(rig.attempt(0x1_0003), None);
            rig.end(0x1_0003, &DONE);
            assert_eq!(rig.attempt(0x1_0001), Some(DONE));
        }
    }

    #[test]
    fn what_is_under_way_is_called_off_by_the_next_attempt() {
        let mut rig = Rig::new();
        let call = FileCall::default();
        assert_eq!(rig.attempt(0x1_0001), None);
        rig.once.under_way(0x1_0001, &call);
        assert_eq!(rig.refused(0x1_0001), Some(ErrorKind::CalledOff));
        assert!(!call.is_cancelled());
        assert_eq!(rig.refused(0x1_0002), Some(ErrorKind::CalledOff));
        assert!(call.is_cancelled());
        rig.end(0x1_0001, &failed(ErrorKind::CalledOff));
        assert_eq!(rig.attempt(0x1_0003), None);
    }

    #[test]
    fn paths_are_those_of_the_first_attempt_that_arrived() {
        let mut rig = Rig::new();
        let (first, later) = (Some(b"/a".to_vec()), Some(b"/b".to_vec()));
        assert_eq!(rig.attempt(0x1_0001), None);
        assert_eq!(rig.once.cwd(0x1_0001, None), None);
        assert_eq!(rig.once.cwd(0x1_0001, first.clone()), first);
        assert_eq!(rig.attempt(0x1_0002), None);
        assert_eq!(rig.once.cwd(0x1_0002, later.clone()), first);
        assert_eq!(rig.once.cwd(0x1_0003, None), first);
        // Without a number nothing is kept.
        assert_eq!(rig.once.cwd(0, first.clone()), first);
        assert_eq!(rig.once.cwd(0, later.clone()), later);
    }

    #[test]
    fn what_may_have_been_made_and_is_forgotten_is_not_made_again() {
        let mut rig = Rig::new();
        assert_eq!(rig.attempt(0), None);
        assert_eq!(rig.once.known.len(), 0);
        assert_eq!(rig.attempt(1 << 16 | 1), None);
        rig.once.under_way(1 << 16 | 1, &FileCall::default());
        let most = u64::try_from(MOST).unwrap();
        for number in 2..=most {
            assert_eq!(rig.attempt(number << 16 | 1), None);
            rig.end(number << 16 | 1, &DONE);
        }
        // As long as nothing had to be forgotten, who is not known was not here.
        assert_eq!(rig.once.known.len(), MOST);
        assert_eq!(rig.once.forgotten, None);
        assert_eq!(rig.attempt((most + 1) << 16 | 1), None);
        assert_eq!(rig.once.known.len(), MOST);
        // What is under way is not forgotten.
        assert_eq!(rig.refused(1 << 16 | 1), Some(ErrorKind::CalledOff));
        assert_eq!(rig.attempt(3 << 16 | 2), Some(DONE));
        assert_eq!(rig.refused(2 << 16 | 2), Some(ErrorKind::Forgotten));
        // Nor is its first attempt made that comes late.
        assert_eq!(rig.refused(2 << 16 | 1), Some(ErrorKind::Forgotten));
        assert_eq!(rig.attempt((most + 2) << 16 | 1), None);
        // Nobody asks again any more for what was made then.
        rig.now += REMEMBERED + Duration::from_secs(1);
        assert_eq!(rig.attempt((most + 3) << 16 | 2), None);
        assert_eq!(rig.once.known.len(), 2);
    }
}
