"""Elastic quotas: trees of what teams are given and lend."""
