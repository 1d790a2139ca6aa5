//! Variables that travel with each call.

use crate::rig::{Rig, ended, whole};
use farshell_api::run::StartRequest;
use farshell_keeper::Keeper;

/// What docker_forward_env lets through, and in what kind of session.
struct World<'a> {
    rig: &'a Rig,
    keeper: &'a Keeper,
    live: bool,
}

impl World<'_> {
    fn start(&self, command: &str, variables: &[(&str, &str)]) -> StartRequest {
        let live = if self.live { "true" } else { "false" };
        // The directory of a container is not there on this machine.
        let mut all = vec![("TERMINAL_CWD", "/"), ("TERMINAL_PERSISTENT_SHELL", live)];
        all.extend(variables);
        let session = format!("live-{live}");
        StartRequest { session, target: self.rig.target_with("default", &all), ..StartRequest::new(command) }
    }

    async fn says(&self, command: &str, variables: &[(&str, &str)]) -> String {
        let result = self.keeper.run(whole(self.start(command, variables))).await.unwrap();
        assert_eq!((result.exit_code, result.stderr.as_str()), (0, ""), "{command}");
        result.stdout
    }
}

const SHOW: &str = "echo \"${TOKEN-unset} ${FIXED-unset}\"";

#[tokio::test]
async fn forwarded_variables_are_those_of_the_call() {
    let rig = Rig::new();
    rig.config(
        "terminal:\n  backend: docker\n  docker_forward_env: [TOKEN, TOKEN, 'no name', ' EMPTY ']\n  docker_env: {FIXED: one, TOKEN: spare}\n",
    );
    let keeper = rig.open().await;
    for live in [true, false] {
        let world = World { rig: &rig, keeper: &keeper, live };
        std::fs::write(rig.home().join(".env"), "TOKEN=from-file\nOTHER=secret\n").unwrap();
        assert_eq!(world.says(SHOW, &[]).await, "from-file one\n", "{live}");
        assert_eq!(
            world.says(SHOW, &[("TOKEN", "from \'the\' $caller\nof this")]).await,
            "from \'the\' $caller\nof this one\n"
        );
        assert_eq!(world.says(SHOW, &[("TOKEN", "")]).await, " one\n", "an empty value is a value");
        assert_eq!(world.says("printenv OTHER || echo no", &[("OTHER", "x")]).await, "no\n");
        std::fs::write(rig.home().join(".env"), "").unwrap();
        assert_eq!(world.says(SHOW, &[]).await, "spare one\n", "what is fixed is there if nothing else is");
        // What the session does to one lasts, until that changes outside.
        assert_eq!(world.says("export TOKEN=mine; false || true", &[("TOKEN", "a")]).await, "");
        assert_eq!(world.says(SHOW, &[("TOKEN", "a")]).await, "mine one\n");
        assert_eq!(world.says(SHOW, &[("TOKEN", "b")]).await, "b one\n");
        // The status of the command before is still seen.
        let failed = keeper.run(whole(world.start("(exit 7)", &[("TOKEN", "b")]))).await.unwrap();
        assert_eq!(failed.exit_code, 7);
        assert_eq!(world.says("echo $? $TOKEN", &[("TOKEN", "c")]).await, "7 c\n");
        // A background process has what its call brings, and leaves the session alone.
        let start = StartRequest { background: true, ..world.start("printenv TOKEN > \"$OUT\"", &[]) };
        let mut start = start;
        let out = rig.home().join(format!("out-{live}"));
        start.command = format!("printenv TOKEN > {}", out.display()).into();
        start.target = world.start("", &[("TOKEN", "d")]).target;
        let process = keeper.start(start).await.unwrap();
        assert_eq!(ended(&keeper, &process.id).await.exit_code, Some(0));
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "d\n");
        assert_eq!(world.says(SHOW, &[("TOKEN", "c")]).await, "c one\n");
    }
    rig.end(keeper).await;
}

#[tokio::test]
async fn one_that_is_no_longer_named_is_unset_and_the_place_stays() {
    let rig = Rig::new();
    let config = |names: &str, fixed: &str| {
        rig.config(&format!(
            "terminal:\n  backend: docker\n  docker_forward_env: [{names}]\n  docker_env: {{{fixed}}}\n"
        ));
    };
    config("TOKEN", "FIXED: one");
    let keeper = rig.open().await;
    let world = World { rig: &rig, keeper: &keeper, live: true };
    let caller = [("TOKEN", "t0psecret")];
    assert_eq!(world.says(SHOW, &caller).await, "t0psecret one\n");
    let before = keeper.environment("default").await.unwrap();
    config("", "");
    assert_eq!(world.says(SHOW, &caller).await, "unset unset\n");
    config("TOKEN", "FIXED: two");
    assert_eq!(world.says(SHOW, &caller).await, "t0psecret two\n");
    let after = keeper.environment("default").await.unwrap();
    assert_eq!((before.place, before.spec_hash), (after.place, after.spec_hash), "nothing was made anew");
    // A shell that dies with the command that brought a change has not kept it.
    let start = world.start("kill -9 $$", &[("TOKEN", "changed")]);
    assert_eq!(keeper.run(whole(start)).await.unwrap().signal, Some(9));
    assert_eq!(world.says(SHOW, &[("TOKEN", "changed")]).await, "changed two\n");
    // A command that changes nothing is as quick as ever, and still sees it.
    assert_eq!(world.says("true", &[("TOKEN", "changed")]).await, "");
    keeper.close(false).await.unwrap();
    // Values are nowhere on the disk.
    for file in std::fs::read_dir(rig.home().join("farshell")).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            let bytes = std::fs::read(file.path()).unwrap();
            assert!(!bytes.windows(9).any(|w| w == b"t0psecret"), "{:?}", file.path());
        }
    }
    let keeper = rig.open().await;
    let world = World { rig: &rig, keeper: &keeper, live: true };
    assert_eq!(world.says(SHOW, &[]).await, "unset two\n", "also what another server had brought");
    rig.end(keeper).await;
}
