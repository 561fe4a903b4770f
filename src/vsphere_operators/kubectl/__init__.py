"""`kubectl vsphere`: shows inventory and VmGroups from objects, or from vCenter directly."""
