"""The local API on a unix socket that the CLI talks to. Floor 5."""

DEFAULT_SOCKET = "/run/koordlet/koordlet.sock"
