//! Any sequence of requests does what a few lines of plain Rust say it does.

use crate::common::*;
use farshell_store::{Insert, Keep, Kind, Pruned, Store};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
enum Request {
    Append,
    Insert(u8),
    Complete(u8),
    Watch(u8, u64, usize),
    Forget(u8),
    Prune(u64, u64),
    Ack(u8, u64),
    Put(u8),
    Remove(u8),
    Reopen,
    Crash,
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::Append),
        (0..6_u8).prop_map(Request::Insert),
        (0..6_u8).prop_map(Request::Complete),
        (0..6_u8, 0..5_u64, 0..3_usize).prop_map(|(id, offset, events)| Request::Watch(id, offset, events)),
        (0..6_u8).prop_map(Request::Forget),
        (0..4_u64, 0..12_u64).prop_map(|(processes, events)| Request::Prune(processes, events)),
        (0..3_u8, 0..30_u64).prop_map(|(name, seq)| Request::Ack(name, seq)),
        (0..4_u8).prop_map(Request::Put),
        (0..4_u8).prop_map(Request::Remove),
        Just(Request::Reopen),
        Just(Request::Crash),
    ]
}

#[derive(Debug, Default)]
struct Model {
    last: u64,
    /// Number, and the process whose completion it is.
    events: Vec<(u64, Option<String>)>,
    /// In order of insertion: id, offset, number of the completion.
    processes: Vec<(String, u64, Option<u64>)>,
    acked: BTreeMap<String, u64>,
    environments: BTreeSet<String>,
}

impl Model {
    fn event(&mut self, completes: Option<&str>) -> u64 {
        self.last += 1;
        self.events.push((self.last, completes.map(str::to_owned)));
        self.last
    }

    fn process(&mut self, id: &str) -> Option<&mut (String, u64, Option<u64>)> {
        self.processes.iter_mut().find(|process| process.0 == id)
    }

    async fn same_as(&self, store: &Store) {
        let list = store.events(0, 1000, None).await.unwrap();
        let events: Vec<_> = list
            .events
            .iter()
            .map(|event| (event.seq, completions(std::slice::from_ref(event)).pop().map(str::to_owned)))
            .collect();
        assert_eq!(events, self.events);
        assert_eq!((list.last, store.last_seq(), *store.watch().borrow()), (self.last, self.last, self.last));
        assert_eq!(list.pruned, self.events.first().map_or(self.last, |event| event.0 - 1));
        let rows = store.processes(None, true).await.unwrap();
        let processes: Vec<_> = rows
            .iter()
            .map(|row| {
                (row.process.id.clone(), row.watch_offset, farshell_store::finished(row.process.state))
            })
            .collect();
        let expected: Vec<_> = self
            .processes
            .iter()
            .map(|(id, offset, completed)| (id.clone(), *offset, completed.is_some()))
            .collect();
        assert_eq!(processes, expected);
        assert_eq!(
            store.unfinished().await.unwrap().len(),
            expected.iter().filter(|process| !process.2).count()
        );
        let keys: BTreeSet<_> = store.environments().await.unwrap().into_iter().map(|row| row.key).collect();
        assert_eq!(keys, self.environments);
        for (name, seq) in &self.acked {
            assert_eq!(store.acked(name).await.unwrap(), *seq);
        }
    }

