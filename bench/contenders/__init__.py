"""The three programs that are compared; each runs in a process of its own until SIGTERM, on one namespace: KUBECONFIG NAMESPACE ..."""
