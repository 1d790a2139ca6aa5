//! Waiting: descriptors and deadlines, in one place. Nothing in the outpost polls or sleeps.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Token {
    Listener,
    Signals,
    /// Worker threads have something to say.
    Workers,
    Conn(u32),
    /// The other end of this connection sends nothing more. Comes before [`Token::Conn`], and is told once.
    Closing(u32),
    /// A process's output: 0 stdout (or the terminal), 1 stderr.
    Output(u32, u8),
    /// A process's input has room again.
    Input(u32),
    /// A shell reports.
    Shell(u32),
}

impl Token {
    fn to_u64(self) -> u64 {
        let (kind, key, extra) = match self {
            Self::Listener => (0, 0, 0),
            Self::Signals => (1, 0, 0),
            Self::Workers => (2, 0, 0),
            Self::Conn(k) => (3, k, 0),
            Self::Output(k, stream) => (4, k, stream),
            Self::Input(k) => (5, k, 0),
            Self::Shell(k) => (6, k, 0),
            Self::Closing(k) => (7, k, 0),
        };
        u64::from(key) << 16 | u64::from(extra) << 8 | kind
    }

    fn from_u64(raw: u64) -> Option<Self> {
        let key = (raw >> 16) as u32;
        let extra = (raw >> 8) as u8;
        Some(match raw & 0xff {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Workers,
            3 => Self::Conn(key),
            4 => Self::Output(key, extra),
            5 => Self::Input(key),
            6 => Self::Shell(key),
            7 => Self::Closing(key),
            _ => return None,
        })
    }
}

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// A process's time is up.
    Timeout(u32),
    /// A shell should have been ready by now.
    ShellStart(u32),
    /// Is the shell that runs this process still on its way?
    Watchdog(u32),
    /// Is there somebody in this process whom a signal came too early for?
    Signal { process: u32, signal: i32, looks: u8, reached: crate::kill::Reached },
    /// Has the lease run out?
    Lease,
}

/// Which events a descriptor is watched for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interest {
    /// As long as there is something to read.
    Read,
    /// When something new arrives: for pipes whose writers come and go, where "no writer" would otherwise
    /// be reported without end.
    ReadEdge,
    /// When something arrives at a socket, or its other end goes; told once.
    Socket,
    /// The same, and when there is room to write. Not for sockets at rest: there each piece that the other end reads
    /// makes room, and would wake both.
    FullSocket,
    /// When there is room again, told once.
    WriteEdge,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadEdge => EventFlags::IN | EventFlags::ET,
            Self::Socket => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
            Self::FullSocket => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
            Self::WriteEdge => EventFlags::OUT | EventFlags::ET,
        }
    }
}

/// A deadline that was set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AlarmKey((Instant, u64));

#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: OwnedFd,
    alarms: BTreeMap<(Instant, u64), Alarm>,
    next: u64,
}

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, alarms: BTreeMap::new(), next: 0 })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token.to_u64()), interest.flags())?)
    }

    /// Watches for something else from now on. What is there already is told.
    pub(crate) fn change(&self, fd: impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token.to_u64()), interest.flags())?)
    }

    /// Watches a descriptor no longer. What it stood for may live on under another number, watched as before.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Fails only if it was not watched, which is what is wanted.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Sets a deadline.
    pub(crate) fn alarm(&mut self, at: Instant, alarm: Alarm) -> AlarmKey {
        self.next += 1;
        let key = (at, self.next);
        self.alarms.insert(key, alarm);
        AlarmKey(key)
    }

    /// Takes a deadline back; one that has passed is no matter.
    pub(crate) fn cancel(&mut self, key: AlarmKey) {
        self.alarms.remove(&key.0);
    }

    /// Waits for events (not at all if `busy`), and gives them with the alarms that are due.
    pub(crate) fn wait(&mut self, busy: bool, tokens: &mut Vec<Token>, alarms: &mut Vec<Alarm>) {
        let timeout = if busy {
            Some(Duration::ZERO)
        } else {
            self.alarms.first_key_value().map(|((at, _), _)| at.saturating_duration_since(Instant::now()))
        };
        let timeout = timeout
            .map(|t| Timespec { tv_sec: t.as_secs().cast_signed(), tv_nsec: i64::from(t.subsec_nanos()) });
        let mut buf = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        if let Ok(n) = epoll::wait(&self.epoll, &mut buf[..], timeout.as_ref()) {
            for event in &buf[..n] {
                let token = Token::from_u64(event.data.u64());
                // A copy: the kernel packs its fields.
                let flags = event.flags;
                let over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                if let (Some(Token::Conn(key)), true) = (token, over) {
                    tokens.push(Token::Closing(key));
                }
                tokens.extend(token);
            }
        }
        if self.alarms.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(entry) = self.alarms.first_entry() {
            if entry.key().0 > now {
                break;
            }
            alarms.push(entry.remove());
        }
    }
}
