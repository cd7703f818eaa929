"""What runs inside the sandbox, or just outside of it: the standard library and nothing else.

Everything here is imported by a bare interpreter without site-packages, so that it starts fast and holds no secret of
the program that asked for it. `supervisor` is the process that forks the others, `tester` holds the tests, `solver`
holds the code under test; `confinement`, `landlock` and `seccomp` are what the operating system gives; `protocol`
is the only language that tester and solver speak, `object_table` what both of them hold, `proxies` what stands in the
tester for the solution's objects.
"""
