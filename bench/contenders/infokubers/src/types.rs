//! The two kinds, and what they have in common.

use std::fmt::Debug;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{CustomResource, Resource};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub trait Info:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    type InfoStatus: InfoStatus;
    fn name_in_spec(&self) -> &str;
    fn status(&self) -> Option<&Self::InfoStatus>;
}

pub trait InfoStatus: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    fn conditions(&self) -> &[Condition];
    /// These facts with the conditions of an object.
    fn complete(&self, generation: i64, conditions: Vec<Condition>) -> Self;
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "topology.corinternal.com",
    version = "v1",
    kind = "HostInfo",
    plural = "hostinfoes",
    namespaced,
    status = "HostInfoStatus",
    schema = "disabled"
)]
#[serde(default)]
#[derive(Default)]
pub struct HostInfoSpec {
    pub hostname: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostInfoStatus {
    #[serde(rename = "totalCPU", skip_serializing_if = "Option::is_none")]
    pub total_cpu: Option<i64>,
    #[serde(rename = "freeCPU", skip_serializing_if = "Option::is_none")]
    pub free_cpu: Option<i64>,
    #[serde(rename = "totalMemoryMB", skip_serializing_if = "Option::is_none")]
    pub total_memory_mb: Option<i64>,
    #[serde(rename = "freeMemoryMB", skip_serializing_if = "Option::is_none")]
    pub free_memory_mb: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub esxi_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub esxi_build: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_mode: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcenter: Option<String>,
    pub observed_generation: i64,
    pub conditions: Vec<Condition>,
}

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "topology.corinternal.com",
    version = "v1",
    kind = "VMInfo",
    plural = "vminfoes",
    namespaced,
    status = "VMInfoStatus",
    schema = "disabled"
)]
#[serde(default)]
#[derive(Default)]
pub struct VMInfoSpec {
    pub nodename: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VMInfoStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_id: Option<String>,
    #[serde(rename = "totalCPU", skip_serializing_if = "Option::is_none")]
    pub total_cpu: Option<i64>,
    #[serde(rename = "resvdCPU", skip_serializing_if = "Option::is_none")]
    pub resvd_cpu: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_mem: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resvd_mem: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hw_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_address: Option<String>,
    #[serde(rename = "pathToVM", skip_serializing_if = "Option::is_none")]
    pub path_to_vm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_running_status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_version_status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datastores: Option<Vec<String>>,
    #[serde(rename = "biosUUID", skip_serializing_if = "Option::is_none")]
    pub bios_uuid: Option<String>,
    #[serde(rename = "instanceUUID", skip_serializing_if = "Option::is_none")]
    pub instance_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcenter: Option<String>,
    pub observed_generation: i64,
    pub conditions: Vec<Condition>,
}

macro_rules! impl_info {
    ($kind:ty, $status:ty, $name:ident) => {
        impl Info for $kind {
            type InfoStatus = $status;
            fn name_in_spec(&self) -> &str {
                &self.spec.$name
            }
            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }
        }

        impl InfoStatus for $status {
            fn conditions(&self) -> &[Condition] {
                &self.conditions
            }
            fn complete(&self, observed_generation: i64, conditions: Vec<Condition>) -> Self {
                Self { observed_generation, conditions, ..self.clone() }
            }
        }
    };
}

impl_info!(HostInfo, HostInfoStatus, hostname);
impl_info!(VMInfo, VMInfoStatus, nodename);
