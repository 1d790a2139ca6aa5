//! What a process says and is told: its pipes or its terminal, to and from its log and its readers.

use crate::conns::{MOST_BEHIND, Passing};
use crate::daemon::{Daemon, READ};
use crate::reactor::Token;
use crate::sys::{self};
use farshell_protocol::Reply;
use farshell_protocol::process::Stream;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Output read from one pipe before others get their turn.
const TURN: usize = 4 << 20;
/// A pipe of the usual size that holds this much is busy, and gets the other size.
const FULL_PIPE: usize = 60 << 10;
const BUSY_PIPE: usize = 1 << 20;

impl Daemon {
    /// A pipe of this pair has something to say.
    pub(crate) fn output_ready(&mut self, pipes: u32, stream: u8) {
        let Some(key) = self.pipe_owner.get(&pipes).copied() else { return };
        self.read_output(key, stream, TURN, false);
        // A reader that was woken may have fallen behind; the rest is pushed when its socket has room.
        self.pump_readers(key);
    }

    fn pump_readers(&mut self, key: u32) {
        let Some(process) = self.procs.get(&key) else { return };
        for (conn, _) in process.readers.clone() {
            self.pump(conn);
        }
    }

    /// Reads at most `most` bytes. False once nobody can write to the pipe any more.
    fn read_output(&mut self, key: u32, stream: u8, most: usize, regardless: bool) -> bool {
        let mut done = 0;
        if most >= READ {
            self.widen(key, stream);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let open = loop {
            if !regardless && self.behind(key) > MOST_BEHIND {
                if let Some(process) = self.procs.get_mut(&key) {
                    process.paused = true;
                }
                break true;
            }
            if most - done >= READ {
                std::mem::swap(&mut buffer, &mut self.buffer);
                let passed = self.pass_on(key, stream);
                std::mem::swap(&mut buffer, &mut self.buffer);
                match passed {
                    Passing::Moved(bytes) => {
                        done += bytes;
                        continue;
                    }
                    Passing::Later if !regardless => {
                        if let Some(process) = self.procs.get_mut(&key) {
                            process.paused = true;
                        }
                        break true;
                    }
                    Passing::Later | Passing::No => {}
                }
            }
            let Some(process) = self.procs.get_mut(&key) else { break false };
            let Some(fd) = &process.outputs[stream as usize] else { break false };
            if done >= most {
                if !regardless {
                    self.backlog.push_back(Token::Output(process.pipes, stream));
                }
                break true;
            }
            let want = READ.min(most - done);
            let n = match rustix::io::read(fd, &mut buffer[..want]) {
                Ok(0) => break false,
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break true,
                // A terminal whose last user has gone.
                Err(_) => break false,
            };
            self.said(key, if stream == 0 { Stream::Stdout } else { Stream::Stderr }, &buffer[..n]);
            done += n;
        };
        self.buffer = buffer;
        if !open {
            self.output_closed(key, stream);
        }
        open
    }

    /// A process has printed this.
    pub(crate) fn said(&mut self, key: u32, stream: Stream, bytes: &[u8]) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        if bytes.is_empty() {
            return;
        }
        let offset = process.log.total_of(stream);
        process.log.append(stream, bytes);
        self.deliver(key, stream, offset, bytes);
    }

    /// Gives a pipe that was found full a larger size, so that writer and reader meet less often.
    fn widen(&mut self, key: u32, stream: u8) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        let Some(fd) = process.outputs[stream as usize].as_ref().filter(|_| !process.pty) else { return };
        if !process.wide[stream as usize] && sys::pipe_fill(fd.as_fd()) >= FULL_PIPE {
            process.wide[stream as usize] = true;
            let _ = rustix::pipe::fcntl_setpipe_size(fd, BUSY_PIPE);
        }
    }

    /// Nobody can write to this output any more, for now: a session's next command may open the pipe again.
    fn output_closed(&mut self, key: u32, stream: u8) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        if process.shell.is_some() && !process.ended() && process.end_held.is_none() {
            return;
        }
        if process.outputs[stream as usize].take().is_none() {
            return;
        }
        if !process.open() {
            self.pipe_owner.remove(&process.pipes);
            if process.ended() && process.end_held.is_none() {
                self.wake_readers(key);
            }
        }
    }

    /// What the process has printed before this moment, however much a background child adds meanwhile.
    pub(crate) fn drain(&mut self, key: u32) -> [bool; 2] {
        let mut open = [false; 2];
        for stream in 0..2_u8 {
            let Some(process) = self.procs.get(&key) else { return open };
            let Some(fd) = &process.outputs[stream as usize] else { continue };
            // One byte more than there can be finds out whether anybody still holds the pipe.
            let unknown = process.pty || process.leaves_nothing;
            let most = if unknown { BUSY_PIPE } else { sys::pipe_size(fd.as_fd()) + 1 };
            open[stream as usize] = self.read_output(key, stream, most, true);
        }
        open
    }

    /// The same for pipes that we hold open ourselves, so that there is nothing to find out but what is in them.
    pub(crate) fn drain_own(&mut self, key: u32) {
        for stream in 0..2_u8 {
            let Some(process) = self.procs.get(&key).filter(|p| !p.direct) else { return };
            let Some(fd) = &process.outputs[stream as usize] else { continue };
            let fill = sys::pipe_fill(fd.as_fd());
            if fill > 0 {
                self.read_output(key, stream, fill, true);
            }
        }
    }

    /// Readers have caught up: the process may go on.
    pub(crate) fn maybe_resume(&mut self, key: u32) {
        let Some(process) = self.procs.get(&key) else { return };
        if !process.paused || self.behind(key) > MOST_BEHIND / 2 {
            return;
        }
        let pipes = process.pipes;
        if let Some(process) = self.procs.get_mut(&key) {
            process.paused = false;
        }
        self.backlog.extend([Token::Output(pipes, 0), Token::Output(pipes, 1)]);
    }

    /// There is input to write, or room for it.
    pub(crate) fn input_ready(&mut self, key: u32) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        let input = &mut process.stdin;
        let Some(fd) = &input.fd else { return };
        let mut failed = false;
        while !input.pending.is_empty() {
            match rustix::io::write(fd, &input.pending) {
                Ok(n) => drop(input.pending.drain(..n)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // The process does not want any more; that is its right.
                    failed = true;
                    break;
                }
            }
        }
        if failed {
            input.pending.clear();
        }
        if input.eof || failed {
            if process.pty && !failed {
                // End of file on a terminal is a character.
                let _ = rustix::io::write(fd, &[4]);
            }
            input.eof = true;
            input.fd = None;
        }
        let taken = input.taken;
        for (conn, call) in std::mem::take(&mut input.callers) {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.calls.remove(&call);
            }
            self.reply(conn, call, &Ok(Reply::Stdin { taken }));
        }
    }

    pub(crate) fn wake_reader(&mut self, conn: u32, call: u32) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.is_ready(call);
        }
        self.pump(conn);
    }
}
