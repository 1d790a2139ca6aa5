use super::*;
use crate::files::testing::{Caller, Scene, mkfifo, skipped_as_root};
use farshell_protocol::ErrorKind;
use farshell_protocol::file::{FileEvent, IgnoreCase, MAX_LINE, Target, Want};
use serde_bytes::ByteBuf;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A search for lines below the working directory.
fn lines(pattern: &str) -> Search {
    Search {
        path: ByteBuf::from("."),
        target: Target::Content {
            pattern: pattern.into(),
            literal: false,
            ignore_case: IgnoreCase::No,
            context: 0,
            multiline: false,
            want: Want::Lines,
        },
        globs: Vec::new(),
        no_ignore: false,
        hidden: false,
        limit: 0,
        timeout_ms: None,
    }
}

fn names(glob: Option<&str>) -> Search {
    Search { target: Target::Files { glob: glob.map(str::to_owned) }, ..lines("") }
}

impl Change for Search {}

/// Small changes to a search.
trait Change: Into<Search> {
    fn at(self, path: &str) -> Search {
        Search { path: ByteBuf::from(path), ..self.into() }
    }

    fn globs(self, globs: &[&str]) -> Search {
        Search { globs: globs.iter().map(ToString::to_string).collect(), ..self.into() }
    }

    fn limit(self, limit: u64) -> Search {
        Search { limit, ..self.into() }
    }

    fn content(
        self,
        change: impl FnOnce(&mut bool, &mut IgnoreCase, &mut u32, &mut bool, &mut Want),
    ) -> Search {
        let mut search = self.into();
        if let Target::Content { literal, ignore_case, context, multiline, want, .. } = &mut search.target {
            change(literal, ignore_case, context, multiline, want);
        }
        search
    }

    fn want(self, wanted: Want) -> Search {
        self.content(|_, _, _, _, want| *want = wanted)
    }

    fn context(self, lines: u32) -> Search {
        self.content(|_, _, context, _, _| *context = lines)
    }

    fn multiline(self) -> Search {
        self.content(|_, _, _, multiline, _| *multiline = true)
    }

    fn case(self, case: IgnoreCase) -> Search {
        self.content(|_, ignore_case, _, _, _| *ignore_case = case)
    }

    fn literal(self) -> Search {
        self.content(|literal, _, _, _, _| *literal = true)
    }
}

/// Runs a search and gives each result as a line of text, with paths as below the working directory.
fn run(scene: &Scene, search: &Search) -> (Vec<String>, Searched) {
    let mut caller = Caller::default();
    let searched = match serve(&scene.context, search, &mut caller).unwrap() {
        FileReply::Searched(searched) => searched,
        other => panic!("{other:?}"),
    };
    let short = |path: &[u8]| {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        path.strip_prefix(&scene.context.cwd).unwrap().to_string_lossy().into_owned()
    };
    let mut results = Vec::new();
    for event in caller.events {
        match event {
            FileEvent::Lines { path, lines } => results.extend(lines.into_iter().map(|line| {
                let mark = if line.matched { ':' } else { '-' };
                format!("{}{mark}{}{mark}{}", short(&path), line.number, String::from_utf8_lossy(&line.text))
            })),
            FileEvent::Files(files) => results.extend(files.iter().map(|file| short(&file.path))),
            FileEvent::Counts(counts) => {
                results.extend(counts.iter().map(|(path, count)| format!("{}:{count}", short(path))));
            }
            FileEvent::Entries(_) => panic!("entries"),
        }
    }
    (results, searched)
}

fn results(scene: &Scene, search: &Search) -> Vec<String> {
    let (results, searched) = run(scene, search);
    assert_eq!(searched.errors, Vec::<String>::new());
    results
}

fn failure(scene: &Scene, search: &Search) -> Failure {
    serve(&scene.context, search, &mut Caller::default()).unwrap_err()
}

