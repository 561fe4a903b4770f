"""One module for each kind: its spec, its status and its controller."""
