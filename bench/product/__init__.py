"""Races the manager of vsphere-operators against other operators that write the same statuses.

__main__      the command: flags, the order of turns, JSON
environment   API server, simulated vCenter, and the environment variables of the contenders
contenders    the programs, and what each of them can do
equal_work    checks that all contenders store the same statuses
cold_start    a start with N objects that have no status
restart       a second start with objects that have their status
fan_out       one host changes, and N objects name it
edits         the time from an edit of an object to its status
vmgroups, gpuinfos   a start with other kinds, of the manager alone
turns         the figures of one turn, and the summary of many
charts        one scenario as SVG
pages         tables in Markdown and pictures, drawn from the recorded summary
"""
