"""What this machine can give to run code that nobody has read: `code_sandbox.isolation`."""

from code_sandbox.isolation import Isolation, IsolationError, isolation

__all__ = ["Isolation", "IsolationError", "isolation"]
