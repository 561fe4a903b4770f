"""`manager doctor`: checks the cluster, this manager's settings and every vCenter."""
