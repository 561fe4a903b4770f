"""The builder: what turns declarations into files."""
