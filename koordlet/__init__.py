"""koordlet: a node QoS daemon that speaks the Koordinator protocol."""

__version__ = "0.1.0"
