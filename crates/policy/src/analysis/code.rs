//! Programs in languages that we do not parse: Python, Perl, JavaScript, awk, …
//!
//! Calling all of them risky would ask about every second command of an agent; calling them safe would let
//! `python -c 'os.system(…)'` through. So the text is searched for words by which such programs start others,
//! delete files, or hide what they do. A program without any of them passes. That is a sieve, not a proof: it is
//! told so in the documentation, and `execute_code` and files that a script is read from are no tighter.

use super::Walk;
use super::flow::Input;
use super::state::State;
use crate::value::Arg;
use crate::verdict::Level;
use regex::Regex;
use std::sync::LazyLock;

/// Starts other programs.
const STARTS: &str = r"(?x)
    \b(system|popen\w*|subprocess|Popen|check_call|check_output|getoutput|getstatusoutput|spawn\w*|posix_spawn\w*
      |exec[lv]p?e?|execSync|execFile\w*|child_process|shell_exec|passthru|proc_open|pcntl_exec|pty|pexpect
      |ProcessBuilder|getRuntime|Deno\.Command|Bun\.spawn\w*|IO\.popen|Open3|Kernel\.exec|qx|os\.execute|io\.popen
      |shelljs|execa|commands\.get\w+|ctypes|cffi|fork|syscall|doShellScript|do\s+shell\s+script)\b
    | `[^`]*`\s*; | %x[\[{(/]
";

/// Deletes, or changes what is not the program's own.
const CHANGES: &str = r#"(?x)
    \b(rmtree|rmSync|rmdirSync|unlinkSync|unlink|removedirs|remove_tree|rm_rf|rm_r|FileUtils|rimraf|shutil\.(move|rmtree)
      |truncate|ftruncate|chmod\w*|chown\w*|setuid|setgid|symlink\w*)\b
    | \b(reboot|kill\w*)\s*(\(|['"]?-?[0-9]) | \bkill\s+['"]?(KILL|TERM|HUP|INT)
    | \bos\s*\.\s*(remove|rename|replace|rmdir|link|chroot|abort)\b
    | \b(fs|fsPromises|promises)\s*\.\s*(rm|rmdir|rename)\b
    | \.\s*(rmdir|unlink|rename_to)\s*\(
    | /dev/(sd|nvme|hd|vd|xvd|mem|disk|mapper)
    | /(etc|boot|root)/ | \.ssh/ | \.aws/ | \.gnupg/ | /proc/(sys|kcore|1)/
"#;

/// Hides what it does, or does what can't be seen here.
const HIDES: &str = r#"(?x)
    \b(eval|exec|execfile|compile|__import__|importlib|getattr|setattr|globals|locals|vars|__builtins__|__dict__
      |__class__|__subclasses__|b64decode|a85decode|b85decode|unhexlify|fromhex|decodestring|marshal|pickle|zlib|codecs|rot13|rot_13
      |atob|fromCharCode|Function|constructor|require_once|runpy|pack|unpack|chr|instance_eval|class_eval|send|public_send
      |loadstring|dofile|load|reflect|Reflect|dlopen|vm)\s*[\(\.\['"]
    | \bfrom\s+(os|subprocess|shutil|posix|pty)\s+import\b | \bimport\s+(posix|pty|subprocess|shutil)\b
    | \bimport\s+os\s+as\b | \\x[0-9a-fA-F]{2}\\x | \[::-1\]
"#;

/// `getattr(x, 'name')` and `json.load(` are everyday business.
const HARMLESS: &str = r#"(?x)
    \b(json|yaml|toml|tomllib|csv|pickle_safe|np|numpy|pd|pandas|torch|re|regex|struct|datetime|zlib\.crc32)\s*\.\s*(load|loads|safe_load|compile|pack|unpack|open|read_\w+)\s*\(
    | \bJSON\.\w+\( | \bzlib\.(crc32|adler32)\( | \bre\.compile\( | \bimportlib\.(metadata|util\.find_spec)\b[\w\.]*\(
    | \.decode\(
"#;

static EXPRESSIONS: LazyLock<[Option<Regex>; 4]> =
    LazyLock::new(|| [STARTS, CHANGES, HIDES, HARMLESS].map(|expression| Regex::new(expression).ok()));

/// What speaks against a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Danger {
    pub(crate) what: &'static str,
    pub(crate) word: String,
    /// Its strings may be commands.
    pub(crate) starts: bool,
}

/// The first thing that speaks against `code`.
pub(crate) fn in_code(code: &str) -> Option<Danger> {
    let [starts, changes, hides, harmless] = &*EXPRESSIONS;
    let kept = match harmless {
        Some(harmless) => harmless.replace_all(code, " "),
        None => code.into(),
    };
    let find = |expression: &Option<Regex>| match expression {
        Some(expression) => expression.find(&kept).map(|found| found.as_str().to_owned()),
        // An expression that does not compile is a fault of ours, found by the tests. Until then all is suspect.
        None => Some(String::new()),
    };
    if let Some(word) = find(starts) {
        return Some(Danger { what: "code that starts other programs", word, starts: true });
    }
    if let Some(word) = find(changes) {
        return Some(Danger { what: "code that deletes or changes files", word, starts: false });
    }
    find(hides).map(|word| Danger { what: "code that can hide what it does", word, starts: true })
}

impl Walk<'_> {
    /// A program in another language.
    pub(super) fn code(&mut self, arg: &Arg, state: &State, via: &str) {
        let text = arg.text();
        if !self.burn(1 + text.len() / 64) {
            return;
        }
        if self.code.len() < 100 {
            self.code.push(text.clone());
        }
        if arg.is_unknown() && arg.prefix().is_empty() {
            self.risk(
                "unknown-script",
                format!("{via} runs text that is only known when it runs"),
                &text,
                "it could be any program",
            );
            return;
        }
        let Some(danger) = in_code(&text) else { return };
        self.risk(
            "interpreter-code",
            format!("{via} runs {}", danger.what),
            &danger.word,
            "what it does can't be told from the outside",
        );
        let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if flat.contains("fork while") || (flat.contains("while") && flat.contains("fork()")) {
            self.reason(
                "fork-bomb",
                Level::Forbidden,
                "code that starts itself over and over",
                &flat,
                "it fills the machine with processes until nothing else runs",
            );
        }
        if danger.starts {
            self.strings(&text, state);
        } else {
            // A deletion: is one of its strings the machine?
            let before = self.reasons.len();
            for path in literals(&text) {
                crate::rules::paths::delete(self, &Arg::known(path), true, state);
            }
            let certain: Vec<_> =
                self.reasons.drain(before..).filter(|reason| reason.level == Level::Forbidden).collect();
            self.reasons.extend(certain);
        }
    }

    /// The strings in code that starts programs: each may be a command, and together they may be its words.
    fn strings(&mut self, code: &str, state: &State) {
        let found = literals(code);
        let before = self.reasons.len();
        let mut texts: Vec<String> = found.iter().filter(|text| text.contains(' ')).cloned().collect();
        for from in 0..found.len().min(8) {
            texts.push(found[from..].join(" "));
        }
        for text in texts {
            self.text(&text, &mut state.clone(), &Input::Inherited);
        }
        // Only what is beyond doubt counts: most strings are no commands.
        let mut at = before;
        while at < self.reasons.len() {
            if self.reasons[at].level == Level::Forbidden && self.reasons[at].rule != "too-complex" {
                at += 1;
            } else {
                self.reasons.remove(at);
            }
        }
    }
}

/// Quoted strings, in any language's quotes.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = code.chars();
    while let Some(quote) = chars.next() {
        if !matches!(quote, '\'' | '"' | '`') {
            continue;
        }
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\\' => text.extend(chars.next()),
                c if c == quote => break,
                c => text.push(c),
            }
        }
        if !text.is_empty() && found.len() < 64 {
            found.push(text);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_compile() {
        assert!(EXPRESSIONS.iter().all(Option::is_some));
    }

    #[test]
    fn ordinary_code_passes() {
        for code in [
            "print(1 + 2)",
            "import json,sys; print(json.load(sys.stdin)['name'])",
            "import sys; print(sys.version)",
            "import os; print(os.getcwd(), os.environ.get('HOME'))",
            "console.log(require('./package.json').version)",
            "import re; print(re.compile('a+').findall('aa'))",
            "x = [3]; x.remove(3); print(x)",
            "print 'hello' if /world/",
            "import numpy as np; print(np.load('a.npy').shape)",
            "print(open('a.txt').read().decode('utf-8'))",
        ] {
            assert_eq!(in_code(code), None, "{code}");
        }
    }

    #[test]
    fn dangerous_code_is_found() {
        for code in [
            "import os; os.system('ls')",
            "import subprocess",
            "__import__('o'+'s').listdir()",
            "getattr(os, 'sys' + 'tem')('x')",
            "require('child_process').execSync('x')",
            "import shutil; shutil.rmtree('/')",
            "exec(open('x').read())",
            "fork while fork",
            "from os import *",
            "open('/dev/sda', 'wb')",
            "unlink glob '*'",
            "''.join(chr(i) for i in [1])",
        ] {
            assert!(in_code(code).is_some(), "{code}");
        }
    }
}
