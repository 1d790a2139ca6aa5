//! What may run: judged before anything is made for it, answered by a person, written down.

use crate::rig::{Life, PATIENCE, Rig, ended, events_of, until, whole};
use farshell_api::approval::{Answer, AnswerRequest, Approval, ApprovalQuery, Subject, Surface};
use farshell_api::audit::{AuditLine, AuditQuery, Step};
use farshell_api::event::EventKind;
use farshell_api::run::{Size, StartRequest, Target};
use farshell_api::stream::Open;
use farshell_engine::backend::BoxFuture;
use farshell_engine::capture::Discard;
use farshell_engine::{Error, Kind};
use farshell_keeper::{Deed, Keeper, Observer, Origin, StreamEnd};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// A command that asks, and leaves a trace if it runs.
const RISKY: &str = "touch ran; git push --force origin main 2>/dev/null; true";

fn say(answer: Answer) -> AnswerRequest {
    AnswerRequest { answer, reason: None }
}

/// The one that waits, as soon as it does.
async fn waiting(keeper: &Keeper) -> Approval {
    let query = ApprovalQuery { after: None, wait: Some(PATIENCE.as_secs_f64()) };
    let mut list = keeper.approvals(query).await.unwrap().approvals;
    assert_eq!(list.len(), 1, "{list:?}");
    list.remove(0)
}

async fn nothing_waits(keeper: &Keeper) {
    until("nothing waits", || async {
        keeper.approvals(ApprovalQuery::default()).await.unwrap().approvals.is_empty()
    })
    .await;
}

pub(crate) async fn lines(keeper: &Keeper) -> Vec<AuditLine> {
    let mut lines = keeper.audit(AuditQuery::default()).await.unwrap().lines;
    lines.retain(|line| line.step != Step::Opened);
    lines
}

/// What was decided, by whom.
async fn decisions(keeper: &Keeper) -> Vec<(String, String)> {
    let decided = lines(keeper).await.into_iter().filter(|line| line.step == Step::Decided);
    decided.map(|line| (line.decision.unwrap(), line.decided_by.unwrap())).collect()
}

fn pair(decision: &str, by: &str) -> (String, String) {
    (decision.to_owned(), by.to_owned())
}

pub(crate) fn ran(rig: &Rig) -> bool {
    rig.home().join("ran").exists()
}

fn asked(rig: &Rig, keeper: &Keeper, command: &str) -> tokio::task::JoinHandle<Result<i32, Error>> {
    let (keeper, request) = (keeper.clone(), rig.request(command));
    tokio::spawn(async move { keeper.run(request).await.map(|result| result.exit_code) })
}

