//! `farshell attach` and `farshell shell`: this terminal, and one in a place.

use crate::args::{AttachArgs, ShellArgs};
use crate::output::{self, Outcome, Stop};
use crate::run::request::session;
use crate::terminal::{self, End, Keys, Typist};
use crate::{ids, progress, reach};
use farshell_api::run::{Size, StartRequest};
use farshell_api::stream::AttachTo;
use farshell_client::{Client, Streaming};
use farshell_engine::{Error, Kind};

/// bash where there is one; a plain sh is better than nothing.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash -i; exec sh -i";

pub(crate) fn attach(args: &AttachArgs) -> Outcome {
    let keys = Keys::parse(&args.detach_key)?;
    let size = here("attaching")?;
    crate::runtime()?.block_on(async {
        let client = reach::server().await?;
        let id = ids::whole(&client, &args.id).await?;
        let process = client.process(&id).await?;
        if !process.pty {
            return Err(Error::new(Kind::Invalid, "attaching", format!("{id} has no terminal"))
                .with_hint(format!(
                    "`farshell logs -f {id}` follows it, `farshell send {id} TEXT` sends input; `--pty` starts a \
                     process on a terminal"
                ))
                .into());
        }
        follow(&client, &id, size, true, keys).await
    })
}

pub(crate) fn shell(args: &ShellArgs) -> Outcome {
    let keys = Keys::parse(&args.detach_key)?;
    let session = session(&args.session)?;
    let target = reach::target(&args.target.task, args.target.backend.as_deref())?;
    let size = here("opening a shell")?;
    crate::runtime()?.block_on(async {
        let client = reach::server().await?;
        let request = StartRequest {
            target,
            session,
            background: true,
            pty: Some(size),
            stdin: true,
            ..StartRequest::new(SHELL)
        };
        let process = progress::during("preparing the environment", client.start(&request)).await?;
        follow(&client, &process.id, size, false, keys).await
    })
}

/// The size of this terminal, which is needed.
fn here(what: &str) -> Result<Size, Stop> {
    match terminal::size().filter(|_| terminal::is_one()) {
        Some(size) => Ok(size),
        None => Err(Error::new(Kind::Invalid, what, "standard input and output must be a terminal")
            .with_hint("programs use `farshell send` and `farshell logs`")
            .into()),
    }
}

async fn follow(client: &Client, id: &str, size: Size, screen: bool, keys: Keys) -> Outcome {
    let attach = AttachTo {
        id: id.to_owned(),
        target: None,
        instance: None,
        from: 0,
        screen,
        until_closed: false,
        size: Some(size),
    };
    let streaming = Streaming::attach(client, attach);
    let typist = Typist::AmongOthers(client.clone(), id.to_owned());
    let end = terminal::follow(streaming, typist, Some(keys)).await?;
    if matches!(end, End::Detached | End::Signal(_)) {
        output::tell(&format!("\r\n[detached; `farshell attach {id}` comes back]\n"));
    }
    Ok(end.code())
}
