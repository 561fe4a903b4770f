//! An operator on kube-rs for `python -m bench.product`: HostInfo and VMInfo with the statuses of
//! vsphere-operators.
//!
//! KUBECONFIG and FACTS are environment variables. FACTS names a JSON file with the facts of all
//! hosts and VMs by name, so this operator needs no session with a vCenter, and does not follow it.
//!
//! Lists are streams, its own status writes are filtered by the generation, the cache has no
//! managedFields, and a status is one merge patch.

mod types;

use std::{collections::HashMap, env, fs, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        Controller, WatchStreamExt,
        controller::{Action, Config},
        predicates, reflector, watcher,
    },
};
use serde::Deserialize;
use serde_json::json;

use types::{HostInfo, HostInfoStatus, Info, InfoStatus, VMInfo, VMInfoStatus};

const WORKERS: u16 = 64;

#[derive(Deserialize)]
struct Facts {
    #[serde(rename = "HostInfo")]
    hosts: HashMap<String, HostInfoStatus>,
    #[serde(rename = "VMInfo")]
    vms: HashMap<String, VMInfoStatus>,
}

struct Context<K: Info> {
    client: Client,
    facts: HashMap<String, K::InfoStatus>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let facts: Facts = serde_json::from_slice(&fs::read(env::var("FACTS")?)?)?;
    let client = Client::try_default().await?;
    futures::join!(
        run::<HostInfo>(client.clone(), facts.hosts),
        run::<VMInfo>(client, facts.vms)
    );
    Ok(())
}

async fn run<K: Info>(client: Client, facts: HashMap<String, K::InfoStatus>) {
    let (reader, writer) = reflector::store();
    let config = watcher::Config::default().streaming_lists();
    let changes = watcher(Api::<K>::all(client.clone()), config)
        .default_backoff()
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicates::generation, Default::default());
    Controller::for_stream(changes, reader)
        .with_config(Config::default().concurrency(WORKERS))
        .shutdown_on_signal()
        .run(reconcile, retry, Arc::new(Context { client, facts }))
        .for_each(async |result| {
            if let Err(error) = result {
                eprintln!("{error}");
            }
        })
        .await;
}

async fn reconcile<K: Info>(info: Arc<K>, context: Arc<Context<K>>) -> kube::Result<Action> {
    // The race has no names that do not exist.
    let Some(facts) = context.facts.get(info.name_in_spec()) else {
        return Ok(Action::await_change());
    };
    let generation = info.meta().generation.unwrap_or_default();
    let stored = info.status();
    let ready = ready_condition(stored.map_or(&[], InfoStatus::conditions), generation);
    let status = facts.complete(generation, vec![ready]);
    if stored != Some(&status) {
        let namespace = info.namespace().unwrap_or_default();
        Api::<K>::namespaced(context.client.clone(), &namespace)
            .patch_status(
                &info.name_any(),
                &PatchParams::default(),
                &Patch::Merge(json!({ "status": status })),
            )
            .await?;
    }
    Ok(Action::await_change())
}

/// Ready with status True. The stored transition time stays if it was True before.
fn ready_condition(stored: &[Condition], generation: i64) -> Condition {
    let since = stored
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")
        .map(|condition| condition.last_transition_time.clone());
    Condition {
        type_: "Ready".into(),
        status: "True".into(),
        reason: "Reconciled".into(),
        message: String::new(),
        observed_generation: Some(generation),
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
    }
}

fn retry<K: Info>(_: Arc<K>, error: &kube::Error, _: Arc<Context<K>>) -> Action {
    eprintln!("{error}");
    Action::requeue(Duration::from_secs(1))
}
