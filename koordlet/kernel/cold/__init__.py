"""Cold memory: what nobody has used for a while, by each interface that a kernel may have for it.

One module for each interface, found by trying (``methods.py``). None of them changes a value that
lasts: they age lists, set idle bits or clear referenced bits, which the kernel does by itself too.
A kdamond is never touched (``kdamond.py``): there is one state for the machine, and it is somebody
else's.
"""
