"""One install has all of ours, and asks no index for a name of ours, where whoever registers it runs code."""

from __future__ import annotations

import http.server
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_credit.hub.wheel import WHEEL, own_wheel
from hf_credit.metrics import METRICS
from hf_credit.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml"))]
OURS = {tomllib.loads(path.read_text())["project"]["name"] for path in PROJECTS}


def project(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text())["project"]


def asked(described: dict[str, Any]) -> set[str]:
    """What a project needs of others, with its extras for users."""
    extras = described.get("optional-dependencies", {})
    groups = [described.get("dependencies", ()), *(lines for extra, lines in extras.items() if extra != "dev")]
    return {line for lines in groups for line in lines}


def build(folder: Path, what: str, into: Path) -> Path:
    """A wheel or an sdist of a project, built in a folder of it."""
    into.mkdir(exist_ok=True)
    code = f"import sys; from setuptools import build_meta; build_meta.build_{what}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(into)], cwd=folder, check=True, capture_output=True)
    (made,) = into.iterdir()
    return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of every project, by its name, built in a copy of the repository."""
    place = tmp_path_factory.mktemp("built")
    copy = place / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "tests")
    for name in ("src", "packages"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "setup.cfg"):
        shutil.copy(ROOT / name, copy / name)
    source = build(copy, "sdist", place / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    made = {"hf-credit": build(unpacked, "wheel", place / "hf-credit")}
    for path in PROJECTS[1:]:
        name = project(path)["name"]
        made[name] = build(copy / path.parent.relative_to(ROOT), "wheel", place / name)
    return made


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/") and ".dist-info/" not in name}


def files(folder: Path) -> set[str]:
    found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {one.as_posix() for one in found if "__pycache__" not in one.parts and ".egg-info" not in one.parts[0]}


def test_a_wheel_from_the_sdist_holds_every_file_of_ours(wheels: dict[str, Path]) -> None:
    held = contents(wheels["hf-credit"])
    assert held == {name for root in (ROOT / "src", *ROOT.glob("packages/*/src")) for name in files(root)}
    assert {f"hf_credit/recipes/{'/'.join(path.parts[-2:])}" for path in RECIPES.values()} <= held
    own = {*(f"{name}.md" for name in METRICS), "app.py", "papers.bib"}
    assert {one.removeprefix("hf_credit/metrics/spaces/") for one in held if "/spaces/" in one} == own


@pytest.mark.parametrize("path", PROJECTS[1:], ids=lambda path: path.parent.name)
def test_a_distribution_of_packages_is_built_alone_and_declares_nothing_that_the_whole_does_not(
    path: Path, wheels: dict[str, Path]
) -> None:
    alone, whole = tomllib.loads(path.read_text()), tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert contents(wheels[alone["project"]["name"]]) == files(path.parent / "src")
    assert asked(alone["project"]) <= asked(whole["project"])
    for group in ("scripts", "entry-points"):
        for name, value in alone["project"].get(group, {}).items():
            merged = whole["project"][group][name]
            assert value == merged if isinstance(value, str) else value.items() <= merged.items()
    data = whole["tool"]["setuptools"]["package-data"]
    assert alone["tool"]["setuptools"]["package-data"].items() <= data.items()


class Index:
    """A package index that has every package that a project asks for, as an empty stub, and traps of our names."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.versions = dict.fromkeys(map(canonicalize_name, OURS), "99.0")
        for path in PROJECTS:
            for line in asked(project(path)) | set(project(path).get("optional-dependencies", {}).get("dev", ())):
                name, bounds = canonicalize_name(Requirement(line).name), Requirement(line).specifier
                self.versions.setdefault(name, next((one.version for one in bounds if "=" in one.operator), "1.0"))

    def page(self, name: str) -> bytes | None:
        self.asked.append(name)
        if name not in self.versions:
            return None
        file = f"{name.replace('-', '_')}-{self.versions[name]}-py3-none-any.whl"
        return f'<a href="/files/{name}/{file}">{file}</a>'.encode()

    def wheel(self, name: str) -> bytes:
        info, content = f"{name.replace('-', '_')}-{self.versions[name]}.dist-info", io.BytesIO()
        described = f"Metadata-Version: 2.1\nName: {name}\nVersion: {self.versions[name]}\n"
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr(f"{info}/METADATA", described)
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
            if name in OURS:
                archive.writestr("trapped.py", "")
        return content.getvalue()


@contextmanager
def serving(index: Index) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, name = self.path.strip("/").split("/")[:2]
            content = index.page(name) if kind == "simple" else index.wheel(name)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Type", "text/html" if kind == "simple" else "application/octet-stream")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def pip(environment: Path, *words: str) -> None:
    """Runs pip for an environment, with none of the settings of this machine."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    call = [sys.executable, "-m", "pip", f"--python={environment}/bin/python", "--disable-pip-version-check"]
    done = subprocess.run(
        [*call, *words], env={**clean, "PIP_CONFIG_FILE": os.devnull}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """An environment without packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    return tmp_path / "venv"


