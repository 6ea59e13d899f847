"""HTTP/2 of one connection (RFC 9113, RFC 7541): what the proxy looks at and what it makes."""
