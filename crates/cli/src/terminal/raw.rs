//! The terminal, handed over key by key, and given back whatever happens.

use farshell_engine::Error;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::stdin;
use std::sync::{Mutex, Once, PoisonError};

/// How the terminal was, as long as it is not ours.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static HOOK: Once = Once::new();

/// While it lives, keys are passed on as they are pressed.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    pub(crate) fn enter() -> Result<Self, Error> {
        let io = |error: rustix::io::Errno| Error::io("preparing the terminal", error.into());
        let before = tcgetattr(stdin()).map_err(io)?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        HOOK.call_once(|| {
            let default = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // Otherwise nobody could read what is said about it.
                restore();
                default(panic);
            }));
        });
        let raw = Self(());
        raw.again();
        Ok(raw)
    }

    /// Once more, after somebody else may have changed it.
    pub(crate) fn again(&self) {
        let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(mut termios) = before {
            termios.make_raw();
            let _ = tcsetattr(stdin(), OptionalActions::Now, &termios);
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // A panic while the lock is held must not hang.
    if let Ok(mut before) = BEFORE.try_lock()
        && let Some(termios) = before.take()
    {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &termios);
    }
}
