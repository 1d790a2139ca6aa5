//! Files of the place, through the same connection as commands.

use crate::case::{Done, Failure, cases, check, check_eq};
use crate::env::Env;
use farshell_engine::Kind;
use farshell_protocol::SessionName;
use farshell_protocol::file::{
    FileEvent, FileOp, FileReply, FileType, IgnoreCase, Search, Stat, Target, Want, Write,
};
use serde_bytes::ByteBuf;

cases! {
    Any:
        what_is_written_is_read,
        twenty_megabytes_there_and_back,
        ranges_of_a_file,
        names_of_any_bytes,
        relative_paths_start_at_the_sessions_directory,
        a_write_is_atomic_and_keeps_the_mode,
        a_write_only_if_nothing_changed,
        directories_are_listed_made_and_removed,
        move_and_copy,
        remove_follows_no_link,
        what_is_no_file_is_not_read,
        search_by_content,
        search_by_name,
        shell_and_files_see_the_same,
        a_large_file_does_not_hold_commands_up;
}

fn write(path: impl AsRef<[u8]>) -> Write {
    let path = ByteBuf::from(path.as_ref());
    Write { path, mode: None, set_mode: false, parents: false, create_only: false, expect: None }
}

async fn put(env: &Env, path: impl AsRef<[u8]>, bytes: &[u8]) -> Result<(Stat, bool), Failure> {
    Ok(env.outpost().write_file(None, write(path), bytes).await?)
}

async fn get(
    env: &Env,
    session: Option<SessionName>,
    path: &[u8],
    offset: u64,
    len: Option<u64>,
) -> Result<Vec<u8>, Failure> {
    let mut stream = env.outpost().read_file(session, path, offset, len).await?;
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await? {
        all.extend(piece);
    }
    let end = stream.end.ok_or_else(|| Failure::new("no end"))?;
    check_eq!((end.bytes, end.changed), (all.len() as u64, false), "bytes and whether it changed");
    Ok(all)
}

async fn op(env: &Env, op: FileOp) -> Result<FileReply, Failure> {
    Ok(env.outpost().file(None, op).await?)
}

async fn kind(env: &Env, op: FileOp) -> Result<Kind, Failure> {
    match env.outpost().file(None, op).await {
        Err(error) => Ok(error.kind),
        Ok(reply) => Err(Failure::new(format!("an error was expected, not {reply:?}"))),
    }
}

fn path(env: &Env, name: &str) -> ByteBuf {
    ByteBuf::from(env.path(name).into_bytes())
}

async fn what_is_written_is_read(env: &Env) -> Done {
    let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for bytes in [&b""[..], b"x", b"no line end", &all] {
        let (stat, _) = put(env, env.path("file"), bytes).await?;
        check_eq!((stat.size, stat.kind), (bytes.len() as u64, FileType::File), "what the write says");
        check!(get(env, None, env.path("file").as_bytes(), 0, None).await? == bytes, "{} bytes", bytes.len());
    }
    Ok(())
}