@pytest.mark.parametrize("name", sorted(OURS))
def test_no_index_is_asked_for_a_name_of_ours(name: str, wheels: dict[str, Path], empty: Path) -> None:
    (described,) = (one for one in PROJECTS if project(one)["name"] == name)
    extras = ",".join(project(described).get("optional-dependencies", {}))
    index = Index()
    with serving(index) as url:
        wanted = f"{wheels[name]}[{extras}]" if extras else str(wheels[name])
        pip(empty, "install", "--dry-run", "--no-cache-dir", "--index-url", url, wanted)
    assert OURS.isdisjoint(index.asked)
    assert {canonicalize_name(Requirement(line).name) for line in asked(project(described))} <= set(index.asked)


def test_one_install_has_every_command_also_beside_our_other_distributions(
    wheels: dict[str, Path], empty: Path
) -> None:
    index = Index()
    with serving(index) as url:
        pip(empty, "install", "--no-compile", "--no-cache-dir", "--index-url", url, str(wheels["hf-credit"]))
    assert OURS.isdisjoint(index.asked)
    (packages,) = empty.glob("lib/python*/site-packages")
    assert not (packages / "trapped.py").exists()
    (packages / "real.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    others = [str(wheel) for name, wheel in wheels.items() if name != "hf-credit"]
    for _ in range(2):
        shown = re.findall(r"^  ([a-z-]+) ", run(empty, "hf-credit", "--help"), re.MULTILINE)
        assert [shown.count(name) for name in ("train", "bench", "hub", "leaderboard", "submit")] == [1] * 5
        pip(empty, "install", "--no-compile", "--no-deps", *others)
    for words in ("bench --help", "leaderboard --help", "hub --help", "submit --help"):
        assert f"Usage: hf-credit {words.split()[0]}" in run(empty, "hf-credit", *words.split())
    assert "Usage: local-hub" in run(empty, "local-hub", "--help")


def test_the_wheel_of_a_space_is_that_of_the_installed_library_and_always_the_same(
    wheels: dict[str, Path], empty: Path, tmp_path: Path
) -> None:
    (made,) = own_wheel().values()
    assert own_wheel() == {WHEEL: made}
    (tmp_path / wheels["hf-credit"].name).write_bytes(made)
    assert Path(WHEEL).name == wheels["hf-credit"].name
    assert contents(tmp_path / Path(WHEEL).name) == contents(wheels["hf-credit"])
    pip(empty, "install", "--no-compile", "--no-deps", str(tmp_path / Path(WHEEL).name))
    pip(empty, "uninstall", "--yes", "hf-credit")
    (packages,) = empty.glob("lib/python*/site-packages")
    assert not list(packages.iterdir())


def run(environment: Path, command: str, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    call = [str(environment / "bin" / command), *words]
    done = subprocess.run(call, env=clean, cwd=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# The same for what is written: a name of ours that pip reads is a folder, or has an address after it.

NAMES = "|".join(sorted(OURS, key=len, reverse=True))
BY_NAME = re.compile(rf"(?<![\w./-])({NAMES})(?![\w-])(?!(\[[\w,-]*\])? @ )")
INSTALLS = re.compile(r"(?:pip install|uv add|--with)\s([^`#&;|\n]*)")
PLACES = (
    "src",
    "packages",
    "docs",
    "examples",
    "evaluation",
    "benchmarks",
    "trainers",
    "hub_assets",
    "README.md",
    "Makefile",
)


def written() -> Iterator[Path]:
    kinds = {".md", ".py", ".ipynb", ".tpl", ".txt", ".sh", ".yaml", ".sbatch", ""}
    for place in PLACES:
        for path in [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*")):
            if path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts:
                yield path


def test_no_page_and_no_file_installs_ours_by_name() -> None:
    found, read = [], 0
    for path in written():
        text = path.read_text(encoding="utf-8")
        lines = INSTALLS.findall(text)
        if path.name.startswith("requirements"):
            lines += text.splitlines()
        read += len(lines)
        found += [(path.relative_to(ROOT).as_posix(), line) for line in lines if BY_NAME.search(line)]
    assert found == []
    assert read > 50


def test_every_wheel_that_is_named_is_of_this_version() -> None:
    found = [
        re.findall(r"hf_credit-\d[\d.]*-py3-none-any\.whl", path.read_text(encoding="utf-8")) for path in written()
    ]
    assert {name for names in found for name in names} == {Path(WHEEL).name}
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {Path(WHEEL).name.split('-')[1]}\n" in cited


@pytest.mark.parametrize(
    ("line", "by_name"),
    [
        ("hf-credit", True),
        ("'hf-credit[statistics]'", True),
        ("gradio hf-credit-leaderboard", True),
        ('--no-deps "hf-credit==0.10.0"', True),
        ("./packages/local-hub", False),
        ('"./packages/code-sandbox[math]"', False),
        ("'hf-credit[leaderboard] @ https://them/hf_credit-0.10.0-py3-none-any.whl'", False),
        ("hf-local-hub", False),
    ],
)
def test_a_name_of_ours_is_found_where_an_index_would_be_asked(line: str, by_name: bool) -> None:
    assert bool(BY_NAME.search(line)) == by_name


def test_the_scripts_of_all_methods_are_one() -> None:
    scripts = sorted(ROOT.glob("trainers/*/train.py"))
    assert len(scripts) == 5
    assert len({path.read_bytes() for path in scripts}) == 1
