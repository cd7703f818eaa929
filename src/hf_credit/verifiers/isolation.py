"""How this machine isolates untrusted code: `code_sandbox.isolation`."""

from code_sandbox.isolation import Isolation, IsolationError, isolation

__all__ = ["Isolation", "IsolationError", "isolation"]
