"""A plugin for koord-scheduler."""
