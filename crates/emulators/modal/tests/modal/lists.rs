//! Lists, tags and names.

use crate::rig::{Emulator, Modal};
use farshell_modal_proto::client::*;
use tonic::Code;

fn tag(name: &str, value: &str) -> SandboxTag {
    SandboxTag { tag_name: name.into(), tag_value: value.into() }
}

async fn ids(modal: &Modal, wish: SandboxListRequest) -> Vec<String> {
    let list = modal.client.clone().sandbox_list_v2(modal.ask(wish)).await.unwrap().into_inner();
    list.sandboxes.into_iter().map(|one| one.id).collect()
}

#[tokio::test]
async fn pages_tags_and_those_that_are_over() {
    let Some(emulator) = Emulator::start(&["--page", "2"]) else { return };
    let modal = emulator.client().await;
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(modal.sandbox().await);
    }
    modal.first_kind(modal.definition(&[])).await;
    // The newest first, until a page is empty.
    let (mut found, mut before_timestamp) = (Vec::new(), 0.0);
    loop {
        let wish = SandboxListRequest { before_timestamp, app_id: modal.app.clone(), ..Default::default() };
        let page =
            modal.client.clone().sandbox_list_v2(modal.ask(wish)).await.unwrap().into_inner().sandboxes;
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        before_timestamp = last.created_at;
        found.extend(page.into_iter().map(|one| one.id));
    }
    let expected: Vec<String> = all.iter().rev().map(|one| one.id.clone()).collect();
    assert_eq!(found, expected);

    let set = |number: usize, tags: Vec<SandboxTag>| {
        modal.ask(SandboxTagsSetRequest { sandbox_id: all[number].id.clone(), tags, ..Default::default() })
    };
    let mut client = modal.client.clone();
    client.sandbox_tags_set_v2(set(0, vec![tag("a", "1"), tag("b", "1")])).await.unwrap();
    client.sandbox_tags_set_v2(set(1, vec![tag("a", "1"), tag("b", "2")])).await.unwrap();
    client.sandbox_tags_set_v2(set(2, vec![tag("a", "1")])).await.unwrap();
    client.sandbox_tags_set_v2(set(2, vec![tag("c", "1")])).await.unwrap();
    let tagged = |tags| SandboxListRequest { tags, ..Default::default() };
    assert_eq!(ids(&modal, tagged(vec![tag("a", "1")])).await, [all[1].id.clone(), all[0].id.clone()]);
    assert_eq!(ids(&modal, tagged(vec![tag("a", "1"), tag("b", "1")])).await, [all[0].id.clone()]);
    let wish = SandboxTagsGetRequest { sandbox_id: all[2].id.clone() };
    assert_eq!(client.sandbox_tags_get_v2(modal.ask(wish)).await.unwrap().into_inner().tags, [tag("c", "1")]);

    modal.terminate(&all[0].id).await;
    all[0].result().await;
    assert_eq!(ids(&modal, tagged(vec![tag("b", "1")])).await, [""; 0]);
    let wish = SandboxListRequest { include_finished: true, ..tagged(vec![tag("b", "1")]) };
    let list = client.sandbox_list_v2(modal.ask(wish)).await.unwrap().into_inner().sandboxes;
    let info = list[0].task_info.clone().unwrap();
    assert_eq!(info.result.unwrap().status(), generic_result::GenericStatus::Terminated);
    assert!(info.finished_at >= info.started_at && info.started_at >= list[0].created_at);
    let other = SandboxListRequest { app_id: "ap-other".into(), ..Default::default() };
    assert_eq!(ids(&modal, other).await, [""; 0]);
}

#[tokio::test]
async fn a_name_is_one_sandbox_at_a_time() {
    let Some(emulator) = Emulator::start(&[]) else { return };
    let modal = emulator.client().await;
    let named = || Sandbox { name: Some("only".into()), ..modal.definition(&[]) };
    let first = modal.create(named()).await;
    assert_eq!(modal.try_create(named()).await.unwrap_err().code(), Code::AlreadyExists);
    let find = async |include_terminated| {
        let wish = SandboxGetFromNameRequest {
            sandbox_name: "only".into(),
            app_name: "test".into(),
            include_terminated,
            ..Default::default()
        };
        let found = modal.client.clone().sandbox_get_from_name_v2(modal.ask(wish)).await;
        found.map(|found| found.into_inner().sandbox_id).map_err(|status| status.code())
    };
    assert_eq!(find(false).await, Ok(first.id.clone()));
    modal.terminate(&first.id).await;
    first.result().await;
    assert_eq!(find(false).await, Err(Code::NotFound));
    assert_eq!(find(true).await, Ok(first.id));
    let second = modal.create(named()).await;
    assert_eq!(find(false).await, Ok(second.id));
}