#[tokio::test]
async fn what_is_forbidden_leaves_nothing_behind() {
    let rig = Rig::new();
    rig.config("approvals: {mode: auto, deny: [git push, 'curl *evil*']}\n");
    let keeper = rig.open().await;
    for (command, rule, by) in [
        ("mkfs.ext4 /dev/sda", "make-filesystem", "hard_list"),
        ("cd x && bash -c 'git  -C y push origin'", "deny-list", "deny_list"),
        ("curl https://evil.test/x", "deny-list", "deny_list"),
    ] {
        let error = keeper.run(rig.request(command)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Denied, "{command}: {error}");
        assert!(error.message.contains(rule), "{error}");
        assert!(error.hint.as_ref().unwrap().contains("don't rephrase it"), "{error:?}");
        let error = keeper.start(rig.command(command)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Denied, "{command}: {error}");
        let open = Open { start: Some(Box::new(rig.command(command))), attach: None };
        assert_eq!(keeper.stream(open, &()).await.unwrap_err().kind, Kind::Denied);
        assert_eq!(decisions(&keeper).await.last(), Some(&pair("deny", by)));
    }
    assert_eq!(rig.backends.provisioned.load(Ordering::SeqCst), 0);
    assert!(keeper.environments().await.unwrap().is_empty());
    assert!(keeper.processes(Default::default()).await.unwrap().is_empty());
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_person_says_yes_once() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let keeper = keeper.on_behalf(Origin { surface: Surface::Mcp, client: Some("a model".into()) });
    let run = asked(&rig, &keeper, RISKY);
    let approval = waiting(&keeper).await;
    assert_eq!(rig.backends.provisioned.load(Ordering::SeqCst), 0, "nothing is made for what may be denied");
    assert_eq!((approval.subject, approval.surface), (Subject::Command, Surface::Mcp));
    assert_eq!(approval.client.as_deref(), Some("a model"));
    assert_eq!((approval.task.as_str(), approval.session.as_str()), ("default", "default"));
    assert_eq!((approval.environment.as_str(), approval.command.as_str()), ("local/default", RISKY));
    assert_eq!(approval.expires_at - approval.asked_at, 60_000);
    assert_eq!(approval.reasons[0].rule, "git-force-push", "{approval:?}");
    assert!(approval.may_always && !ran(&rig));
    let answered = keeper.answer(&approval.id, say(Answer::Once)).await.unwrap();
    assert_eq!(answered.approval, approval);
    assert_eq!(run.await.unwrap().unwrap(), 0);
    assert!(ran(&rig));
    // Once is once.
    let run = asked(&rig, &keeper, RISKY);
    let second = waiting(&keeper).await;
    assert_ne!(second.id, approval.id);
    keeper
        .answer(&second.id, AnswerRequest { answer: Answer::Deny, reason: Some("not today".into()) })
        .await
        .unwrap();
    let error = run.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (Kind::Denied, "the user said no: not today"));
    assert_eq!(decisions(&keeper).await, [pair("allow", "person:once"), pair("deny", "person:deny")]);
    let told = events_of(&keeper, EventKind::ApprovalRequested).await;
    assert_eq!(told[0].data["approval"]["id"], approval.id.as_str());
    until("both answers are told", || async {
        events_of(&keeper, EventKind::ApprovalAnswered).await.len() == 2
    })
    .await;
    let steps: Vec<Step> = lines(&keeper).await.iter().map(|line| line.step).collect();
    assert_eq!(steps, [Step::Asked, Step::Decided, Step::Ended, Step::Asked, Step::Decided]);
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_session_is_that_session() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    let run = asked(&rig, &keeper, RISKY);
    keeper.answer(&waiting(&keeper).await.id, say(Answer::Session)).await.unwrap();
    run.await.unwrap().unwrap();
    // Not asked again here ...
    assert_eq!(rig.run(&keeper, RISKY).await.exit_code, 0);
    // ... but for what is more than that, in another session, and in another task.
    let more = rig.request(&format!("{RISKY}; git push --mirror"));
    let session = whole(StartRequest { session: "other".into(), ..rig.command(RISKY) });
    let task = whole(StartRequest { target: rig.target("other"), ..rig.command(RISKY) });
    for request in [more, session, task] {
        let run = tokio::spawn({
            let keeper = keeper.clone();
            async move { keeper.run(request).await }
        });
        keeper.answer(&waiting(&keeper).await.id, say(Answer::Deny)).await.unwrap();
        assert_eq!(run.await.unwrap().unwrap_err().kind, Kind::Denied);
    }
    assert_eq!(decisions(&keeper).await[1], pair("allow", "allowlist"));
    rig.end(keeper).await;
}

#[tokio::test]
async fn always_is_written_and_comments_stay() {
    let rig = Rig::new();
    rig.config("# mine\ncommand_allowlist:\n- git gc   # often\nterminal:\n  timeout: 30 # short\n");
    let keeper = rig.open().await;
    let run = asked(&rig, &keeper, "git push --force");
    keeper.answer(&waiting(&keeper).await.id, say(Answer::Always)).await.unwrap();
    run.await.unwrap().unwrap();
    // A pattern in a command is no pattern in the list.
    let run = asked(&rig, &keeper, "git clean -f old*");
    keeper.answer(&waiting(&keeper).await.id, say(Answer::Always)).await.unwrap();
    run.await.unwrap().unwrap();
    let text = std::fs::read_to_string(rig.home().join("config.yaml")).unwrap();
    assert!(text.starts_with("# mine\n") && text.contains("timeout: 30 # short"), "{text}");
    assert!(["# often", "git gc", "git push --force"].iter().all(|part| text.contains(part)), "{text}");
    assert!(text.contains("exactly:git clean -f old*"), "{text}");
    keeper.close(false).await.unwrap();
    drop(keeper);
    // Another server knows it.
    let keeper = rig.open().await;
    for command in ["git push --force", "git clean -f old*"] {
        rig.run(&keeper, command).await;
        assert_eq!(decisions(&keeper).await.last(), Some(&pair("allow", "allowlist")));
    }
    let run = asked(&rig, &keeper, "git clean -f older");
    keeper.answer(&waiting(&keeper).await.id, say(Answer::Deny)).await.unwrap();
    run.await.unwrap().unwrap_err();
    rig.end(keeper).await;
}

