"""Writes new projects, kinds, versions and webhooks from templates."""
