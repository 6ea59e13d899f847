"""Tests of koordlet.collectors."""