#[tokio::test]
async fn silence_is_a_no() {
    let rig = Rig::new();
    rig.config("approvals: {timeout: 1}\n");
    let keeper = rig.open().await;
    let error = keeper.run(rig.request(RISKY)).await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied);
    assert!(error.message.starts_with("nobody answered within 1 seconds"), "{error}");
    assert!(!ran(&rig));
    let lines = lines(&keeper).await;
    let id = lines[0].approval.clone().unwrap();
    assert_eq!(decisions(&keeper).await, [pair("deny", "timeout")]);
    let late = keeper.answer(&id, say(Answer::Once)).await.unwrap_err();
    assert_eq!(
        (late.kind, late.message.as_str()),
        (Kind::NotFound, "the time for an answer is over, and it did not run")
    );
    rig.end(keeper).await;
}

#[tokio::test]
async fn who_does_not_wait_does_not_run_it() {
    struct Gone(watch::Receiver<bool>, Mutex<Vec<String>>);
    impl Observer for Gone {
        fn approval(&self, approval: &Approval) {
            self.1.lock().unwrap().push(approval.id.clone());
        }
        fn gone(&self) -> BoxFuture<'_, ()> {
            let mut gone = self.0.clone();
            Box::pin(async move { drop(gone.wait_for(|gone| *gone).await) })
        }
    }
    let rig = Rig::new();
    let keeper = rig.open().await;
    // Dropped.
    let run = asked(&rig, &keeper, RISKY);
    let first = waiting(&keeper).await;
    run.abort();
    nothing_waits(&keeper).await;
    let late = keeper.answer(&first.id, say(Answer::Once)).await.unwrap_err();
    assert_eq!(late.message, "whoever asked has gone, and it did not run");
    // Said so.
    let (leave, here) = watch::channel(false);
    let start = Open { start: Some(Box::new(rig.command(RISKY))), attach: None };
    let stream = tokio::spawn({
        let keeper = keeper.clone();
        async move {
            let gone = Gone(here, Mutex::default());
            let opened = keeper.stream(start, &gone).await.map(drop);
            (opened, gone.1.into_inner().unwrap())
        }
    });
    let second = waiting(&keeper).await;
    leave.send_replace(true);
    let (opened, told) = stream.await.unwrap();
    assert_eq!(opened.unwrap_err().kind, Kind::NotStarted);
    assert_eq!(told, std::slice::from_ref(&second.id), "whoever waits is told, once");
    assert_eq!(decisions(&keeper).await, [pair("deny", "withdrawn"), pair("deny", "withdrawn")]);
    assert_eq!(rig.backends.provisioned.load(Ordering::SeqCst), 0);
    assert!(!ran(&rig));
    rig.end(keeper).await;
}

#[tokio::test]
async fn of_two_answers_the_first_counts() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for first in [Answer::Once, Answer::Deny] {
        let run = asked(&rig, &keeper, RISKY);
        let approval = waiting(&keeper).await;
        keeper.answer(&approval.id, say(first)).await.unwrap();
        let second = keeper.answer(&approval.id, say(Answer::Session)).await.unwrap_err();
        assert_eq!(second.kind, Kind::AlreadyExists, "{second}");
        assert!(second.message.starts_with("it was answered before"), "{second}");
        assert_eq!(run.await.unwrap().is_ok(), first == Answer::Once);
    }
    // Many at once: exactly one is the first.
    let run = asked(&rig, &keeper, RISKY);
    let approval = waiting(&keeper).await;
    let all: Vec<_> = (0..20)
        .map(|_| {
            let (keeper, id) = (keeper.clone(), approval.id.clone());
            tokio::spawn(async move { keeper.answer(&id, say(Answer::Once)).await.is_ok() })
        })
        .collect();
    let mut firsts = 0;
    for one in all {
        firsts += usize::from(one.await.unwrap());
    }
    assert_eq!(firsts, 1);
    run.await.unwrap().unwrap();
    let unknown = keeper.answer("appr_none", say(Answer::Once)).await.unwrap_err();
    assert_eq!(unknown.kind, Kind::NotFound);
    rig.end(keeper).await;
}

