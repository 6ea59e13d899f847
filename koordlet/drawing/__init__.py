"""Charts, tables and pages for people: SVG and HTML text, and plots in a terminal. Pure."""