async fn twenty_megabytes_there_and_back(env: &Env) -> Done {
    let bytes: Vec<u8> = (0..20_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    put(env, env.path("big"), &bytes).await?;
    check!(get(env, None, env.path("big").as_bytes(), 0, None).await? == bytes, "the same bytes come back");
    env.says("wc -c <big", "20000000\n").await
}

async fn ranges_of_a_file(env: &Env) -> Done {
    put(env, env.path("file"), b"0123456789").await?;
    let file = env.path("file");
    for (offset, len, expected) in [
        (0, Some(3), "012"),
        (7, None, "789"),
        (7, Some(100), "789"),
        (10, None, ""),
        (99, None, ""),
        (3, Some(0), ""),
    ] {
        let found = get(env, None, file.as_bytes(), offset, len).await?;
        check_eq!(String::from_utf8_lossy(&found), expected, "from {offset}, {len:?} bytes");
    }
    Ok(())
}

async fn names_of_any_bytes(env: &Env) -> Done {
    for name in [&b"a b"[..], b"new\nline", b"\xff\xfe", b"'\"$(x)`y`", b"-rf", b"*", "日本".as_bytes()] {
        let full = [env.path("").as_bytes(), name].concat();
        put(env, &full, name).await?;
        check_eq!(get(env, None, &full, 0, None).await?, name.to_vec(), "the content");
        let (entries, _) = env.outpost().list_dir(None, env.dir.as_bytes(), 0).await?;
        check_eq!(
            entries.iter().map(|e| e.name.to_vec()).collect::<Vec<_>>(),
            vec![name.to_vec()],
            "the list"
        );
        let remove = FileOp::Remove { path: ByteBuf::from(full), recursive: false, missing_ok: false };
        check_eq!(op(env, remove).await?, FileReply::Removed { entries: 1 }, "removed");
    }
    Ok(())
}

async fn relative_paths_start_at_the_sessions_directory(env: &Env) -> Done {
    env.says("mkdir sub; cd sub", "").await?;
    let session = Some(env.session());
    let (stat, created) = env.outpost().write_file(session.clone(), write("file"), b"x").await?;
    check_eq!(
        (stat.path.to_vec(), created),
        (env.path("sub/file").into_bytes(), true),
        "where it was written"
    );
    env.says("cat file; cd ..", "x").await?;
    check_eq!(get(env, session, b"sub/file", 0, None).await?, b"x".to_vec(), "read from the new directory");
    Ok(())
}

async fn a_write_is_atomic_and_keeps_the_mode(env: &Env) -> Done {
    env.says("echo old >file; chmod 750 file; ln -s file link; mkdir dir", "").await?;
    let (stat, created) = put(env, env.path("file"), b"new").await?;
    check_eq!((stat.mode, created), (0o750, false), "mode, created");
    put(env, env.path("link"), b"through").await?;
    env.says("cat file; [ -L link ] && echo link", "throughlink\n").await?;
    let exists = Write { create_only: true, ..write(env.path("file")) };
    match env.outpost().write_file(None, exists, b"no").await {
        Err(error) => check_eq!(error.kind, Kind::AlreadyExists, "create_only"),
        Ok(written) => check!(false, "it was written: {written:?}"),
    }
    let parents = Write { parents: true, mode: Some(0o600), ..write(env.path("a/b/c")) };
    let (stat, created) = env.outpost().write_file(None, parents, b"deep").await?;
    check_eq!((stat.mode, created), (0o600, true), "a new file with parents");
    check!(put(env, env.path("no/such/dir"), b"x").await.is_err(), "without parents it fails");
    check!(put(env, env.path("dir"), b"x").await.is_err(), "a directory is not replaced");
    env.says("ls -A", "a\ndir\nfile\nlink\n").await
}

async fn a_write_only_if_nothing_changed(env: &Env) -> Done {
    let (stat, _) = put(env, env.path("file"), b"one").await?;
    let expecting = |stat: &Stat| Write { expect: Some(stat.version), ..write(env.path("file")) };
    let (stat, _) = env.outpost().write_file(None, expecting(&stat), b"two").await?;
    env.says("echo three >file", "").await?;
    match env.outpost().write_file(None, expecting(&stat), b"four").await {
        Err(error) => check_eq!(error.kind, Kind::Stale, "the kind of the error"),
        Ok(written) => check!(false, "it was written: {written:?}"),
    }
    env.says("cat file", "three\n").await
}

async fn directories_are_listed_made_and_removed(env: &Env) -> Done {
    let make = |name: &str, parents| FileOp::MakeDir { path: path(env, name), parents, mode: None };
    let remove =
        |name: &str, recursive, missing_ok| FileOp::Remove { path: path(env, name), recursive, missing_ok };
    check_eq!(op(env, make("d", false)).await?, FileReply::Done, "made");
    check_eq!(kind(env, make("d", false)).await?, Kind::AlreadyExists, "made again");
    check_eq!(op(env, make("d", true)).await?, FileReply::Done, "made again with parents");
    check_eq!(op(env, make("d/e/f", true)).await?, FileReply::Done, "made deep");
    env.says("touch d/z d/a; ln -s z d/m; for i in $(seq 100 599); do : >d/e/$i; done", "").await?;
    let (entries, truncated) = env.outpost().list_dir(None, env.path("d").as_bytes(), 0).await?;
    let found: Vec<_> =
        entries.iter().map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.kind)).collect();
    let expected =
        [("a", FileType::File), ("e", FileType::Dir), ("m", FileType::Symlink), ("z", FileType::File)];
    check_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)).to_vec(), "sorted by name");
    check!(!truncated, "that was all");
    let (entries, truncated) = env.outpost().list_dir(None, env.path("d/e").as_bytes(), 100).await?;
    check_eq!((entries.len(), truncated), (100, true), "a limit");
    check!(kind(env, remove("d", false, false)).await.is_ok(), "a directory that is not empty stays");
    check_eq!(
        op(env, remove("d", true, false)).await?,
        FileReply::Removed { entries: 506 },
        "removed with all in it"
    );
    check_eq!(kind(env, remove("d", true, false)).await?, Kind::NotFound, "removed again");
    check_eq!(
        op(env, remove("d", true, true)).await?,
        FileReply::Removed { entries: 0 },
        "removed, missing is fine"
    );
    Ok(())
}

