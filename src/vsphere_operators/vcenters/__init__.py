"""Which vCenter serves a namespace."""