#[test]
fn a_server_that_is_killed_takes_its_questions_with_it() {
    let rig = Rig::new();
    let life = Life::begin(&rig);
    life.on(async {
        let _run = asked(&rig, &life.keeper, RISKY);
        let start = StartRequest { background: true, ..rig.command(RISKY) };
        let keeper = life.keeper.clone();
        tokio::spawn(async move { keeper.start(start).await });
        let two = || async { life.keeper.approvals(Default::default()).await.unwrap().approvals.len() == 2 };
        until("both wait", two).await;
    });
    life.die();
    let life = Life::begin(&rig);
    life.on(async {
        let keeper = &life.keeper;
        assert!(keeper.approvals(Default::default()).await.unwrap().approvals.is_empty());
        assert!(keeper.processes(Default::default()).await.unwrap().is_empty());
        assert_eq!(rig.outposts(), Vec::<u32>::new());
        assert!(!ran(&rig));
        // That it was asked about is still known, and the log goes on.
        let steps: Vec<Step> = lines(keeper).await.iter().map(|line| line.step).collect();
        assert_eq!(steps.iter().filter(|step| **step == Step::Asked).count(), 2, "{steps:?}");
        assert!(keeper.verify_audit().await.unwrap().sound);
    });
    life.end(rig);
}

#[tokio::test]
async fn a_call_can_be_stricter_and_never_looser() {
    let rig = Rig::new();
    let with = |mode: &str, command: &str| {
        let target = Target { approvals: Some(mode.into()), ..rig.target("default") };
        whole(StartRequest { target, ..rig.command(command) })
    };
    let keeper = rig.open().await;
    for (configured, asked, outcome) in [
        ("auto", "smart", Some(Kind::Denied)),
        ("auto", "unattended", Some(Kind::Denied)),
        ("smart", "Autopilot", Some(Kind::Denied)),
        ("smart", "auto", Some(Kind::Invalid)),
        ("smart", "yolo", Some(Kind::Invalid)),
        ("ask", "smart", Some(Kind::Invalid)),
        ("ask", "unattended", Some(Kind::Invalid)),
        ("unattended", "ask", Some(Kind::Invalid)),
        ("unattended", "auto", Some(Kind::Invalid)),
        ("smart", "nonsense", Some(Kind::Invalid)),
        ("auto", "auto", None),
    ] {
        rig.config(&format!("approvals: {{mode: {configured}, timeout: 1}}\n"));
        let got = keeper.run(with(asked, RISKY)).await.map_err(|error| error.kind).err();
        assert_eq!(got, outcome, "{configured} {asked}");
    }
    // Nor can the caller's variables, whatever they are called, nor what is in the file's own values.
    rig.config("approvals: {mode: '${FARSHELL_MODE}'}\n");
    let variables =
        [("FARSHELL_MODE", "auto"), ("HERMES_YOLO_MODE", "1"), ("TERMINAL_APPROVALS_MODE", "off")];
    let target = rig.target_with("default", &variables);
    let request = whole(StartRequest { target: target.clone(), ..rig.command(RISKY) });
    let error = keeper.run(request.clone()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Invalid, "{error}");
    assert!(error.message.contains("approvals.mode"), "{error}");
    rig.config("approvals: {timeout: 1}\n");
    assert_eq!(keeper.run(request).await.unwrap_err().kind, Kind::Denied);
    rig.end(keeper).await;
}

#[tokio::test]
async fn unattended_denies_what_would_be_asked() {
    let rig = Rig::new();
    rig.config("approvals: {mode: cron, unattended_allow: [delete-tree]}\n");
    let keeper = rig.open().await;
    assert_eq!(rig.says(&keeper, "echo safe").await, "safe\n");
    let error = keeper.run(rig.request("git push --force")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied);
    assert!(error.hint.unwrap().contains("nobody is there to be asked"));
    assert_eq!(decisions(&keeper).await, [pair("allow", "mode:unattended"), pair("deny", "mode:unattended")]);
    assert!(keeper.approvals(Default::default()).await.unwrap().approvals.is_empty());
    rig.end(keeper).await;
}

