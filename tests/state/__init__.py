"""Tests of koordlet.state."""
