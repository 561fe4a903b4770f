"""Flags, environment and files of the manager."""
