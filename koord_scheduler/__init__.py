"""The central companion of koordlet: it turns what nodes report into what schedulers may place."""
