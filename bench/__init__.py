"""How fast, how cheap and how small the runtime is, beside a bare loop (the limit) and kopf (the peer), in one run and by turns.

__main__    the command: flags, the course of a run, exit code
arena       the control plane, and N fresh objects in a namespace
turn        one contender's turn on them: started, watched, weighed
settled     the second start over objects that are done, and the process at rest
gauge       CPU and memory of a process from outside
report      medians, table, promises, JSON
sample      the kind that all of them work on
contenders/ the three programs
"""
