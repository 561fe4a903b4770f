"""Generates config/, the installer and the Helm chart from what a project declares."""
