"""A small controller runtime for Kubernetes operators: what one change does, from the API server to the status.

    API server -watch-> reflector -> cache -> source -> workqueue (a key) -> engine -> reconcile(obj) -> one status patch
    outside world ----------------> stream ---^

- `client` asks the API server, always; `transport` under it is the only one that speaks HTTP, with `kubeconfig` and `auth` to say
  where and who.
- A `reflector` lists a `kind`, then watches it, for ever, and puts what it hears into the `cache`, which answers from memory, always.
- A `source` turns a change into keys: of the object itself, of the objects that depend on it (by index), or of all (a timer).
- The `workqueue` holds each key once, hands it to one worker at a time, and lets a person's edit overtake the backlog.
- The `engine` takes a key, reads the object from the cache and calls the `reconcile` of your `controller`. How that ends, the
  `outcome`, decides queue, condition, event (`recorder`), metric (`metrics`) and log line (`log`) in one switch.
- `status` writes what changed, once, or nothing. The answer enters the cache, so the next read sees it and its echo wakes nobody.
- The `manager` runs it all in one process; `leader` makes sure that only one of several acts; `server` has /metrics, /healthz, /readyz.
- `webhook` answers the API server in the middle of somebody's request, before anything of this: defaults, checks, conversion.
- `schema` and `crd` turn the same classes into CRDs, `rbac` turns what controllers declare into roles, `builder` writes them as files.
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
