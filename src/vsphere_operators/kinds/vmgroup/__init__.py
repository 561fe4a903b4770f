"""The decisions of VmGroup, without any I/O; docs/designs/vmgroup.md has the argument behind them."""
