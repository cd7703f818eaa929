"""The Hub of one's own: a large file and many small ones, up and down, compared with a plain copy.

The client is huggingface_hub in a process of its own with an own cache, by LFS as the Hub of one's own speaks it; the
server runs in this process. An upload is `create_commit`, which hashes every byte on both sides and leaves the bytes
on disk; a download is `snapshot_download`, without hashing. The plain copy reads and writes the same files with
`shutil.copyfile` and waits for the disk.

Both sides of a transfer share two cores. MB/s are on the clock, which other work on the machine stretches; processor
seconds are told apart for the client and the server.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from common import arguments, report, take_turns

from local_hub.running import Served, client_environment, serving

REPO = "bench/files"
UPLOAD = """
import json, pathlib, sys, time
from huggingface_hub import CommitOperationAdd, HfApi
folder, api = pathlib.Path(sys.argv[1]), HfApi()
api.create_repo(sys.argv[2])
files = [CommitOperationAdd(path.name, path) for path in sorted(folder.iterdir())]
begun, used = time.perf_counter(), time.process_time()
api.create_commit(sys.argv[2], files, commit_message="Fill")
print(json.dumps([time.perf_counter() - begun, time.process_time() - used]))
"""
DOWNLOAD = """
import json, sys, time
from huggingface_hub import snapshot_download
begun, used = time.perf_counter(), time.process_time()
snapshot_download(sys.argv[2], local_dir=sys.argv[1])
print(json.dumps([time.perf_counter() - begun, time.process_time() - used]))
"""


def make_files(folder: Path, number: int, size: int) -> Path:
    folder.mkdir(parents=True)
    for name in range(number):
        (folder / f"{name:05d}.safetensors").write_bytes(os.urandom(size))
    return folder


Seconds = tuple[float, float, float]  # on the clock, and of the processor: of who asks for it, and of the server


def copied(source: Path, target: Path) -> Seconds:
    """Copies all files of a folder and waits until they are on disk."""
    target.mkdir()
    begun, used = time.perf_counter(), time.process_time()
    for path in sorted(source.iterdir()):
        shutil.copyfile(path, target / path.name)
        with (target / path.name).open("rb") as file:
            os.fsync(file.fileno())
    return time.perf_counter() - begun, time.process_time() - used, 0.0


def by_client(script: str, hub: Served, cache: Path, *words: str) -> Seconds:
    """Runs a client with this Hub."""
    environment = {**os.environ, **client_environment(cache, hub.url, hub.token())}
    environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0"}
    used = time.process_time()
    command = [sys.executable, "-W", "ignore", "-c", script, *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    clock, of_client = json.loads(done.stdout.splitlines()[-1])
    return clock, of_client, time.process_time() - used


def once(folder: Path, sizes: dict[str, tuple[int, int]]) -> dict[tuple[str, str], Seconds]:
    """Each way for each kind of files, in a Hub of its own."""
    found = {}
    with serving(folder / "hub") as hub:
        for name, (number, size) in sizes.items():
            repo = f"{REPO}-{number}"
            source = make_files(folder / f"source-{number}", number, size)
            found[name, "plain copy"] = copied(source, folder / f"copy-{number}")
            found[name, "upload"] = by_client(UPLOAD, hub, folder / "cache", str(source), repo)
            target = folder / f"target-{number}"
            found[name, "download"] = by_client(DOWNLOAD, hub, folder / "cache", str(target), repo)
            for path in source.iterdir():
                assert (target / path.name).read_bytes() == path.read_bytes(), "a file changed on its way"
    return found


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    sizes = {
        f"1 of {options.megabytes} MB": (1, options.megabytes * 10**6),
        f"{options.files} of 100 KB": (options.files, 10**5),
    }

    def turn() -> dict[tuple[str, str], Seconds]:
        with tempfile.TemporaryDirectory(prefix="hf-credit-bench-") as folder:
            return once(Path(folder), sizes)

    turns = take_turns({"all": turn}, options.repeats)["all"]
    table = []
    for name, (number, size) in sizes.items():
        for way in ("plain copy", "upload", "download"):
            megabytes = number * size / 10**6
            table.append(
                {
                    "files": name,
                    "way": way,
                    "MB/s": megabytes / median(one[name, way][0] for one in turns),
                    "CPU ms a MB": 1000 * median(one[name, way][1] for one in turns) / megabytes,
                    "of the server": 1000 * median(one[name, way][2] for one in turns) / megabytes,
                    "times the copy's seconds": median(
                        one[name, way][0] / one[name, "plain copy"][0] for one in turns
                    ),
                }
            )
    return table


def main(words: list[str] | None = None) -> None:
    options = arguments(__doc__, megabytes=256, files=300, repeats=5).parse_args(words)
    text = (
        "Medians. Upload and download are huggingface_hub's with a Hub of one's own, client and server on two cores."
    )
    report(options, "hub", text, compare(options))


if __name__ == "__main__":
    main()
