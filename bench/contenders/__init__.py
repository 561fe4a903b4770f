"""The compared programs. Each runs until SIGTERM on one namespace: KUBECONFIG NAMESPACE ..."""
