"""`make demo`: all kinds on a real API server and a simulated vCenter.

environment   starts and stops everything: etcd, kube-apiserver, vcsim, the manager
manager       restarts the manager when it ends, and reports when it does not respond
fixtures      what is in the vCenter and in the cluster, so that every sample gets a status
workloads     Pods on the Nodes, as a kubelet and the controllers would leave them
expected      which status each sample should get
snapshot      reads the objects, Events and log -> tables -> view (live screen, or plain lines)
not_ready     the messages of objects that are not Ready
log           the manager's log in short lines
frame_writer  draws on the terminal without flicker
activity      the script: changes that happen while the demo runs
loads         the loads of hosts and VMs that the script sets
cleanup       folders and processes of demos that were killed
"""
