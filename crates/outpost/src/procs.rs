//! The end of a process, and what is kept of it.

use crate::conns::Call;
use crate::daemon::Daemon;
use crate::kill::Target;
use crate::process::Process;
use crate::sys::Change;
use farshell_protocol::Reply;
use farshell_protocol::process::{End, Killed, State};
use std::sync::Arc;
use std::time::Duration;

/// Finished processes that are kept.
const MOST_FINISHED: usize = 1024;
/// Log bytes of finished processes that are kept, in memory and on disk.
const MOST_LOG_MEMORY: usize = 4 << 20;
const MOST_LOG_DISK: u64 = 1 << 30;
/// Ids that are remembered after their record is gone.
const MOST_SPENT: usize = 100_000;

impl Daemon {
    pub(crate) fn process_died(&mut self, key: u32, change: Change) {
        self.drain(key);
        let Some(process) = self.procs.get_mut(&key) else { return };
        let (end, usage) = match change {
            Change::Exited { code, usage } => (End::Exited(code), usage),
            Change::Signaled { signal, usage } => (End::Signaled(signal), usage),
            Change::Stopped => return,
        };
        process.usage = Some(usage);
        process.scripts.clear();
        self.process_ended(key, end);
    }

    /// It has ended. If a kill is under way, that is told when the kill is through.
    pub(crate) fn process_ended(&mut self, key: u32, end: End) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        process.end(end);
        // 128 + 9 is a shell's word for what was killed.
        let killed = matches!(end, End::Signaled(libc::SIGKILL) | End::Exited(137));
        process.out_of_memory = killed && crate::memory::ran_out(process.kills_before);
        process.stdin.fd = None;
        process.stdin.pending.clear();
        process.stdin.eof = true;
        let callers = std::mem::take(&mut process.stdin.callers);
        for alarm in [process.timeout_alarm.take(), process.watchdog_alarm.take()].into_iter().flatten() {
            self.reactor.cancel(alarm);
        }
        if process.killing {
            process.end_held = Some(end);
        }
        let held = process.killing;
        let taken = process.stdin.taken;
        for (conn, call) in callers {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.calls.remove(&call);
            }
            self.reply(conn, call, &Ok(Reply::Stdin { taken }));
        }
        if !held {
            self.retire(key);
            self.wake_readers(key);
        }
    }

    pub(crate) fn time_is_up(&mut self, key: u32) {
        let Some(process) = self.procs.get_mut(&key) else { return };
        process.timeout_alarm = None;
        if process.ended() {
            return;
        }
        process.timed_out = true;
        let grace = process.grace;
        self.start_kill(key, grace);
    }

    pub(crate) fn target(&self, process: &Process, first: i32, grace: Duration) -> Target {
        Target {
            key: process.key,
            tag: process.tag,
            children: Arc::clone(&self.children),
            root: process.pid,
            shell: process.session.is_some(),
            running: !process.ended(),
            since: process.since,
            grace,
            first,
        }
    }

    pub(crate) fn start_kill(&mut self, key: u32, grace: Duration) {
        let Some(process) = self.procs.get(&key) else { return };
        if process.killing {
            return;
        }
        let target = self.target(process, libc::SIGTERM, grace);
        if let Some(process) = self.procs.get_mut(&key) {
            process.killing = true;
            process.unwanted = true;
        }
        // The killer lives as long as the daemon.
        let _ = self.killer.send(target);
    }

    pub(crate) fn kill_outcomes(&mut self) {
        // Whoever was killed may still have to be waited for.
        while let Ok(outcome) = self.outcomes.try_recv() {
            let key = outcome.key;
            let Some(process) = self.procs.get_mut(&key) else { continue };
            process.killing = false;
            let before = process.killed.unwrap_or_default();
            let killed = Killed { killed: before.killed + outcome.killed.killed, left: outcome.killed.left };
            process.killed = Some(killed);
            let id = process.id.clone();
            if process.end_held.take().is_some() {
                self.retire(key);
                self.wake_readers(key);
            }
            self.answer_kills(key, &id, killed);
        }
    }

    fn answer_kills(&mut self, key: u32, id: &farshell_protocol::ProcessId, killed: Killed) {
        let mut done = Vec::new();
        for (conn, state) in &mut self.conns {
            for (call, kind) in &mut state.calls {
                if let Call::Kill { waiting, results } = kind
                    && waiting.contains(&key)
                {
                    waiting.retain(|k| *k != key);
                    results.push((id.clone(), killed));
                    if waiting.is_empty() {
                        done.push((*conn, *call, std::mem::take(results)));
                    }
                }
            }
        }
        for (conn, call, results) in done {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.calls.remove(&call);
            }
            self.reply(conn, call, &Ok(Reply::Killed(results)));
        }
    }

    /// Takes an ended process into the records, and makes room for it.
    pub(crate) fn retire(&mut self, key: u32) {
        let Some(process) = self.procs.get(&key) else { return };
        self.log_memory += process.log.memory();
        self.log_disk += process.log.disk();
        self.finished.push_back(key);
        self.maybe_idle();
        if self.log_memory > MOST_LOG_MEMORY {
            self.spill_finished();
        }
        let mut looked = 0;
        while (self.finished.len() > MOST_FINISHED || self.log_disk > MOST_LOG_DISK)
            && looked < self.finished.len()
        {
            let Some(oldest) = self.finished.pop_front() else { return };
            // To drop an output that is still written to would kill the writer.
            let keep = self.procs.get(&oldest).is_some_and(|p| p.open() || !p.readers.is_empty());
            if keep {
                self.finished.push_back(oldest);
                looked += 1;
            } else {
                self.evict(oldest);
            }
        }
    }

    fn spill_finished(&mut self) {
        let (mut memory, mut disk) = (0, 0);
        for key in self.finished.iter().rev() {
            let Some(process) = self.procs.get_mut(key) else { continue };
            let log = &mut process.log;
            // Where there is no room for files, the newest stay.
            if log.spill().is_err() && memory + log.memory() > MOST_LOG_MEMORY && process.readers.is_empty() {
                log.forget();
            }
            memory += log.memory();
            disk += log.disk();
        }
        (self.log_memory, self.log_disk) = (memory, disk);
    }

    /// Forgets a finished process, but not that its id was used.
    pub(crate) fn evict(&mut self, key: u32) {
        let Some(process) = self.procs.remove(&key) else { return };
        self.log_memory = self.log_memory.saturating_sub(process.log.memory());
        self.log_disk = self.log_disk.saturating_sub(process.log.disk());
        self.by_id.remove(&process.id);
        self.pipe_owner.remove(&process.pipes);
        self.spend(process.id);
    }

    /// No process is started under this id.
    pub(crate) fn spend(&mut self, id: farshell_protocol::ProcessId) {
        if self.spent.insert(id.clone()) {
            self.spent_order.push_back(id);
        }
        if self.spent_order.len() > MOST_SPENT
            && let Some(oldest) = self.spent_order.pop_front()
        {
            self.spent.remove(&oldest);
        }
    }

    /// A command that is waiting for its session goes with the connection that sent it: it has not begun, and
    /// its sender will find that out when it asks.
    pub(crate) fn abandon_queued_of(&mut self, conn: u32) {
        let keys: Vec<u32> = self
            .procs
            .values()
            .filter(|p| p.state == State::Queued && p.waiting.as_ref().is_some_and(|w| w.conn == conn))
            .map(|p| p.key)
            .collect();
        for key in keys {
            // As if it had never been sent: its sender may send it again, under the same id.
            if self.abandon(key) && self.procs.get(&key).is_some_and(|p| p.readers.is_empty()) {
                self.finished.retain(|k| *k != key);
                if let Some(process) = self.procs.remove(&key) {
                    self.by_id.remove(&process.id);
                }
            }
        }
    }
}