async fn move_and_copy(env: &Env) -> Done {
    env.says("echo x >a; mkdir -p t/u; echo y >t/u/f; chmod 700 t/u; ln -s f t/u/l", "").await?;
    let rename =
        |from: &str, to: &str, replace| FileOp::Move { from: path(env, from), to: path(env, to), replace };
    let copy =
        |from: &str, to: &str, replace| FileOp::Copy { from: path(env, from), to: path(env, to), replace };
    check_eq!(op(env, rename("a", "b", false)).await?, FileReply::Done, "moved");
    check_eq!(kind(env, rename("a", "c", false)).await?, Kind::NotFound, "moved again");
    check_eq!(op(env, copy("b", "c", false)).await?, FileReply::Copied { bytes: 2 }, "copied");
    check_eq!(kind(env, copy("b", "c", false)).await?, Kind::AlreadyExists, "copied over a file");
    check_eq!(op(env, copy("t/u/f", "c", true)).await?, FileReply::Copied { bytes: 2 }, "replaced");
    check_eq!(kind(env, rename("b", "c", false)).await?, Kind::AlreadyExists, "moved over a file");
    op(env, copy("t", "t2", false)).await?;
    env.says("cat c t2/u/f t2/u/l; readlink t2/u/l; stat -c %a t2/u; ls", "y\ny\ny\nf\n700\nb\nc\nt\nt2\n")
        .await
}

async fn remove_follows_no_link(env: &Env) -> Done {
    env.says("mkdir keep; touch keep/me; mkdir d; ln -s ../keep d/link; ln -s keep link", "").await?;
    for name in ["d", "link"] {
        op(env, FileOp::Remove { path: path(env, name), recursive: true, missing_ok: false }).await?;
    }
    env.says("ls; ls keep", "keep\nme\n").await?;
    let root = FileOp::Remove { path: ByteBuf::from("/"), recursive: true, missing_ok: false };
    check!(kind(env, root).await.is_ok(), "the root is never removed");
    Ok(())
}

