"""The hook servers that the proxy asks: which there are, how each is asked, what waits for it."""
