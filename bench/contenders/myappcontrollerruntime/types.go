package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MyAppSpec has the fields of examples/myapp.py.
type MyAppSpec struct {
	Image       string            `json:"image"`
	Replicas    *int32            `json:"replicas,omitempty"`
	MaxReplicas *int32            `json:"maxReplicas,omitempty"`
	Port        int32             `json:"port,omitempty"`
	Host        string            `json:"host,omitempty"`
	Config      map[string]string `json:"config,omitempty"`
}

// MyAppStatus has the fields of examples/myapp.py.
type MyAppStatus struct {
	ReadyReplicas      int32              `json:"readyReplicas"`
	Address            string             `json:"address,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// MyApp is an application.
type MyApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MyAppSpec   `json:"spec,omitempty"`
	Status            MyAppStatus `json:"status,omitempty"`
}

// MyAppList is a list of MyApps.
type MyAppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MyApp `json:"items"`
}

// DeepCopyObject implements runtime.Object; usually controller-gen generates it.
func (a *MyApp) DeepCopyObject() runtime.Object {
	out := &MyApp{TypeMeta: a.TypeMeta, Spec: a.Spec, Status: a.Status}
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = nil
	for _, condition := range a.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
	return out
}

// DeepCopyObject implements runtime.Object; usually controller-gen generates it.
func (l *MyAppList) DeepCopyObject() runtime.Object {
	out := &MyAppList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*MyApp))
	}
	return out
}
