package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// HostInfoSpec names a host.
type HostInfoSpec struct {
	Hostname string `json:"hostname,omitempty"`
}

// HostInfoStatus is the state of the host.
type HostInfoStatus struct {
	TotalCPU        *int64       `json:"totalCPU,omitempty"`
	FreeCPU         *int64       `json:"freeCPU,omitempty"`
	TotalMemoryMB   *int64       `json:"totalMemoryMB,omitempty"`
	FreeMemoryMB    *int64       `json:"freeMemoryMB,omitempty"`
	Vendor          string       `json:"vendor,omitempty"`
	Model           string       `json:"model,omitempty"`
	EsxiVersion     string       `json:"esxiVersion,omitempty"`
	EsxiBuild       string       `json:"esxiBuild,omitempty"`
	ConnectionState string       `json:"connectionState,omitempty"`
	MaintenanceMode *bool        `json:"maintenanceMode,omitempty"`
	BootTime        *metav1.Time `json:"bootTime,omitempty"`
	VMs             *int64       `json:"vms,omitempty"`
	Cluster         string       `json:"cluster,omitempty"`
	Datacenter      string       `json:"datacenter,omitempty"`
	InventoryPath   string       `json:"inventoryPath,omitempty"`
	VCenter         string       `json:"vcenter,omitempty"`

	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// HostInfo is the capacity of one ESXi host.
type HostInfo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              HostInfoSpec   `json:"spec,omitempty"`
	Status            HostInfoStatus `json:"status,omitempty"`
}

// HostInfoList is a list of HostInfos.
type HostInfoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HostInfo `json:"items"`
}

// VMInfoSpec names a VM.
type VMInfoSpec struct {
	Nodename string `json:"nodename,omitempty"`
}

// VMInfoStatus is the state of the VM.
type VMInfoStatus struct {
	GuestID            string   `json:"guestId,omitempty"`
	TotalCPU           *int64   `json:"totalCPU,omitempty"`
	ResvdCPU           *int64   `json:"resvdCPU,omitempty"`
	TotalMem           *int64   `json:"totalMem,omitempty"`
	ResvdMem           *int64   `json:"resvdMem,omitempty"`
	PowerState         string   `json:"powerState,omitempty"`
	HwVersion          string   `json:"hwVersion,omitempty"`
	IPAddress          string   `json:"ipAddress,omitempty"`
	PathToVM           string   `json:"pathToVM,omitempty"`
	Host               string   `json:"host,omitempty"`
	ConnectionState    string   `json:"connectionState,omitempty"`
	ToolsRunningStatus string   `json:"toolsRunningStatus,omitempty"`
	ToolsVersionStatus string   `json:"toolsVersionStatus,omitempty"`
	IPAddresses        []string `json:"ipAddresses,omitempty"`
	Datastores         []string `json:"datastores,omitempty"`
	BiosUUID           string   `json:"biosUUID,omitempty"`
	InstanceUUID       string   `json:"instanceUUID,omitempty"`
	Template           *bool    `json:"template,omitempty"`
	Cluster            string   `json:"cluster,omitempty"`
	Datacenter         string   `json:"datacenter,omitempty"`
	InventoryPath      string   `json:"inventoryPath,omitempty"`
	VCenter            string   `json:"vcenter,omitempty"`

	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// VMInfo is the configuration and state of one virtual machine.
type VMInfo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VMInfoSpec   `json:"spec,omitempty"`
	Status            VMInfoStatus `json:"status,omitempty"`
}

// VMInfoList is a list of VMInfos.
type VMInfoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VMInfo `json:"items"`
}

// The following methods are what controller-gen generates, except that they share what a reconcile
// never changes in place: it replaces a whole status.

// DeepCopyObject implements runtime.Object.
func (h *HostInfo) DeepCopyObject() runtime.Object {
	out := *h
	h.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), h.Status.Conditions...)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *HostInfoList) DeepCopyObject() runtime.Object {
	out := &HostInfoList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*HostInfo))
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (v *VMInfo) DeepCopyObject() runtime.Object {
	out := *v
	v.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), v.Status.Conditions...)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *VMInfoList) DeepCopyObject() runtime.Object {
	out := &VMInfoList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*VMInfo))
	}
	return out
}
