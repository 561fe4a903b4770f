"""Labels and a condition on Nodes for the host that runs them (-label-nodes).

GPUInfo has labels of its own on the Nodes that it selects (-label-suitable-nodes).
"""
