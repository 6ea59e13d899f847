"""Messages of our peers (CRI, NRI, the hook API), generated from proto/peers. Floor 0."""
