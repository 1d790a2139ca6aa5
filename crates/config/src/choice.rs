//! Settings that are one word out of a few: the backend's name and its smaller companions.
//!
//! One macro makes each enum, so that parsing, the error's list of choices and the documentation table can't
//! disagree about the words.

/// A word that is not among the choices of a setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not one of {}", .choices.join(", "))]
pub struct UnknownChoice {
    /// What was given.
    pub text: String,
    /// What could have been given.
    pub choices: &'static [&'static str],
}

/// The words a setting accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The canonical words, in the order in which they are shown.
    pub names: &'static [&'static str],
    /// Other words that are understood, each with the canonical one.
    pub aliases: &'static [(&'static str, &'static str)],
}

impl Words {
    /// The canonical word for what was given, whatever its case.
    #[must_use]
    pub fn canonical(&self, text: &str) -> Option<&'static str> {
        let same = |name: &&str| name.eq_ignore_ascii_case(text);
        self.names
            .iter()
            .copied()
            .find(same)
            .or_else(|| self.aliases.iter().find(|(alias, _)| same(alias)).map(|(_, name)| *name))
    }
}

macro_rules! choice {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $( $(#[$variant_doc:meta])* $variant:ident = $word:literal $(| $alias:literal)* ),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $( $(#[$variant_doc])* $variant ),+ }

        impl $name {
            /// Every choice, in the order in which it is shown.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];
            /// The words that are accepted.
            pub const WORDS: Words = Words {
                names: &[ $( $word ),+ ],
                aliases: &[ $( $( ($alias, $word), )* )+ ],
            };

            /// The canonical word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word ),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownChoice;
            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                match Self::WORDS.canonical(text.trim()) {
                    $( Some($word) => Ok(Self::$variant), )+
                    _ => Err(UnknownChoice { text: text.to_owned(), choices: Self::WORDS.names }),
                }
            }
        }
    };
}

choice! {
    /// A kind of place.
    pub enum BackendKind {
        /// This machine.
        Local = "local",
        /// A Docker container.
        Docker = "docker",
        /// A host reached by SSH.
        Ssh = "ssh",
        /// An Apptainer or Singularity instance.
        Singularity = "singularity" | "apptainer",
        /// A Modal sandbox.
        Modal = "modal",
        /// A Daytona sandbox.
        Daytona = "daytona",
    }
}

choice! {
    /// When a person is asked before a command runs. The other words are those of Hermes and of its documents.
    pub enum ApprovalMode {
        /// About every command.
        Ask = "ask" | "work along" | "work-along" | "work_along" | "workalong"
            | "ask all" | "ask-all" | "ask_all" | "askall",
        /// About risky ones.
        Smart = "smart" | "run it yourself" | "run-it-yourself" | "run_it_yourself" | "runityourself"
            | "dangerous" | "ask dangerous" | "ask-dangerous" | "ask_dangerous" | "askdangerous" | "manual",
        /// Never.
        Auto = "auto" | "hands off" | "hands-off" | "hands_off" | "handsoff"
            | "never ask" | "never-ask" | "never_ask" | "neverask" | "off" | "false" | "yolo",
        /// Nobody is there: what would be asked about is denied.
        Unattended = "unattended" | "autopilot" | "cron",
    }
}

choice! {
    /// What `HOME` is for commands on this machine.
    pub enum HomeMode {
        /// The profile's home where there is one, otherwise the real one.
        Auto = "auto",
        /// The user's own home directory.
        Real = "real" | "host" | "user" | "real_home",
        /// The directory `home` below the Hermes home.
        Profile = "profile" | "isolated" | "profile_home",
    }
}

choice! {
    /// How Modal is reached.
    pub enum ModalMode {
        /// Direct where there are credentials, otherwise managed.
        Auto = "auto",
        /// With the user's own Modal credentials.
        Direct = "direct",
        /// Through a gateway.
        Managed = "managed",
    }
}

choice! {
    /// Whether tasks share a place.
    pub enum Isolation {
        /// All tasks use one place.
        Shared = "shared",
        /// Each task has its own place.
        Task = "task",
    }
}

choice! {
    /// What happens to a place whose settings have changed since it was made.
    pub enum OnSpecChange {
        /// It is replaced by a new one.
        Recreate = "recreate",
        /// It is kept, and using it is an error until it is destroyed.
        Refuse = "refuse",
    }
}

choice! {
    /// What is done about an SSH host key that is not yet known.
    pub enum HostKeyPolicy {
        /// It is accepted and remembered; a changed key is refused.
        AcceptNew = "accept-new",
        /// It is refused.
        Strict = "strict" | "yes",
    }
}

choice! {
    /// Which GPU support an Apptainer instance gets.
    pub enum SingularityGpu {
        /// None.
        None = "none",
        /// NVIDIA, `--nv`.
        Nv = "nv",
        /// AMD, `--rocm`.
        Rocm = "rocm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for kind in BackendKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(*kind));
            assert_eq!(kind.as_str().to_uppercase().parse(), Ok(*kind));
        }
        assert_eq!("isolated".parse(), Ok(HomeMode::Profile));
        assert_eq!("real_home".parse(), Ok(HomeMode::Real));
    }

    #[test]
    fn unknown_backend_lists_the_six() {
        assert_eq!(
            "dokcer".parse::<BackendKind>().unwrap_err().to_string(),
            r#""dokcer" is not one of local, docker, ssh, singularity, modal, daytona"#
        );
    }
}