async fn what_is_no_file_is_not_read(env: &Env) -> Done {
    env.says("mkfifo pipe; mkdir dir", "").await?;
    for (name, expected) in [("pipe", Some(Kind::Invalid)), ("dir", None), ("missing", Some(Kind::NotFound))]
    {
        let mut stream = env.outpost().read_file(None, env.path(name).as_bytes(), 0, None).await?;
        match stream.next().await {
            Err(error) => {
                check!(expected.is_none_or(|kind| kind == error.kind), "{name}: {error} {:?}", error.kind);
            }
            Ok(piece) => check!(false, "{name} was read: {piece:?}"),
        }
    }
    let mut stream = env.outpost().read_file(None, b"/dev/zero", 0, None).await?;
    match stream.next().await {
        Err(error) => check_eq!(error.kind, Kind::Invalid, "/dev/zero"),
        Ok(_) => check!(false, "/dev/zero was read"),
    }
    Ok(())
}

fn search(env: &Env, target: Target) -> Search {
    Search {
        path: ByteBuf::from(env.dir.as_bytes()),
        target,
        globs: Vec::new(),
        no_ignore: false,
        hidden: false,
        limit: 0,
        timeout_ms: Some(20_000),
    }
}

async fn search_by_content(env: &Env) -> Done {
    env.says(
        "mkdir s; printf 'one\\nTwo needle\\nthree\\n' >s/a.txt; printf 'needle\\n' >s/b.rs; echo none >c",
        "",
    )
    .await?;
    env.says("printf 'needle\\0\\n' >bin; mkdir .git; echo ignored >.gitignore; echo needle >ignored", "")
        .await?;
    let target = Target::Content {
        pattern: "needle".into(),
        literal: true,
        ignore_case: IgnoreCase::No,
        context: 0,
        multiline: false,
        want: Want::Lines,
    };
    let mut found = Vec::new();
    let searched = env
        .outpost()
        .search(None, search(env, target), |event| {
            if let FileEvent::Lines { path, lines } = event {
                for line in lines {
                    let text = String::from_utf8_lossy(&line.text).trim_end().to_owned();
                    found.push((String::from_utf8_lossy(&path).into_owned(), line.number, text));
                }
            }
        })
        .await?;
    let expected =
        vec![(env.path("s/a.txt"), 2, "Two needle".to_owned()), (env.path("s/b.rs"), 1, "needle".to_owned())];
    check_eq!(found, expected, "lines");
    check_eq!((searched.matches, searched.truncated, searched.timed_out), (2, false, false), "what it says");
    Ok(())
}

async fn search_by_name(env: &Env) -> Done {
    env.says("mkdir -p s/t; touch s/a.rs s/t/b.rs s/c.txt; mkdir .git; touch .git/d.rs", "").await?;
    let mut found = Vec::new();
    let target = Target::Files { glob: Some("*.rs".into()) };
    env.outpost()
        .search(None, search(env, target), |event| {
            if let FileEvent::Files(files) = event {
                found.extend(files.into_iter().map(|f| String::from_utf8_lossy(&f.path).into_owned()));
            }
        })
        .await?;
    found.sort();
    check_eq!(found, vec![env.path("s/a.rs"), env.path("s/t/b.rs")], "files");
    Ok(())
}

async fn shell_and_files_see_the_same(env: &Env) -> Done {
    for number in 0..50 {
        put(env, env.path("file"), number.to_string().as_bytes()).await?;
        env.says("cat file; printf x >>file", &number.to_string()).await?;
        let found = get(env, None, env.path("file").as_bytes(), 0, None).await?;
        check_eq!(found, format!("{number}x").into_bytes(), "after the command");
    }
    Ok(())
}

async fn a_large_file_does_not_hold_commands_up(env: &Env) -> Done {
    env.says("head -c 300000000 /dev/zero >big", "").await?;
    let mut stream = env.outpost().read_file(None, env.path("big").as_bytes(), 0, None).await?;
    stream.next().await?;
    // The reader stops here: its call waits for credit, and no other does.
    for _ in 0..20 {
        env.says("echo quick", "quick\n").await?;
    }
    drop(stream);
    env.says("echo after", "after\n").await
}
