"""One manager with a vCenter of maximum size and 100,000 objects.

    python -m bench.maximum

objects.py    the custom resources, and the control plane that keeps them between runs
manager.py    the manager, with a runnable that records how long the event loop stalls
process.py    the manager as a child process: readiness, metrics, CPU, memory, stalls by phase
observer.py   what a user sees: a watch of the statuses
phases.py     start, rest, churn, edits
report.py     the targets, and whether each is met
plot.py       lines of measured points as SVG
"""
