"""The kinds: each has its spec, its status, a pure function between them, and its controller in one module."""
