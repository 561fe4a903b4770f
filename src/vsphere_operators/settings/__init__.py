"""Flags, environment variables and files of the manager."""
