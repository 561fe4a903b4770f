"""Admission and conversion webhooks: defaults, validation, and conversion between versions.

API server -TLS-> server -> admission (default, validate) or conversion -> `Webhook`, `Conversion`

types           what an operator writes: `Webhook[Kind]`, `Conversion[Spoke, Hub]`, `Admission`
admission       AdmissionReviews, without HTTP
conversion      ConversionReviews; fields that one version lacks survive a round trip
configuration   the objects that register the webhooks with the API server
server          HTTPS with limits, and the metrics
runner          all of it as a part of the manager
ca              the webhooks' CA as a value; decides the next step of its rotation
cert_rotation   takes that step: stores the CA in a Secret and writes it into every caBundle
ca_bundle       the objects that hold a caBundle
options         port, certificate, names and timings
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .configuration import WebhookClientConfig, build_configurations, with_conversions
    from .types import Admission, Conversion, Webhook

__all__ = [
    "Admission",
    "Conversion",
    "Webhook",
    "WebhookClientConfig",
    "build_configurations",
    "with_conversions",
]

_TYPES = ("Admission", "Conversion", "Webhook")


def __getattr__(name: str) -> Any:
    # Imported when it is used (PEP 562): most managers have no webhook.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(".types" if name in _TYPES else ".configuration", __name__)
    return getattr(module, name)
