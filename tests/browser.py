"""Where a browser is for the tests of pages, and how to get one: `python tests/browser.py` prints its path.

`$HF_CREDIT_BROWSER`, one on the PATH, Playwright's own, or else Debian's, installed where that is possible.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of a Chromium, `None` where there is none."""
    named = os.environ.get("HF_CREDIT_BROWSER")
    if named:
        return named
    for name in _NAMES:
        found = shutil.which(name)
        if found:
            return found
    caches = (os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), Path.home() / ".cache" / "ms-playwright")
    for cache in caches:
        for path in sorted(Path(cache).glob("chromium-*/chrome-linux*/chrome")) if cache else ():
            return str(path)
    return None


def install() -> None:
    """Debian's Chromium, where this is root on a machine with apt."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", *command], check=False, env=environment, stdout=subprocess.DEVNULL)


def main() -> int:
    """Finds or installs; without one, the tests of pages are left out, unless this is CI."""
    if find() is None:
        install()
    found = find()
    print(found or "No browser: name one in HF_CREDIT_BROWSER; the tests of pages are left out.", file=sys.stderr)
    return 1 if found is None and os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
