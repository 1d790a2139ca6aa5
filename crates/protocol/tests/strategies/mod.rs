//! Arbitrary values of every message type.

use farshell_protocol::file::*;
use farshell_protocol::hello::{Hello, OutpostIdentity};
use farshell_protocol::message::{ErrorKind, Event, Failure, Info, Reply, Request};
use farshell_protocol::process::*;
use farshell_protocol::session::{Mode, OpenSession, SessionInfo};
use farshell_protocol::{ProcessId, SessionName};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use serde_bytes::ByteBuf;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn buf() -> impl Strategy<Value = ByteBuf> {
    bytes().prop_map(ByteBuf::from)
}

fn text() -> impl Strategy<Value = String> {
    any::<String>()
}

fn env() -> impl Strategy<Value = Vec<(ByteBuf, ByteBuf)>> {
    vec((buf(), buf()), 0..4)
}

#[expect(clippy::unwrap_used, reason = "the pattern is the rule")]
fn id() -> impl Strategy<Value = ProcessId> {
    "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}".prop_map(|text| ProcessId::new(text).unwrap())
}

#[expect(clippy::unwrap_used, reason = "the pattern is the rule")]
fn name() -> impl Strategy<Value = SessionName> {
    "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}".prop_map(|text| SessionName::new(text).unwrap())
}

fn identity() -> impl Strategy<Value = OutpostIdentity> {
    (text(), text(), any::<u32>(), text(), text()).prop_map(|(instance, boot, pid, build, hostname)| {
        OutpostIdentity { instance, boot, pid, build, hostname }
    })
}

pub(crate) fn hello() -> impl Strategy<Value = Hello> {
    (any::<u16>(), any::<u16>(), text(), of(identity()))
        .prop_map(|(version, oldest, release, outpost)| Hello { version, oldest, release, outpost })
}

pub(crate) fn failure() -> impl Strategy<Value = Failure> {
    let kind = prop::sample::select(vec![
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::Busy,
        ErrorKind::Invalid,
        ErrorKind::PermissionDenied,
        ErrorKind::Exhausted,
        ErrorKind::Stale,
        ErrorKind::ShellFailed,
        ErrorKind::Protocol,
        ErrorKind::ShuttingDown,
        ErrorKind::CalledOff,
        ErrorKind::Forgotten,
        ErrorKind::System,
    ]);
    (kind, text(), any::<Option<i32>>()).prop_map(|(kind, message, errno)| Failure { kind, message, errno })
}

fn size() -> impl Strategy<Value = Size> {
    any::<(u16, u16)>().prop_map(|(rows, cols)| Size { rows, cols })
}

fn attach() -> impl Strategy<Value = Attach> {
    any::<(u64, bool, bool)>().prop_map(|(from, lossless, until_closed)| Attach {
        from,
        lossless,
        until_closed,
    })
}

fn surroundings() -> impl Strategy<Value = Surroundings> {
    (env(), any::<bool>(), of(bytes()), of(size()), any::<bool>()).prop_map(
        |(env, clear_env, cwd, pty, merge_stderr)| Surroundings { env, clear_env, cwd, pty, merge_stderr },
    )
}

fn what() -> impl Strategy<Value = What> {
    let on_busy = prop_oneof![Just(OnBusy::Wait), Just(OnBusy::Refuse)];
    prop_oneof![
        (name(), bytes(), of(bytes()), on_busy, any::<bool>()).prop_map(
            |(session, command, workdir, on_busy, merge_stderr)| What::Session {
                session,
                command,
                workdir,
                on_busy,
                merge_stderr
            }
        ),
        (bytes(), of(name()), surroundings()).prop_map(|(command, session, surroundings)| What::Shell {
            command,
            session,
            surroundings
        }),
        (vec(buf(), 0..4), surroundings()).prop_map(|(argv, surroundings)| What::Exec { argv, surroundings }),
    ]
}

