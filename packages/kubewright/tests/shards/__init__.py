"""Several replicas that share the objects."""