#[tokio::test]
async fn isolated_places_don_t_ask_and_keep_the_deny_list() {
    let rig = Rig::new();
    let run = async |keeper: &Keeper, command: &str| {
        keeper.run(rig.request(command)).await.map(|result| result.exit_code).map_err(|error| error.kind)
    };
    let keeper = rig.open().await;
    rig.config("terminal: {backend: docker}\napprovals: {mode: ask, timeout: 1, deny: [git push]}\n");
    assert_eq!(run(&keeper, "echo; false").await, Ok(1));
    assert_eq!(run(&keeper, "bash -c 'git push'").await, Err(Kind::Denied));
    assert_eq!(decisions(&keeper).await, [pair("allow", "isolated"), pair("deny", "deny_list")]);
    // With something of this machine in it, it is as this machine.
    for door in [
        "docker_volumes: [/srv:/srv]",
        "docker_mount_cwd_to_workspace: true",
        "docker_extra_args: [--device, /dev/x]",
    ] {
        rig.config(&format!("terminal: {{backend: docker, {door}}}\napprovals: {{mode: ask, timeout: 1}}\n"));
        assert_eq!(run(&keeper, "echo").await, Err(Kind::Denied), "{door}");
        assert_eq!(run(&keeper, "mkfs.ext4 /dev/sda").await, Err(Kind::Denied), "{door}");
    }
    // A volume that only has a name is Docker's own.
    rig.config(
        "terminal: {backend: docker, docker_volumes: ['cache:/cache']}\napprovals: {mode: ask, timeout: 1}\n",
    );
    assert_eq!(run(&keeper, "true").await, Ok(0));
    rig.end(keeper).await;
}

#[tokio::test]
async fn work_along_asks_about_everything() {
    let rig = Rig::new();
    rig.config("approvals: {mode: work-along}\n");
    let keeper = rig.open().await;
    let run = asked(&rig, &keeper, "echo harmless");
    let approval = waiting(&keeper).await;
    assert!(approval.reasons.is_empty());
    keeper.answer(&approval.id, say(Answer::Session)).await.unwrap();
    run.await.unwrap().unwrap();
    rig.says(&keeper, "echo harmless").await;
    rig.end(keeper).await;
}

#[tokio::test]
async fn a_repeated_id_is_not_judged_again() {
    let rig = Rig::new();
    let keeper = rig.open().await;
    for background in [false, true] {
        let id = Some(format!("again_{background}"));
        let request = StartRequest { id: id.clone(), background, ..rig.command(RISKY) };
        let call = async |request: StartRequest| match background {
            true => keeper.start(request).await.map(|process| process.id),
            false => keeper.run(whole(request)).await.map(|result| result.process_id),
        };
        let (first, ()) = tokio::join!(call(request.clone()), async {
            keeper.answer(&waiting(&keeper).await.id, say(Answer::Once)).await.unwrap();
        });
        assert_eq!(first.unwrap(), id.clone().unwrap());
        if background {
            ended(&keeper, id.as_deref().unwrap()).await;
        }
        let before = decisions(&keeper).await.len();
        assert_eq!(Some(call(request.clone()).await.unwrap()), id);
        assert_eq!(decisions(&keeper).await.len(), before);
        // Another command under that id is another command.
        let other = StartRequest { command: "git push --force --all".into(), ..request };
        let (refused, ()) = tokio::join!(call(other), async {
            if !background {
                keeper.answer(&waiting(&keeper).await.id, say(Answer::Deny)).await.unwrap();
            }
        });
        let kind = refused.unwrap_err().kind;
        assert_eq!(kind, if background { Kind::AlreadyExists } else { Kind::Denied });
    }
    rig.end(keeper).await;
}

#[tokio::test]
async fn what_is_typed_to_an_interpreter_is_not_seen() {
    let rig = Rig::new();
    rig.config("approvals: {timeout: 1}\n");
    let keeper = rig.open().await;
    let size = Some(Size { rows: 24, cols: 80 });
    let repl = StartRequest { background: true, stdin: true, ..rig.command("python3 -i") };
    let shell = StartRequest { background: true, pty: size, ..rig.command("exec bash -i") };
    for request in [&repl, &shell] {
        assert_eq!(keeper.start(request.clone()).await.unwrap_err().kind, Kind::Denied);
    }
    // A person at a terminal types there what they would be asked about.
    let person = keeper.on_behalf(Origin { surface: Surface::Cli, client: None });
    assert_eq!(person.start(repl).await.unwrap_err().kind, Kind::Denied, "that is no terminal");
    let process = person.start(shell).await.unwrap();
    keeper.kill(&process.id, Default::default()).await.unwrap();
    rig.end(keeper).await;
}

