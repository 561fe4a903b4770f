"""A controller runtime for Kubernetes operators in Python. This page follows one event.

1. A user patches the spec of a HostInfo. The API server stores it and sends a line to our watch.

    user -> API server -> transport -> client -> responses -> reflector -> cache

   The `reflector` lists a kind once and then watches it. Its requests go through the `client`,
   which offers verbs such as get, list and watch, and through the `transport`, the only module
   that speaks HTTP to the API server. `kubeconfig` and `api_credentials` provide the address and
   the credentials. `responses` decodes the line into an object of the class that `kind` has
   declared. The `cache` stores the object if it is newer than the stored one.

2. The cache emits a Signal. A `source` turns it into a key on the queue.

    cache -> source -> workqueue

   A source enqueues the object itself, the objects that depend on it (by an index), the owner, or
   all objects (a timer). Changes outside Kubernetes arrive at the same place through a `Stream`.
   The `workqueue` holds each key once, gives it to one worker at a time, and lets a user's
   edit overtake a backlog. Only the key is queued, never the event, and a change that a
   `predicate` leaves out queues nothing.

3. A worker of the `engine` takes the key. The `object_reconciler` reads the object from the cache
   and calls `reconcile` with a copy.

    workqueue -> engine -> object_reconciler -> controller.reconcile(obj)

   The `controller` is what you write; `declaration` checks it when it is added to the manager.
   `running_calls` cancels a call at its timeout, and `threads` runs those that block. A reconcile
   reads from memory, acts, and sets `obj.status`, with its own conditions (`condition`). The
   objects that belong to its object are its `children`: the `child_applier` sends those that differ
   from what is stored (`comparison`, `last_applied`), deletes those that are no longer wanted
   (`ownership`), and reports whether they are ready (`readiness`).

4. `consequence` decides what each way to end a reconcile means, and the engine carries it out.

    object_reconciler -> consequence -> status -> client -> transport -> API server
                                               -> recorder
                                     -> engine -> workqueue (again later?), metrics, log

   Done or Waiting (`outcome`), Retry, Terminal, NotSynced or any other exception (`errors`): each
   has its condition, its delay, its metric (`metrics`), its log line (`log`) and perhaps an Event
   (`recorder`). `status` sends one patch with the fields that changed, or none. The response enters
   the cache, so the next read sees it, and the watch event of our own write triggers
   nothing (`own_writes`).

Around it: the `manager` starts and stops everything in one process. `leader` makes sure that only
one of several managers acts: the transport checks the lease before each write. `server` has
/metrics, /healthz and /readyz. `webhook` answers the API server before an object is stored:
defaults, validation, conversion. `schema` and `crd` turn the classes into CRDs, `rbac` turns the
declarations of controllers (`permission`) into roles, and `builder` writes both as files. `command`
is the main function of a manager, with the flags of controller-runtime. `testing` runs a real API
server or a fake. Other modules serve these: `authorization`, `builtin` (kinds of Kubernetes),
`decoding`, `definition`, `exec_plugin`, `flags`, `kubeconfig_file`, `kubeconfig_yaml`, `listen`,
`markers`, `nulls`, `overlay`, `patch`, `plural`, `quantity`, `reader` and `api_requests` (of the
client), `selection` and `selectors` (`select`), `series`, `tls`, `watch_health`, `x509` and
`yaml_text`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .builtin import (
    ConfigMap,
    Namespace,
    Node,
    PersistentVolume,
    Pod,
    PodMetadata,
    Secret,
    new_owner_reference,
)
from .cache import Cache, Signal
from .children import Children, ChildState
from .client import Client
from .condition import Condition, find_condition
from .controller import Controller, controller
from .errors import (
    AlreadyExists,
    ApiError,
    ApplyConflict,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    KubewrightError,
    NotFound,
    NotSynced,
    Rejected,
    RestartRequired,
    Retry,
    Terminal,
)
from .kind import Key, Object, ObjectMeta, OwnerReference, Resource, Spec, Status, kind, version_of
from .kubeconfig import load_config
from .manager import Manager, Options, Runnable
from .markers import (
    Column,
    Doc,
    EmbeddedResource,
    EmptyObject,
    Format,
    Int32,
    Int64,
    IntOrString,
    ListType,
    MapType,
    OneOf,
    PreserveUnknownFields,
    Quantity,
    Scale,
    SchemaOverride,
    ValidationRule,
)
from .outcome import Done, Waiting
from .predicate import (
    all_of,
    annotations_changed,
    any_change,
    any_of,
    created_or_deleted,
    field_changed,
    generation_changed,
    labels_changed,
    not_,
)
from .readiness import Readiness, readiness_of
from .recorder import EventRecorder
from .selection import select
from .source import Stream
from .workqueue import Backoff, RateLimit

if TYPE_CHECKING:
    from .webhook import Admission, Conversion, Webhook

__all__ = [
    "Admission",
    "AlreadyExists",
    "ApiError",
    "ApplyConflict",
    "Backoff",
    "Cache",
    "ChildState",
    "Children",
    "Client",
    "Column",
    "Condition",
    "ConfigError",
    "ConfigMap",
    "Conflict",
    "Controller",
    "Conversion",
    "Doc",
    "Done",
    "EmbeddedResource",
    "EmptyObject",
    "EventRecorder",
    "Forbidden",
    "Format",
    "Int32",
    "Int64",
    "IntOrString",
    "Invalid",
    "Key",
    "KubewrightError",
    "ListType",
    "Manager",
    "MapType",
    "Namespace",
    "Node",
    "NotFound",
    "NotSynced",
    "Object",
    "ObjectMeta",
    "OneOf",
    "Options",
    "OwnerReference",
    "PersistentVolume",
    "Pod",
    "PodMetadata",
    "PreserveUnknownFields",
    "Quantity",
    "RateLimit",
    "Readiness",
    "Rejected",
    "Resource",
    "RestartRequired",
    "Retry",
    "Runnable",
    "Scale",
    "SchemaOverride",
    "Secret",
    "Signal",
    "Spec",
    "Status",
    "Stream",
    "Terminal",
    "ValidationRule",
    "Waiting",
    "Webhook",
    "all_of",
    "annotations_changed",
    "any_change",
    "any_of",
    "controller",
    "created_or_deleted",
    "field_changed",
    "find_condition",
    "generation_changed",
    "kind",
    "labels_changed",
    "load_config",
    "new_owner_reference",
    "not_",
    "readiness_of",
    "select",
    "version_of",
]

_WEBHOOK_NAMES = ("Admission", "Conversion", "Webhook")


def __getattr__(name: str) -> Any:
    # Imported when it is used (PEP 562): most managers have no webhook.
    if name not in _WEBHOOK_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".webhook", __name__), name)
