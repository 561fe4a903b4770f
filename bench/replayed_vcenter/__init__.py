"""A vCenter at its maximum size: a server that answers from prepared values.

    python -m bench.replayed_vcenter --hosts 2500 --vms 45000

govmomi's simulator takes minutes to create 10,000 VMs and walks all of them for each change. This
server only serves the values of properties, which the benchmark changes; no method has an effect.

inventory.py    the objects and their values, generated or recorded
values.py       values as XML
collector.py    versions, pages and updates of one property collector
churn.py        new quickStats of everything, and moves of VMs
disks.py        First Class Disks
tags.py         tags over REST
soap.py         the methods that the manager calls
server.py       HTTP, and the control endpoint of the benchmark
process.py      this server as a child process
recording.py    the values of another vCenter, such as the simulator's
"""
