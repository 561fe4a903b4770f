"""Generates config/, the installer and the Helm chart."""
