"""Parts for koordlet in a package of their own."""
