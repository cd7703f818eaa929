"""Settings of all tests: no token or cache of the machine, and the same examples every time."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from hub_fixtures import hub, hub_env, impatient, online, pytest_generate_tests
from hypothesis import settings

__all__ = ["hub", "hub_env", "impatient", "online", "pytest_generate_tests"]

# huggingface_hub reads these when it is first imported, so they are set before any test module is.
for _name in ("HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
    os.environ.pop(_name, None)
_cache = tempfile.mkdtemp(prefix="local-hub-tests-")
atexit.register(shutil.rmtree, _cache, ignore_errors=True)
os.environ.setdefault("HF_HOME", _cache)

# `--hypothesis-profile=thorough` searches further, and elsewhere every time.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=2000, deadline=None)
settings.load_profile("ci")
