"""Running a stranger's Python and algebra confined. Imports nothing: the sandbox loads it in a bare interpreter."""
