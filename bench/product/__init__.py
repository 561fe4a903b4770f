"""Races the manager of vsphere-operators against other operators that write the same statuses.

__main__      the command: flags, the order of turns, JSON
environment   API server, simulated vCenter, facts of all hosts and VMs, and the contenders' setup
contenders    the programs, and what each of them does and does not do
equal_work    proof that all contenders store the same statuses
cold_start    a start with N objects that have no status
restart       a second start with objects that are done
fan_out       one host changes, and N objects name it
edits         from an edit of an object to its status
vmgroups, gpuinfos   a start with other kinds, of the manager alone
turns         the figures of one turn, and the summary of many
charts        one scenario as SVG
pages         tables in Markdown and pictures, drawn from the recorded summary
"""
