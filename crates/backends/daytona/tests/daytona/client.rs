//! The client alone: what the backend has no use for.

use crate::rig::Rig;
use bytes::Bytes;
use farshell_daytona::client::{Access, Client, Create, Fault, Resources, Sandbox, State, Toolbox, Upload};
use std::time::Duration;

async fn toolbox(rig: &Rig) -> Toolbox {
    rig.place().await;
    rig.client().toolbox(&rig.sandbox().await).await.unwrap()
}

/// Waits for a command of a session.
async fn code(toolbox: &Toolbox, session: &str, command: &str) -> i32 {
    loop {
        if let Some(code) = toolbox.session_command(session, command).await.unwrap().exit_code {
            return code;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_keep_their_state_and_take_input() {
    let Some(rig) = Rig::new() else { return };
    let toolbox = toolbox(&rig).await;
    toolbox.create_session("s").await.unwrap();
    assert_eq!(toolbox.create_session("s").await.unwrap_err().status(), Some(409));
    let first = toolbox.start_in_session("s", "cd /usr; A=1; false").await.unwrap();
    assert_eq!(code(&toolbox, "s", &first).await, 1);
    let second = toolbox.start_in_session("s", "echo $A $PWD; echo bad >&2").await.unwrap();
    assert_eq!(code(&toolbox, "s", &second).await, 0);
    let logs = toolbox.session_logs("s", &second).await.unwrap();
    assert_eq!((logs.stdout.unwrap().trim(), logs.stderr.unwrap().trim()), ("1 /usr", "bad"));
    let third = toolbox.start_in_session("s", "read x; echo got $x").await.unwrap();
    assert_eq!(toolbox.session_command("s", &third).await.unwrap().exit_code, None);
    toolbox.session_input("s", &third, "a line").await.unwrap();
    assert_eq!(code(&toolbox, "s", &third).await, 0);
    assert!(toolbox.session_logs("s", &third).await.unwrap().stdout.unwrap().contains("got a line"));
    let mut ids: Vec<String> =
        toolbox.session("s").await.unwrap().into_iter().map(|command| command.id).collect();
    let mut expected = vec![first, second, third];
    ids.sort();
    expected.sort();
    assert_eq!(ids, expected);
    toolbox.delete_session("s").await.unwrap();
    assert_eq!(toolbox.session("s").await.unwrap_err().status(), Some(404));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_and_come_in_numbers() {
    let Some(rig) = Rig::new() else { return };
    let toolbox = toolbox(&rig).await;
    let home = toolbox.home().await.unwrap();
    let odd = Bytes::from_static(b"\r\n--x\r\n\0\xff");
    let paths = [format!("{home}/a b/\u{fc} \".bin"), format!("{home}/empty")];
    let files = [
        Upload { path: paths[0].clone(), bytes: odd.clone() },
        Upload { path: paths[1].clone(), bytes: Bytes::new() },
    ];
    toolbox.upload(&files).await.unwrap();
    assert_eq!(toolbox.download(&paths[0]).await.unwrap(), odd);
    let all = toolbox.download_all(&[&paths[0], "/nowhere", &paths[1]]).await.unwrap();
    assert_eq!((all[0].as_ref().unwrap(), all[2].as_ref().unwrap().len()), (&odd, 0));
    assert!(matches!(all[1].as_ref().unwrap_err(), Fault::Refused { status: 404, .. }), "{:?}", all[1]);
}

/// A sandbox once it is in this state.
async fn once(client: &Client, id: &str, state: State) -> Sandbox {
    loop {
        let sandbox = client.get(id).await.unwrap().unwrap();
        if sandbox.state == state {
            return sandbox;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organisations_sandbox_is_made_from_a_snapshot_resized_and_shown() {
    let Some(rig) = Rig::new() else { return };
    let organization = Some("org-mine".to_owned());
    let access = Access { url: rig.url.clone(), key: "dtn_test".into(), organization: organization.clone() };
    let client = Client::new(&access).unwrap();
    let of = |snapshot: &str| Create {
        name: Some("of-snapshot".into()),
        snapshot: Some(snapshot.into()),
        ..Create::default()
    };
    let error = client.create(&of("nothing")).await.unwrap_err();
    assert_eq!(error.status(), Some(400));
    assert!(error.message().starts_with("Snapshot nothing not found"), "{error}");
    let id = client.create(&of("daytona-small")).await.unwrap().id;
    let made = once(&client, &id, State::Started).await;
    assert_eq!((made.snapshot.as_deref(), made.organization_id), (Some("daytona-small"), organization));
    // A key alone has an organisation of its own.
    let plain = rig.client().create(&Create::default()).await.unwrap();
    assert_ne!(plain.organization_id.as_deref(), Some("org-mine"));

    let size = |sandbox: &Sandbox| (sandbox.cpu, sandbox.memory, sandbox.disk);
    let larger = Resources { cpu: 2, memory: 4, disk: 3 };
    client.resize(&id, larger).await.unwrap();
    let resized = once(&client, &id, State::Started).await;
    assert_eq!(size(&resized), (Some(2.0), Some(4.0), Some(3.0)));
    let disk = Resources { disk: 5, ..larger };
    assert_eq!(client.resize(&id, disk).await.unwrap_err().status(), Some(400), "not while it runs");
    client.stop(&id).await.unwrap();
    once(&client, &id, State::Stopped).await;
    client.resize(&id, disk).await.unwrap();
    assert_eq!(size(&once(&client, &id, State::Stopped).await), (Some(2.0), Some(4.0), Some(5.0)));

    let preview = client.preview(&id, 8080).await.unwrap();
    assert!(preview.url.contains("8080") && preview.url.contains(&id), "{preview:?}");
    assert!(!preview.token.is_empty() && !format!("{preview:?}").contains(&preview.token));
}
