"""Answering the API server in the middle of somebody's request: defaults, checks, and conversion between versions.

API server -TLS-> endpoint -> admission (default, validate) or conversion -> your `Webhook` or `Conversion`

declaration     what a user writes: `Webhook[Kind]`, `Conversion[Old, Hub]`, and `Admission`, what is known of the request
admission       an AdmissionReview in, an AdmissionReview out; no HTTP
conversion      the same for ConversionReviews; nothing is lost on the way there and back
configuration   the objects that tell the API server when to ask whom; pure
endpoint        HTTP and TLS, with limits for everything; `gauge` counts
authority       a CA of our own as a value, and its next step; pure
rotation        keeps that CA in a Secret, and its certificate in every caBundle
"""

from __future__ import annotations

from .configuration import (
    WebhookClientConfig,
    build_configurations,
    build_service,
    with_conversions,
)
from .types import Admission, Conversion, Webhook

__all__ = [
    "Admission",
    "Conversion",
    "Webhook",
    "WebhookClientConfig",
    "build_configurations",
    "build_service",
    "with_conversions",
]
