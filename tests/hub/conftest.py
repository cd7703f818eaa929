"""A Hub of one's own on loopback, for tests of what is published to it and loaded from it."""

from hub_fixtures import hub, hub_env, impatient, online, pytest_generate_tests

__all__ = ["hub", "hub_env", "impatient", "online", "pytest_generate_tests"]
