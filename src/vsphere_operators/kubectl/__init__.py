"""`kubectl vsphere`: looks around in what the manager wrote, and where asked in vCenter itself."""
