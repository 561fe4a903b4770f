"""GPUInfo: the best Kubernetes node for a long-running job, with or without a GPU."""

from .types import GPUInfo, Reason

__all__ = ["GPUInfo", "Reason"]
