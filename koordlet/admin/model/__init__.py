"""Data that the daemon hands to the local API; proto/koordlet/admin/v1/admin.proto mirrors it.

Field names are the names in the proto and the keys of ``-o json``. Times are unix seconds.
None means not known (yet), which is different from zero. What was decided is a ``Record``, as in
the decision log. Other kernel values (``expected``, ``found`` ...) are text.
"""
