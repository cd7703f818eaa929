"""The processes of the sandbox. They import the standard library only.

A bare interpreter without site-packages imports these modules, so that it starts fast and holds no secret of the
calling program. `supervisor` forks the others, `tester` holds the tests, `solver` holds the code under test;
`confinement`, `landlock` and `seccomp` use the operating system; `protocol` is the only language between tester and
solver, `object_table` has the data that both hold, and `proxies` represent the solution's objects in the tester.
"""