    async fn carry_out(&mut self, store: &Store, request: Request) {
        match request {
            Request::Append => assert_eq!(store.append(note("x")).await.unwrap(), self.event(None)),
            Request::Insert(id) => {
                let id = id.to_string();
                let known = self.process(&id).is_some();
                let used = self.events.iter().any(|event| event.1.as_ref() == Some(&id));
                match store.insert_process(process(&id, "t"), Some(note("started"))).await {
                    Ok(Insert::Inserted) => {
                        assert!(!known && !used);
                        self.event(None);
                        self.processes.push((id, 0, None));
                    }
                    Ok(Insert::Exists(row)) => assert!(known && row.process.id == id),
                    Err(error) => assert!(!known && used && error.kind == Kind::AlreadyExists),
                }
            }
            Request::Complete(id) => {
                let id = id.to_string();
                let result = store.complete(&id, completion(&id), completed(1)).await;
                match self.process(&id).cloned() {
                    None => assert_eq!(result.unwrap_err().kind, Kind::NotFound),
                    Some((_, _, Some(_))) => assert!(!result.unwrap()),
                    Some((_, _, None)) => {
                        assert!(result.unwrap());
                        let seq = self.event(Some(&id));
                        self.process(&id).unwrap().2 = Some(seq);
                    }
                }
            }
            Request::Watch(id, offset, events) => {
                let id = id.to_string();
                let result = store.set_watch(&id, offset, json!(offset), vec![note("found"); events]).await;
                match self.process(&id) {
                    None => assert_eq!(result.unwrap_err().kind, Kind::NotFound),
                    Some((_, old, _)) if offset < *old => assert!(!result.unwrap()),
                    Some((_, old, _)) => {
                        assert!(result.unwrap());
                        *old = offset;
                        for _ in 0..events {
                            self.event(None);
                        }
                    }
                }
            }
            Request::Forget(id) => {
                let id = id.to_string();
                let result = store.forget(&id).await;
                match self.process(&id) {
                    None => assert!(!result.unwrap()),
                    Some((_, _, None)) => assert_eq!(result.unwrap_err().kind, Kind::Invalid),
                    Some(_) => {
                        assert!(result.unwrap());
                        self.processes.retain(|process| process.0 != id);
                    }
                }
            }
            Request::Prune(processes, events) => {
                let mut completed: Vec<_> = self.processes.iter().filter_map(|process| process.2).collect();
                completed.sort_unstable();
                completed.truncate(completed.len().saturating_sub(processes as usize));
                self.processes.retain(|process| process.2.is_none_or(|seq| !completed.contains(&seq)));
                let surplus = self.events.len().saturating_sub(events as usize);
                self.events.drain(..surplus);
                let expected = Pruned { processes: completed.len() as u64, events: surplus as u64 };
                assert_eq!(store.prune(Keep { processes, events }).await.unwrap(), expected);
            }
            Request::Ack(name, seq) => {
                let name = name.to_string();
                let result = store.ack(&name, seq).await;
                if seq > self.last {
                    assert_eq!(result.unwrap_err().kind, Kind::Invalid);
                } else {
                    let acked = self.acked.entry(name).or_default();
                    *acked = seq.max(*acked);
                    assert_eq!(result.unwrap(), *acked);
                }
            }
            Request::Put(key) => {
                store.put_environment(environment(&key.to_string()), Some(note("made"))).await.unwrap();
                self.environments.insert(key.to_string());
                self.event(None);
            }
            Request::Remove(key) => {
                let removed = store.remove_environment(&key.to_string(), Some(note("gone"))).await.unwrap();
                assert_eq!(removed, self.environments.remove(&key.to_string()));
                if removed {
                    self.event(None);
                }
            }
            Request::Reopen | Request::Crash => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_do_what_they_say(requests in prop::collection::vec(request(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut dir = tempfile::tempdir().unwrap();
            let mut store = open(dir.path()).await;
            let mut model = Model::default();
            for request in requests {
                match request {
                    Request::Reopen => {
                        store.close().await.unwrap();
                        store = open(dir.path()).await;
                    }
                    Request::Crash => {
                        // What a copy of the files holds now is what a killed process would have left.
                        let copy = tempfile::tempdir().unwrap();
                        for name in names(dir.path()) {
                            std::fs::copy(dir.path().join(&name), copy.path().join(&name)).unwrap();
                        }
                        store = open(copy.path()).await;
                        dir = copy;
                    }
                    _ => {}
                }
                model.carry_out(&store, request).await;
                model.same_as(&store).await;
            }
        });
    }
}
