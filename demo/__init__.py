"""`make demo`: all kinds at work on a real API server and a simulated vCenter.

stage       starts and ends everything: etcd, kube-apiserver, vcsim, the manager under its service account
scene       what is in the vCenter and in the cluster, so that every sample has an answer
expected    which answer each sample should get
snapshot    what the API server says now -> tables -> view (a live terminal, or plain lines)
notes       what is not Ready, and what to do about it
log         the manager's log, for people
canvas      draws on the terminal without flicker
play        what happens while somebody watches
leftovers   folders and processes of demos that were killed
parent      a make that is killed takes its demo with it
"""
