"""The cluster as the scheduler sees it: nodes as arrays, pods by class, every change undoable."""