#[test]
fn lines_files_and_counts_in_order() {
    let scene = Scene::new();
    scene.file("b.txt", "one\ntwo\nthree\n");
    scene.file("a/z.txt", "two two\nx\ntwo");
    scene.file("a-b.txt", "two");
    scene.file("none", "nothing\n");
    let (found, searched) = run(&scene, &lines("two"));
    assert_eq!(found, ["a/z.txt:1:two two", "a/z.txt:3:two", "a-b.txt:1:two", "b.txt:2:two"]);
    assert_eq!(searched, Searched { files: 4, matches: 4, ..Searched::default() });
    let (found, searched) = run(&scene, &lines("two").want(Want::Files));
    assert_eq!(found, ["a/z.txt", "a-b.txt", "b.txt"]);
    assert_eq!(searched.matches, 3);
    let (found, searched) = run(&scene, &lines("two").want(Want::Counts));
    assert_eq!(found, ["a/z.txt:2", "a-b.txt:1", "b.txt:1"]);
    assert_eq!(searched.matches, 4);
}

#[test]
fn a_file_as_the_path() {
    let scene = Scene::new();
    scene.file("dir/.hidden", "yes\n");
    symlink("dir/.hidden", scene.path("link")).unwrap();
    symlink("dir", scene.path("dir-link")).unwrap();
    assert_eq!(results(&scene, &lines("yes").at("dir/.hidden").globs(&["*.rs"])), ["dir/.hidden:1:yes"]);
    assert_eq!(results(&scene, &lines("yes").at("link")), ["link:1:yes"]);
    let hidden = Search { hidden: true, ..lines("yes").at("dir-link") };
    assert_eq!(results(&scene, &hidden), ["dir-link/.hidden:1:yes"]);
    assert_eq!(results(&scene, &names(None).at("link")), ["link"]);
    mkfifo(&scene.path("fifo"));
    assert_eq!(failure(&scene, &lines("x").at("fifo")).kind, ErrorKind::Invalid);
    assert_eq!(failure(&scene, &lines("x").at("missing")).kind, ErrorKind::NotFound);
    assert_eq!(failure(&scene, &lines("x").at("dir/.hidden/")).kind, ErrorKind::Invalid);
    // In a tree, links are not followed and pipes are not opened.
    assert_eq!(results(&scene, &hidden.at(".")), ["dir/.hidden:1:yes"]);
}

#[test]
fn context_around_matches() {
    let scene = Scene::new();
    scene.file("f", "1\n2\nhit\n4\n5\n6\n7\nhit\n9\n");
    assert_eq!(
        results(&scene, &lines("hit").context(1)),
        ["f-2-2", "f:3:hit", "f-4-4", "f-7-7", "f:8:hit", "f-9-9"]
    );
    // The limit counts matches; the last one given keeps what follows it, and no more.
    let (found, searched) = run(&scene, &lines("hit").context(1).limit(1));
    assert_eq!(found, ["f-2-2", "f:3:hit", "f-4-4"]);
    assert!(searched.truncated);
    assert_eq!(searched.matches, 1);
}

#[test]
fn matches_over_several_lines() {
    let scene = Scene::new();
    scene.file("f", "fn a(\n  b\n)\nfn c()\n");
    scene.file("g", "fn a(\r\n  b\r\n)\r\n");
    let found = results(&scene, &lines(r"\([^)]*b\s*\)").multiline());
    assert_eq!(found, ["f:1:fn a(", "f:2:  b", "f:3:)", "g:1:fn a(", "g:2:  b", "g:3:)"]);
    let failure = failure(&scene, &lines("a\\n"));
    assert_eq!(failure.kind, ErrorKind::Invalid);
    assert!(failure.message.contains("multiline"), "{failure}");
    assert_eq!(results(&scene, &lines("(\n  b\n").literal().multiline()).len(), 2);
    assert_eq!(results(&scene, &lines("^fn c").multiline()), ["f:4:fn c()"]);
}

#[test]
fn case_and_literals() {
    let scene = Scene::new();
    scene.file("f", "Straße\nSTRASSE\na.b\naxb\nÄ\n");
    assert_eq!(results(&scene, &lines("strasse").case(IgnoreCase::Yes)), ["f:2:STRASSE"]);
    assert_eq!(results(&scene, &lines("strasse")), Vec::<String>::new());
    assert_eq!(results(&scene, &lines("straSSe").case(IgnoreCase::Smart)), Vec::<String>::new());
    assert_eq!(results(&scene, &lines("ä").case(IgnoreCase::Smart)), ["f:5:Ä"]);
    assert_eq!(results(&scene, &lines("a.b").literal()), ["f:3:a.b"]);
    assert_eq!(results(&scene, &lines("(").literal()), Vec::<String>::new());
}

