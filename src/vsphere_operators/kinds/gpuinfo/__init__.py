"""GPUInfo: which node suits a workload that needs an accelerator for a time."""
