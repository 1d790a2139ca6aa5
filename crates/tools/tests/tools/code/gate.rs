//! Scripts and what they call before the gate.

use super::fields;
use crate::rig::{PATIENCE, Rig};
use farshell_api::approval::{Answer, AnswerRequest, ApprovalQuery, Subject};
use farshell_api::audit::{AuditQuery, Step};
use serde_json::json;

#[tokio::test]
async fn what_a_script_calls_is_judged_by_itself() {
    let rig = Rig::with("approvals:\n  mode: unattended\n").await;
    let code = r#"
from farshell_tools import terminal, write_file
words = ["git", "push", "--force"]
for result in (terminal(" ".join(words)), write_file("/".join(["", "etc", "passwd"]), "x")):
    print(result["error_kind"], result["status"])
print(terminal("echo fine")["output"])
"#;
    let result = rig.code(code).await;
    assert_eq!(
        fields(&result, ["output", "status"]),
        [json!("denied blocked\npermission_denied blocked\nfine"), json!("success")],
        "{result}"
    );
    let lines = rig.keeper.audit(AuditQuery::default()).await.unwrap().lines;
    let id = result["session_id"].as_str().unwrap();
    let own: Vec<_> = lines.iter().filter(|line| line.process_id.as_deref() == Some(id)).collect();
    assert_eq!(
        own.iter().map(|line| (line.step, line.kind)).collect::<Vec<_>>(),
        [(Step::Decided, Some(Subject::Code)), (Step::Ended, Some(Subject::Code))]
    );
    assert_eq!(own[0].command.as_deref(), Some(code));
    assert_eq!(own[1].outcome.as_ref().unwrap().exit_code, Some(0));
    let denied = lines.iter().filter(|line| line.decision.as_deref() == Some("deny")).count();
    assert_eq!(denied, 1);
    assert!(lines.iter().any(|line| line.command.as_deref() == Some("git push --force")));
    rig.end().await;
}

#[tokio::test]
async fn a_script_that_can_not_be_understood_is_denied_when_nobody_is_there() {
    let rig = Rig::with("approvals:\n  mode: unattended\n").await;
    let risky = "import subprocess\nsubprocess.run(['touch', 'ran'])";
    let answer = rig.call("execute_code", json!({ "code": risky })).await;
    assert!(answer.failed);
    assert_eq!(
        fields(&answer.result, ["status", "error_kind", "exit_code", "tool_calls_made"]),
        [json!("blocked"), json!("denied"), json!(-1), json!(0)]
    );
    assert!(answer.result["error"].as_str().unwrap().contains("[interpreter-code]"), "{}", answer.result);
    assert!(!rig.at("ran").exists());
    std::fs::write(
        rig.hermes().join("config.yaml"),
        "approvals:\n  mode: unattended\ncommand_allowlist: ['rule:interpreter-code']\n",
    )
    .unwrap();
    assert_eq!(rig.code(risky).await["status"], "success");
    assert!(rig.at("ran").exists());
    rig.end().await;
}

#[tokio::test]
async fn the_deny_list_is_about_the_text_of_a_script_too() {
    let rig = Rig::with("approvals:\n  mode: auto\n  deny: ['git push']\n").await;
    let error = rig
        .refused("execute_code", json!({"code": "from farshell_tools import terminal\nterminal('git push')"}))
        .await;
    assert!(error.contains("the deny list has `git push`"), "{error}");
    let code = "from farshell_tools import terminal\nprint(terminal('git ' + 'push')['error_kind'])";
    assert_eq!(rig.code(code).await["output"], "denied");
    rig.end().await;
}

#[tokio::test]
async fn a_person_is_asked_about_a_script_once_for_a_session() {
    let rig = Rig::with("approvals:\n  mode: smart\n").await;
    let code = "import subprocess\nsubprocess.run(['echo', 'asked'])";
    let answering = async {
        let query = ApprovalQuery { after: None, wait: Some(PATIENCE.as_secs_f64()) };
        let list = rig.keeper.approvals(query).await.unwrap().approvals;
        assert_eq!((list.len(), list[0].subject, list[0].command.as_str()), (1, Subject::Code, code));
        assert!(list[0].process_id.as_deref().unwrap().starts_with("code_") && !list[0].may_always);
        rig.keeper
            .answer(&list[0].id, AnswerRequest { answer: Answer::Session, reason: None })
            .await
            .unwrap();
    };
    let (result, ()) = tokio::join!(rig.code(code), answering);
    assert_eq!(result["output"], "asked");
    assert_eq!(rig.code(code).await["output"], "asked", "and not once more");
    assert_eq!(rig.code("print('plain')").await["output"], "plain", "what can be understood runs");
    rig.end().await;
}
