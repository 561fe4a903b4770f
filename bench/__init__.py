"""Compares the runtime with a bare loop (the limit) and kopf (the peer), by turns in one run.

__main__       the command: flags, the order of turns, exit code
cluster        the control plane, and N new objects in a namespace
contender      the contenders, and one turn of one of them
run            a process with new objects: start it, watch the objects, measure
restart        a second start with objects that are done, and the idle process
process_stats  CPU and memory of a process, from outside
same_writes    proof that the bare loop sends what the runtime sends
report         medians, table, targets, JSON
sample         the kind that all contenders reconcile
contenders/    the programs
"""
