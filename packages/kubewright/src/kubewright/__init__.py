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
   edit overtake a backlog. Only the key is queued, never the event.

3. A worker of the `engine` takes the key, reads the object from the cache and calls `reconcile`.

    workqueue -> engine -> controller.reconcile(obj)

   The `controller` is what you write. It reads from memory, acts, and sets `obj.status`.

4. One place in the engine decides what each way to end a reconcile means.

    engine -> status -> client -> transport -> API server
           -> workqueue (again later?), metrics, recorder, log

   Done, Waiting, Retry, Terminal, NotSynced or any other exception: each has its condition, its
   delay, its metric (`metrics`), its log line (`log`) and perhaps an Event (`recorder`). `status`
   sends one patch with the fields that changed, or none. The response enters the cache, so the next
   read sees it, and the watch event of our own write wakes nothing.

Around it: the `manager` starts and stops everything in one process. `leader` makes sure that only
one of several managers acts: the transport checks the lease before each write. `server` has
/metrics, /healthz and /readyz. `webhook` answers the API server before an object is stored:
defaults, validation, conversion. `schema` and `crd` turn the classes into CRDs, `rbac` turns the
declarations of controllers into roles, and `builder` writes both as files. `command` is the main
function of a manager, with the flags of controller-runtime. `testing` runs a real API server or a
fake. Other modules serve these: `authorization`, `builtin` (kinds of Kubernetes), `exec_plugin`,
`flags`, `kubeconfig_file`, `listen`, `overlay`, `patch`, `plural`, `series`, `tls`, `x509`
and `yaml_text`.
"""

from __future__ import annotations

from .cache import Cache, Signal
from .client import Client
from .controller import Controller, Done, Waiting, controller
from .errors import KubewrightError, NotSynced, Rejected, Retry, Terminal
from .kind import (
    Condition,
    Key,
    Object,
    ObjectMeta,
    OwnerReference,
    Resource,
    Spec,
    Status,
    kind,
    version_of,
)
from .manager import Manager, Options
from .schema import (
    Column,
    Doc,
    EmbeddedResource,
    Int32,
    Int64,
    IntOrString,
    ListType,
    PreserveUnknownFields,
    Scale,
    SchemaOverride,
    ValidationRule,
)
from .source import Stream, any_change, created_or_deleted, generation_changed
from .webhook import Admission, Conversion, Webhook

__all__ = [
    "Admission",
    "Cache",
    "Client",
    "Column",
    "Condition",
    "Controller",
    "Conversion",
    "Doc",
    "Done",
    "EmbeddedResource",
    "Int32",
    "Int64",
    "IntOrString",
    "Key",
    "KubewrightError",
    "ListType",
    "Manager",
    "NotSynced",
    "Object",
    "ObjectMeta",
    "Options",
    "OwnerReference",
    "PreserveUnknownFields",
    "Rejected",
    "Resource",
    "Retry",
    "Scale",
    "SchemaOverride",
    "Signal",
    "Spec",
    "Status",
    "Stream",
    "Terminal",
    "ValidationRule",
    "Waiting",
    "Webhook",
    "any_change",
    "controller",
    "created_or_deleted",
    "generation_changed",
    "kind",
    "version_of",
]