fn start() -> impl Strategy<Value = Start> {
    let stdin = prop_oneof![Just(Stdin::Null), Just(Stdin::Pipe)];
    let numbers = (any::<Option<u64>>(), any::<u64>(), any::<u64>());
    (id(), what(), stdin, numbers, of(attach()), of(vec((buf(), buf()), 0..3))).prop_map(
        |(id, what, stdin, (timeout_ms, grace_ms, log_cap), attach, variables)| Start {
            id,
            what,
            stdin,
            timeout_ms,
            grace_ms,
            log_cap,
            attach,
            variables,
        },
    )
}

fn stream() -> impl Strategy<Value = Stream> {
    prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)]
}

fn view() -> impl Strategy<Value = View> {
    prop_oneof![stream().prop_map(View::Only), Just(View::Arrival)]
}

fn state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::Queued),
        Just(State::Running),
        any::<i32>().prop_map(|code| State::Ended(End::Exited(code))),
        any::<i32>().prop_map(|signal| State::Ended(End::Signaled(signal))),
        Just(State::Abandoned),
    ]
}

fn killed() -> impl Strategy<Value = Killed> {
    any::<(u32, u32)>().prop_map(|(killed, left)| Killed { killed, left })
}

fn output() -> impl Strategy<Value = OutputStatus> {
    (any::<(u64, u64, u64, u64, bool)>(), of(text()), of(text())).prop_map(
        |((stdout, stderr, dropped_from, dropped_to, open), log_error, path)| OutputStatus {
            stdout,
            stderr,
            dropped_from,
            dropped_to,
            open,
            log_error,
            path,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    let usage = any::<(u64, u64, u64)>().prop_map(|(user_us, system_us, max_rss_kib)| Usage {
        user_us,
        system_us,
        max_rss_kib,
    });
    let first = (id(), state(), any::<u32>(), of(name()), output(), of(bytes()), any::<u64>());
    let rest = (of(usage), any::<(bool, bool, bool, bool, bool)>(), of(killed()), any::<u64>(), text());
    (first, rest).prop_map(
        |((id, state, pid, session, output, cwd, elapsed_us), (usage, flags, kill, pipe, title))| {
            let (timed_out, workdir_failed, shell_restarted, state_lost, out_of_memory) = flags;
            Status {
                id,
                state,
                pid,
                session,
                output,
                cwd,
                elapsed_us,
                usage,
                timed_out,
                workdir_failed,
                kill,
                shell_restarted,
                state_lost,
                out_of_memory,
                waiting_for: None,
                pipe,
                title,
            }
        },
    )
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Live), Just(Mode::OneShot)]
}

fn open_session() -> impl Strategy<Value = OpenSession> {
    (name(), mode(), env(), any::<bool>(), of(bytes()), vec(buf(), 0..3)).prop_map(
        |(name, mode, env, clear_env, cwd, init_files)| OpenSession {
            name,
            mode,
            env,
            clear_env,
            cwd,
            init_files,
        },
    )
}

fn session_info() -> impl Strategy<Value = SessionInfo> {
    (name(), mode(), text(), bytes(), any::<(bool, bool, u32, u64, u64)>()).prop_map(
        |(name, mode, shell, cwd, (created, busy, queued, commands, restarts))| SessionInfo {
            name,
            mode,
            created,
            shell,
            cwd,
            busy,
            queued,
            commands,
            restarts,
        },
    )
}

fn version() -> impl Strategy<Value = Version> {
    any::<(u64, u64, i64, i64)>().prop_map(|(inode, size, mtime_ns, ctime_ns)| Version {
        inode,
        size,
        mtime_ns,
        ctime_ns,
    })
}

fn file_type() -> impl Strategy<Value = FileType> {
    prop::sample::select(vec![
        FileType::File,
        FileType::Dir,
        FileType::Symlink,
        FileType::Fifo,
        FileType::Socket,
        FileType::CharDevice,
        FileType::BlockDevice,
        FileType::Unknown,
    ])
}