#[test]
fn line_ends_are_not_part_of_lines() {
    let scene = Scene::new();
    scene.file("crlf", "one\r\ntwo\r\n\r\n");
    scene.file("end", "one");
    assert_eq!(results(&scene, &lines("one$")), ["crlf:1:one", "end:1:one"]);
    assert_eq!(results(&scene, &lines("^$")), ["crlf:3:"]);
    assert_eq!(results(&scene, &lines("^two").context(1)), ["crlf-1-one", "crlf:2:two", "crlf-3-"]);
}

#[test]
fn what_is_no_text() {
    let scene = Scene::new();
    scene.file("binary", b"needle\n\0\nneedle\n");
    scene.file("latin", b"caf\xe9 needle\n");
    scene.file("utf16", "\u{feff}needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    std::fs::write(scene.context.cwd.join(std::ffi::OsStr::from_bytes(b"name\xff\n")), "needle").unwrap();
    let found = results(&scene, &lines("needle"));
    assert_eq!(found, ["latin:1:caf\u{fffd} needle", "name\u{fffd}\n:1:needle", "utf16:1:needle"]);
    let (found, searched) = run(&scene, &lines("needle").at("binary"));
    assert!(found.is_empty() && searched.errors[0].contains("is binary"), "{searched:?}");
    let mut caller = Caller::default();
    serve(&scene.context, &lines("caf"), &mut caller).unwrap();
    let FileEvent::Lines { lines, .. } = &caller.events[0] else { panic!() };
    assert_eq!(lines[0].text, &b"caf\xe9 needle"[..]);
}

#[test]
fn long_lines_are_cut() {
    let scene = Scene::new();
    scene.file("f", format!("{}\nshort x\n", "x".repeat(3 << 20)));
    let mut caller = Caller::default();
    serve(&scene.context, &lines("x"), &mut caller).unwrap();
    let FileEvent::Lines { lines, .. } = &caller.events[0] else { panic!() };
    let seen: Vec<_> = lines.iter().map(|line| (line.number, line.text.len(), line.cut)).collect();
    assert_eq!(seen, [(1, MAX_LINE, true), (2, 7, false)]);
}

#[test]
fn limits_are_exact_and_say_so() {
    let scene = Scene::new();
    for n in 0..300 {
        scene.file(&format!("{n:03}"), "hit\nhit\n");
    }
    for (limit, truncated) in [(1, true), (3, true), (599, true), (600, false), (601, false), (0, false)] {
        let (found, searched) = run(&scene, &lines("hit").limit(limit));
        let expected = if limit == 0 { 600 } else { limit.min(600) };
        assert_eq!(
            (found.len() as u64, searched.matches, searched.truncated),
            (expected, expected, truncated)
        );
        assert!(found.is_sorted());
    }
    let (found, searched) = run(&scene, &lines("hit").limit(2).want(Want::Files));
    assert_eq!((found, searched.truncated), (vec!["000".to_owned(), "001".to_owned()], true));
    let (found, searched) = run(&scene, &lines("hit").limit(300).want(Want::Counts));
    assert_eq!((found.len(), searched.matches, searched.truncated), (300, 600, false));
}

#[test]
fn results_are_bounded_and_in_order() {
    let scene = Scene::new();
    let line = "x".repeat(4000);
    let content = format!("{line}\n").repeat(1000);
    for n in 0..30 {
        scene.file(&format!("{n:02}"), &content);
    }
    let (found, searched) = run(&scene, &lines("x"));
    assert!(searched.truncated);
    let bytes: usize = found.iter().map(String::len).sum();
    assert!((15 << 20..18 << 20).contains(&bytes), "{bytes}");
    let numbers: Vec<_> = found.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert!(numbers.is_sorted());
    assert_eq!(run(&scene, &lines("x")).0, found);
}

#[test]
fn time_runs_out() {
    let scene = Scene::new();
    scene.file("a", "needle\n");
    // Sixty-four million matches: far more than can be counted in the time.
    scene.file("b", "\n".repeat(64 << 20));
    let search = Search { timeout_ms: Some(1000), ..lines("^").want(Want::Counts) };
    let start = Instant::now();
    let (found, searched) = run(&scene, &search);
    assert!(searched.timed_out && !searched.truncated, "{searched:?}");
    assert_eq!(found[0], "a:1");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let (found, searched) = run(&scene, &Search { timeout_ms: Some(0), ..lines("needle") });
    assert!(searched.timed_out && found.is_empty());
}

#[test]
fn a_caller_that_goes_ends_the_search() {
    let scene = Scene::new();
    for n in 0..1000 {
        scene.file(&format!("{n}"), "hit\n");
    }
    let mut cancelled = Caller { cancelled: true, ..Caller::default() };
    serve(&scene.context, &lines("hit"), &mut cancelled).unwrap_err();
    let mut gone = Caller { patience: Some(3), ..Caller::default() };
    serve(&scene.context, &lines("hit"), &mut gone).unwrap_err();
    assert_eq!(gone.events.len(), 3);
}

#[test]
fn without_helpers_the_work_is_done_too() {
    let scene = Scene::new();
    for n in 0..100 {
        scene.file(&format!("{n:02}"), "hit\n");
    }
    let plan = Plan::new(&lines("hit"), &scene.context.cwd).unwrap();
    let walk = Box::new(plan.walk(&scene.context.cwd));
    let mut caller = Caller::default();
    let searched = super::run(&plan, walk, Terms { helpers: 0, deadline: None }, &mut caller).unwrap();
    assert_eq!((searched.files, searched.matches, caller.events.len()), (100, 100, 100));
}

#[test]
fn ignore_files_and_hidden_files() {
    let scene = Scene::new();
    for name in ["kept", ".hidden", "by-git", "by-ignore", "by-rg", "sub/by-git", "sub/deep"] {
        scene.file(name, "x\n");
    }
    scene.file(".farshell-tmp-0123456789abcdef01234567", "x\n");
    scene.file(".gitignore", "by-git\n");
    scene.file(".ignore", "by-ignore\n");
    scene.file(".rgignore", "by-rg\n");
    let search = lines("x").want(Want::Files);
    // Without a repository a .gitignore is a file like any other.
    assert_eq!(results(&scene, &search), ["by-git", "kept", "sub/by-git", "sub/deep"]);
    std::fs::create_dir(scene.path(".git")).unwrap();
    assert_eq!(results(&scene, &search), ["kept", "sub/deep"]);
    // Also from below, with the rules of the directories above.
    assert_eq!(results(&scene, &search.clone().at("sub")), ["sub/deep"]);
    let all = Search { no_ignore: true, ..search.clone() };
    assert_eq!(results(&scene, &all), ["by-git", "by-ignore", "by-rg", "kept", "sub/by-git", "sub/deep"]);
    let hidden = Search { hidden: true, ..search };
    assert_eq!(results(&scene, &hidden), [".hidden", "kept", "sub/deep"]);
}

#[test]
fn globs_choose_files() {
    let scene = Scene::new();
    for name in ["a.rs", "b.txt", "src/c.rs", "src/gen/d.rs", ".env", "#x"] {
        scene.file(name, "x\n");
    }
    let with = |globs: &[&str]| results(&scene, &lines("x").want(Want::Files).globs(globs));
    assert_eq!(with(&["*.rs"]), ["a.rs", "src/c.rs", "src/gen/d.rs"]);
    assert_eq!(with(&["*.rs", "!gen"]), ["a.rs", "src/c.rs"]);
    assert_eq!(with(&["!*.rs"]), ["#x", "b.txt"]);
    assert_eq!(with(&["/*.rs"]), ["a.rs"]);
    assert_eq!(with(&["src/**"]), ["src/c.rs", "src/gen/d.rs"]);
    assert_eq!(with(&["*.{txt,rs}", "!src"]), ["a.rs", "b.txt"]);
    assert_eq!(with(&[".env"]), [".env"]);
    assert_eq!(with(&["#*"]), ["#x"]);
}

#[test]
fn what_can_not_be_compiled_is_invalid() {
    let scene = Scene::new();
    for (search, word) in [
        (lines("a("), "unclosed group"),
        (lines(r"(?<x>\p{Nonsense})"), "Unicode"),
        (lines(r"\w{1000}{1000}"), "size"),
        (lines("a\\x00"), "\\0"),
        (lines("a").globs(&["a["]), "a["),
        (lines("a").globs(&["!"]), "empty"),
        (names(Some("{a")), "{a"),
        (names(Some("")), "empty"),
    ] {
        let failure = failure(&scene, &search);
        assert_eq!(failure.kind, ErrorKind::Invalid, "{failure}");
        assert!(failure.message.contains(word), "{failure}");
    }
}

#[test]
fn names_newest_first() {
    let scene = Scene::new();
    for (n, name) in ["old.rs", "sub/new.rs", "mid.txt", "same.rs", "sub/same.rs"].into_iter().enumerate() {
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs([1, 9, 5, 3, 3][n]);
        let file = std::fs::File::create(scene.file(name, "x")).unwrap();
        file.set_modified(time).unwrap();
    }
    scene.file(".hidden", "");
    let all = ["sub/new.rs", "mid.txt", "same.rs", "sub/same.rs", "old.rs"];
    assert_eq!(results(&scene, &names(None)), all);
    let (found, searched) = run(&scene, &names(None).limit(2));
    assert_eq!(found, all[..2]);
    assert_eq!(searched, Searched { files: 5, matches: 2, truncated: true, ..Searched::default() });
    assert_eq!(results(&scene, &names(Some("*.rs"))), ["sub/new.rs", "same.rs", "sub/same.rs", "old.rs"]);
    assert_eq!(results(&scene, &names(Some("sub/*.rs"))), ["sub/new.rs", "sub/same.rs"]);
    assert_eq!(results(&scene, &names(Some("sub/*.rs")).globs(&["!new*"])), ["sub/same.rs"]);
    assert_eq!(results(&scene, &names(Some("*.rs")).globs(&["s*"])), ["same.rs", "sub/same.rs"]);
    assert_eq!(results(&scene, &names(Some(".hid*"))), [".hidden"]);
    assert_eq!(results(&scene, &names(Some("nothing"))), Vec::<String>::new());
}

#[test]
fn many_names_come_in_bounded_events_and_the_newest_win() {
    let scene = Scene::new();
    for n in 0..5000 {
        let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(n);
        let file = std::fs::File::create(scene.path(&format!("{n:0>200}"))).unwrap();
        file.set_modified(time).unwrap();
    }
    let mut caller = Caller::default();
    serve(&scene.context, &names(None), &mut caller).unwrap();
    assert!(caller.events.len() > 4, "{}", caller.events.len());
    let (found, searched) = run(&scene, &names(None).limit(2));
    assert_eq!(found, [format!("{:0>200}", 4999), format!("{:0>200}", 4998)]);
    assert_eq!((searched.files, searched.truncated), (5000, true));
}

#[test]
fn what_can_not_be_read_is_told() {
    let scene = Scene::new();
    scene.file("f", "x\n");
    scene.file(".ignore", "{bad\n");
    let (found, searched) = run(&scene, &lines("x"));
    assert_eq!(found, ["f:1:x"]);
    assert_eq!(searched.errors.len(), 1, "{:?}", searched.errors);
    std::fs::remove_file(scene.path(".ignore")).unwrap();

    if skipped_as_root("what_can_not_be_read_is_told") {
        return;
    }
    for n in 0..30 {
        let path = scene.file(&format!("closed{n}"), "x\n");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap();
    }
    let (found, searched) = run(&scene, &lines("x"));
    assert_eq!(found, ["f:1:x"]);
    assert_eq!(searched.errors.len(), MAX_ERRORS);
    assert!(searched.errors[0].contains("permission denied"), "{:?}", searched.errors);
}
