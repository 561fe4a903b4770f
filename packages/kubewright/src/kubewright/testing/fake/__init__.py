"""An API server in memory that replaces the transport, for fast tests of controllers.

    api = FakeApi(kinds=[Widget])     # validates Widgets as the API server does by their CRD
    client = Client(api)

One request goes through these modules:

    api             `FakeApi`: the transport, faults, and the way to a handler
    resource_path   the path of the request as its parts
    served_kind     what is known about the kind: from Kubernetes itself, a CRD, or nothing
    reading         get and list; `watching` the watch, `selectors` both selectors
    subresources    scale, and those that only accept a POST, such as binding
    object_writer   create, update, patch and apply; `deletion` deletes
      json_patch    JSON patches (RFC 6902)
      object_meta   names, namespaces and the other rules of metadata
      completion    unknown fields go, and defaults are set
      builtin_rules what the API server itself sets in objects of some built-in kinds
      managed_fields, structured_merge, field_set
                    server-side apply: the owners of fields, conflicts, and how lists merge
      schema_check, schema_node, validation, formats
                    what the CRD requires, with the causes of the API server
      cel_rules, cel_functions, cel_types, cel_values
                    the CEL rules of a CRD (`x-kubernetes-validations`)
    object_store    objects, resourceVersions, history and watches
    failure         error responses as the API server writes them

`docs/designs/testing.md` has the table of what it does and what it does not. Its tests compare its
responses with those of the real API server.
"""

from __future__ import annotations

from .api import FakeApi

__all__ = ["FakeApi"]
