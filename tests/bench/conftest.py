"""A Hub on loopback, for tests of cells that are published to it."""

from hub_fixtures import hub, online

__all__ = ["hub", "online"]