fn stat() -> impl Strategy<Value = Stat> {
    (buf(), file_type(), any::<(u32, u32, u32, u64)>(), version(), of(buf())).prop_map(
        |(path, kind, (mode, uid, gid, size), version, link)| Stat {
            path,
            kind,
            mode,
            uid,
            gid,
            size,
            version,
            link,
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    (buf(), file_type(), any::<(u32, u64, i64)>(), of(buf())).prop_map(
        |(name, kind, (mode, size, mtime_ns), link)| Entry { name, kind, mode, size, mtime_ns, link },
    )
}

fn search() -> impl Strategy<Value = Search> {
    let ignore_case = prop_oneof![Just(IgnoreCase::No), Just(IgnoreCase::Yes), Just(IgnoreCase::Smart)];
    let want = prop_oneof![Just(Want::Lines), Just(Want::Files), Just(Want::Counts)];
    let target = prop_oneof![
        of(text()).prop_map(|glob| Target::Files { glob }),
        (text(), ignore_case, want, any::<(bool, u32, bool)>()).prop_map(
            |(pattern, ignore_case, want, (literal, context, multiline))| Target::Content {
                pattern,
                literal,
                ignore_case,
                context,
                multiline,
                want
            }
        ),
    ];
    (buf(), target, vec(text(), 0..3), any::<(bool, bool, u64, Option<u64>)>()).prop_map(
        |(path, target, globs, (no_ignore, hidden, limit, timeout_ms))| Search {
            path,
            target,
            globs,
            no_ignore,
            hidden,
            limit,
            timeout_ms,
        },
    )
}

fn write() -> impl Strategy<Value = Write> {
    (buf(), any::<(Option<u32>, bool, bool, bool)>(), of(version())).prop_map(
        |(path, (mode, set_mode, parents, create_only), expect)| Write {
            path,
            mode,
            set_mode,
            parents,
            create_only,
            expect,
        },
    )
}

fn file_op() -> impl Strategy<Value = FileOp> {
    prop_oneof![
        (buf(), any::<bool>()).prop_map(|(path, follow)| FileOp::Stat { path, follow }),
        (buf(), any::<u64>(), any::<Option<u64>>()).prop_map(|(path, offset, len)| FileOp::Read {
            path,
            offset,
            len
        }),
        write().prop_map(FileOp::Write),
        (buf(), any::<u64>()).prop_map(|(path, limit)| FileOp::List { path, limit }),
        (buf(), any::<bool>(), any::<Option<u32>>()).prop_map(|(path, parents, mode)| FileOp::MakeDir {
            path,
            parents,
            mode
        }),
        (buf(), any::<bool>(), any::<bool>()).prop_map(|(path, recursive, missing_ok)| FileOp::Remove {
            path,
            recursive,
            missing_ok
        }),
        (buf(), buf(), any::<bool>()).prop_map(|(from, to, replace)| FileOp::Move { from, to, replace }),
        (buf(), buf(), any::<bool>()).prop_map(|(from, to, replace)| FileOp::Copy { from, to, replace }),
        search().prop_map(FileOp::Search),
        below().prop_map(FileOp::Below),
    ]
}

fn below() -> impl Strategy<Value = Below> {
    use BelowOp::*;
    let op = prop::sample::select(vec![Stat, List, Read, Hash, Put, MakeDir, Link, Set, Remove, Sync]);
    let size = || of(0..=i64::MAX.unsigned_abs());
    let numbers = (size(), size(), any::<Option<u32>>(), any::<Option<i64>>());
    (op, buf(), buf(), numbers, of(buf())).prop_map(
        |(op, root, path, (offset, len, mode, mtime_ns), link)| Below {
            offset,
            len,
            mode,
            mtime_ns,
            link,
            ..Below::new(op, root, path)
        },
    )
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        prop::sample::select(vec![
            Request::Ping,
            Request::Info,
            Request::Sessions,
            Request::Processes,
            Request::Shutdown
        ]),
        open_session().prop_map(Request::OpenSession),
        name().prop_map(|name| Request::CloseSession { name }),
        start().prop_map(Request::Start),
        (id(), attach()).prop_map(|(id, attach)| Request::Attach { id, attach }),
        id().prop_map(|id| Request::Status { id }),
        id().prop_map(|id| Request::Forbid { id }),
        (id(), view(), any::<u64>(), any::<u32>()).prop_map(|(id, view, offset, len)| Request::ReadLog {
            id,
            view,
            offset,
            len
        }),
        (id(), any::<u64>(), bytes(), any::<bool>()).prop_map(|(id, offset, bytes, eof)| Request::Stdin {
            id,
            offset,
            bytes,
            eof
        }),
        (id(), any::<i32>(), any::<u64>()).prop_map(|(id, signal, once)| Request::Signal {
            id,
            signal,
            once
        }),
        (vec(id(), 0..4), any::<u64>()).prop_map(|(ids, grace_ms)| Request::Kill(Kill { ids, grace_ms })),
        (id(), size()).prop_map(|(id, size)| Request::Resize { id, size }),
        id().prop_map(|id| Request::Forget { id }),
        any::<u64>().prop_map(|seconds| Request::SetLease { seconds }),
        (of(name()), file_op(), any::<u64>()).prop_map(|(session, op, once)| Request::File(FileRequest {
            session,
            op,
            once
        })),
    ]
}

fn file_reply() -> impl Strategy<Value = FileReply> {
    prop_oneof![
        Just(FileReply::Done),
        stat().prop_map(FileReply::Stat),
        (stat(), any::<u64>(), any::<bool>()).prop_map(|(stat, bytes, changed)| FileReply::Read {
            stat,
            bytes,
            changed
        }),
        (stat(), any::<bool>()).prop_map(|(stat, created)| FileReply::Written { stat, created }),
        any::<(u64, bool)>().prop_map(|(total, truncated)| FileReply::Listed { total, truncated }),
        any::<u64>().prop_map(|entries| FileReply::Removed { entries }),
        any::<u64>().prop_map(|bytes| FileReply::Copied { bytes }),
        (any::<(u64, u64, bool, bool)>(), vec(text(), 0..3)).prop_map(
            |((files, matches, truncated, timed_out), errors)| FileReply::Searched(Searched {
                files,
                matches,
                truncated,
                timed_out,
                errors
            })
        ),
    ]
}

pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    let info = (identity(), text(), text(), text(), any::<(u64, u64, u32, u32, u32, bool)>()).prop_map(
        |(identity, release, dir, arch, (uptime_ms, lease_seconds, sessions, running, finished, tagging))| {
            Info {
                identity,
                release,
                dir,
                uptime_ms,
                lease_seconds,
                sessions,
                running,
                finished,
                arch,
                tagging,
            }
        },
    );
    prop_oneof![
        Just(Reply::Done),
        info.prop_map(Reply::Info),
        session_info().prop_map(Reply::Session),
        vec(session_info(), 0..3).prop_map(Reply::Sessions),
        status().prop_map(|status| Reply::Status(Box::new(status))),
        vec(status(), 0..3).prop_map(Reply::Processes),
        (any::<(u64, u64, bool)>(), bytes()).prop_map(|((offset, total, eof), bytes)| Reply::Log(LogPiece {
            offset,
            bytes,
            total,
            eof
        })),
        any::<u64>().prop_map(|taken| Reply::Stdin { taken }),
        vec((id(), killed()), 0..3).prop_map(Reply::Killed),
        file_reply().prop_map(Reply::File),
    ]
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let line = (any::<(u64, bool, bool)>(), buf()).prop_map(|((number, matched, cut), text)| Line {
        number,
        text,
        matched,
        cut,
    });
    let found =
        (buf(), any::<(u64, i64)>()).prop_map(|(path, (size, mtime_ns))| Found { path, size, mtime_ns });
    prop_oneof![
        any::<u32>().prop_map(|pid| Event::Started { pid }),
        any::<(u64, u64)>().prop_map(|(from, to)| Event::Gap { from, to }),
        prop_oneof![
            vec(entry(), 0..3).prop_map(FileEvent::Entries),
            (buf(), vec(line, 0..3)).prop_map(|(path, lines)| FileEvent::Lines { path, lines }),
            vec(found, 0..3).prop_map(FileEvent::Files),
            vec((buf(), any::<u64>()), 0..3).prop_map(FileEvent::Counts),
        ]
        .prop_map(Event::File),
    ]
}