#[tokio::test]
async fn secrets_are_nowhere() {
    let rig = Rig::new();
    let secret = "s3cr3t-v4lue-77";
    std::fs::write(rig.home().join(".env"), format!("MY_API_TOKEN={secret}\n")).unwrap();
    let keeper = rig.open().await;
    let shape = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let run = asked(&rig, &keeper, &format!("git push --force https://x:{secret}@h/ {shape}"));
    let approval = waiting(&keeper).await;
    assert!(!approval.may_always, "it would be in the settings");
    assert_eq!(keeper.answer(&approval.id, say(Answer::Always)).await.unwrap_err().kind, Kind::Invalid);
    keeper.answer(&approval.id, say(Answer::Deny)).await.unwrap();
    run.await.unwrap().unwrap_err();
    let shown = format!(
        "{approval:?}{:?}{:?}",
        lines(&keeper).await,
        events_of(&keeper, EventKind::ApprovalRequested).await
    );
    assert!(!shown.contains(secret) && !shown.contains(shape), "{shown}");
    let raw: Vec<u8> = std::fs::read_dir(rig.home().join("farshell/audit"))
        .unwrap()
        .flatten()
        .flat_map(|entry| std::fs::read(entry.path()).unwrap())
        .collect();
    let raw = String::from_utf8(raw).unwrap();
    assert!(
        raw.contains("«redacted:MY_API_TOKEN»") && !raw.contains(secret) && !raw.contains(shape),
        "{raw}"
    );
    let redactor = keeper.redactor(&rig.target("default")).unwrap();
    assert_eq!(redactor.redact(&format!("a {secret} b")), "a «redacted:MY_API_TOKEN» b");
    rig.end(keeper).await;
}

#[tokio::test]
async fn code_and_files_need_leave_too() {
    let rig = Rig::new();
    rig.config("approvals: {timeout: 1}\n");
    let keeper = rig.open().await;
    let target = rig.target("default");
    let deed = |subject, text| Deed {
        target: &target,
        session: "default",
        subject,
        text,
        workdir: None,
        process: Some("code_1"),
        typed: false,
        repeated: false,
    };
    let permit = async |subject, text: &'static str| {
        keeper.permit(deed(subject, text), &()).await.map_err(|error| (error.kind, error.operation))
    };
    let permitted = permit(Subject::Code, "print(1 + 1)").await.unwrap();
    // The process that it becomes is not asked about. It runs beside its session, and its end is written down.
    let start = StartRequest {
        id: Some("code_1".into()),
        target: target.clone(),
        ..StartRequest::new("cd /; A=1; git push --force 2>/dev/null; exit 3")
    };
    let stream = keeper.stream_permitted(permitted, start, &()).await.unwrap();
    let StreamEnd::Ended(process) = stream.follow(&mut Discard).await.unwrap() else {
        panic!("it has ended")
    };
    assert_eq!((process.id.as_str(), process.exit_code), ("code_1", Some(3)));
    let after = keeper.run(rig.request("echo \"<$A>$PWD\"")).await.unwrap();
    assert_eq!(after.stdout, format!("<>{}\n", rig.home().display()));
    let code = permit(Subject::Code, "import shutil, os\nshutil.rmtree(os.path.expanduser('~/x'))").await;
    assert_eq!(code.unwrap_err(), (Kind::Denied, "running the code".into()));
    drop(permit(Subject::FileWrite, "/tmp/it's mine.txt").await.unwrap());
    let file = permit(Subject::FileWrite, "/etc/passwd").await;
    assert_eq!(file.unwrap_err(), (Kind::Denied, "writing the file".into()));
    let own = rig.home().join("config.yaml").to_str().unwrap().to_owned();
    let error = keeper.permit(deed(Subject::FileWrite, &own), &()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied, "{error}");
    let ends = lines(&keeper).await.into_iter().filter_map(|line| Some((line.process_id?, line.outcome?)));
    let ends: Vec<_> = ends.filter(|(id, _)| id == "code_1").map(|(_, o)| (o.state, o.exit_code)).collect();
    assert_eq!(ends, [("ended".to_owned(), Some(3)), ("not_started".to_owned(), None)]);
    rig.config("approvals: {mode: ask, timeout: 1}\n");
    assert_eq!(permit(Subject::FileWrite, "/tmp/x").await.unwrap_err().0, Kind::Denied);
    rig.end(keeper).await;
}
