"""Generated histories of several VmGroups; see events.py for what happens in them.

The manager is real from the engine down to the calls: controller, observation, plan, executor,
memory, quota, inventory and cache. Faked are the transports: an API server in memory (api.py), and
vCenters (appliance.py) behind calls that are performed and answered when the history decides
(wire.py). The invariants (invariants.py) are checked against the vCenters, not the manager's view.
"""
