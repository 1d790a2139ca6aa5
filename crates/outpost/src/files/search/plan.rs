//! What was asked for, checked and ready to run.

use super::super::failure::quoted;
use super::super::is_leftover;
use super::content::Content;
use farshell_protocol::file::{IgnoreCase, Search, Target, Want};
use farshell_protocol::{ErrorKind, Failure};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::overrides::{Override, OverrideBuilder};
use ignore::{DirEntry, WalkBuilder};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bounds for what a regular expression may take: compiled, and as a cache for each thread.
const REGEX_BYTES: usize = 16 << 20;
const REGEX_CACHE_BYTES: usize = 16 << 20;
/// Lines around a match, at most; nobody reads more, and they are held in memory.
const MAX_CONTEXT: u32 = 1000;

pub(super) struct Plan {
    pub(super) task: Task,
    /// Results at most, `u64::MAX` for no limit.
    pub(super) limit: u64,
    pub(super) context: u64,
    walk: WalkBuilder,
    /// Globs that a file has to pass after the walk.
    filters: Vec<Override>,
}

pub(super) enum Task {
    /// Files by name: only a look at size and time.
    Names,
    Content(Content),
}

impl Plan {
    pub(super) fn new(search: &Search, root: &Path) -> Result<Self, Failure> {
        let mut walk = WalkBuilder::new(root);
        let ignore = !search.no_ignore;
        walk.hidden(!search.hidden)
            .parents(ignore)
            .ignore(ignore)
            .git_ignore(ignore)
            .git_global(ignore)
            .git_exclude(ignore)
            .current_dir(root)
            .sort_by_file_name(|a, b| a.cmp(b));
        if ignore {
            walk.add_custom_ignore_filename(".rgignore");
        }
        if root == Path::new("/") {
            // Not files, but the kernel's and the devices' views of themselves, some without an end.
            walk.filter_entry(|entry| !["/proc", "/sys", "/dev"].map(Path::new).contains(&entry.path()));
        }

        let name = match &search.target {
            Target::Files { glob } => glob.as_slice(),
            Target::Content { .. } => &[],
        };
        // The walk takes what any glob wants, as ripgrep's `--glob` does; that also lets a glob name a hidden or
        // ignored file. Where two kinds of globs are given, the filters then ask for both.
        let mut filters = Vec::new();
        match (name, search.globs.as_slice()) {
            ([], []) => {}
            (name, []) => drop(walk.overrides(globs(root, name)?)),
            ([], others) => drop(walk.overrides(globs(root, others)?)),
            (name, others) => {
                walk.overrides(globs(root, &[name, others].concat())?);
                filters.push(globs(root, name)?);
                filters.push(globs(root, others)?);
            }
        }

        let (task, context) = match &search.target {
            Target::Files { .. } => (Task::Names, 0),
            Target::Content { pattern, literal, ignore_case, context, multiline, want } => {
                let context = if *want == Want::Lines { (*context).min(MAX_CONTEXT) } else { 0 };
                let matcher = matcher(pattern, *literal, *ignore_case, *multiline)?;
                let content = Content::new(matcher, *want, context, *multiline, search.limit);
                (Task::Content(content), context)
            }
        };
        let limit = if search.limit == 0 { u64::MAX } else { search.limit };
        Ok(Self { task, limit, context: context.into(), walk, filters })
    }

    /// The files to search, in order of their names, and what went wrong on the way.
    pub(super) fn walk(&self, root: &Path) -> impl Iterator<Item = Result<PathBuf, String>> + use<'_> {
        let root = root.to_owned();
        self.walk.build().filter_map(move |entry| match entry {
            Ok(entry) if self.wants(&entry) => Some(Ok(entry.into_path())),
            Ok(entry) => {
                // An ignore file with a line that is no glob: the rest of it holds.
                let error = entry.error()?;
                Some(Err(format!("ignore files of {}: {error}", quoted(entry.path()))))
            }
            Err(error) => Some(Err(format!("cannot search below {}: {error}", quoted(&root)))),
        })
    }

    fn wants(&self, entry: &DirEntry) -> bool {
        // A file that is still being written, or never was to its end, is nobody's.
        entry.file_type().is_some_and(|kind| kind.is_file())
            && !is_leftover(entry.file_name().as_bytes())
            && self.filters.iter().all(|filter| !filter.matched(entry.path(), false).is_ignore())
    }
}

fn globs(root: &Path, globs: &[String]) -> Result<Override, Failure> {
    let fail = |glob: &str, error: &dyn std::fmt::Display| {
        Failure::new(ErrorKind::Invalid, format!("bad glob {glob:?}: {error}"))
    };
    let mut builder = OverrideBuilder::new(root);
    for glob in globs {
        if glob.trim_start_matches('!').trim().is_empty() {
            return Err(fail(glob, &"it is empty"));
        }
        // The line format of ignore files, where this would start a comment.
        let line = if glob.starts_with('#') { format!("\\{glob}") } else { glob.clone() };
        builder.add(&line).map_err(|error| fail(glob, &error))?;
    }
    builder.build().map_err(|error| fail(&globs.join(" "), &error))
}

fn matcher(pattern: &str, literal: bool, case: IgnoreCase, multiline: bool) -> Result<RegexMatcher, Failure> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .fixed_strings(literal)
        .case_insensitive(case == IgnoreCase::Yes)
        .case_smart(case == IgnoreCase::Smart)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_CACHE_BYTES)
        // Files with NUL bytes are not searched, so that a pattern can't ask for one.
        .ban_byte(Some(0));
    // `$` also stands before `\r\n`. A matcher that knows that no match has a line end in it can search without
    // cutting lines first; in a multi-line search it must not think so. The order of these calls matters.
    builder.line_terminator(Some(b'\n')).crlf(true);
    if multiline {
        builder.line_terminator(None);
    }
    builder.build(pattern).map_err(|error| {
        let hint = if !multiline && pattern.contains(['\n', '\\']) && error.to_string().contains("\\n") {
            " (a match over several lines needs `multiline`)"
        } else {
            ""
        };
        Failure::new(ErrorKind::Invalid, format!("bad pattern {pattern:?}: {error}{hint}"))
    })
}
