"""Rules for published and loaded files: names, formats, sizes, contents and secrets."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import safetensors

from hf_credit import parquet
from hf_credit.files import OwnFolder, write
from hf_credit.redaction import TOKENS
from hf_credit.safe_io import MOST_BYTES, parse_json, parse_yaml

FORBIDDEN_SUFFIXES = frozenset({".bin", ".ckpt", ".dill", ".joblib", ".npy", ".npz", ".pickle", ".pkl", ".pt", ".pth"})
"""Formats that can run code when they are read."""

ARCHIVE_SUFFIXES = frozenset({".7z", ".bz2", ".rar", ".tar", ".tgz", ".xz", ".zip", ".zst"})
"""Archives, like .tar.gz. A single packed text, such as log.jsonl.gz, is allowed: readers limit its unpacked size."""

MOST_FILES = 10_000
MOST_PATH_BYTES = 255
MOST_HEADER_BYTES = 16 * 2**20
MOST_DIMENSIONS = 64
MOST_YAML_BYTES = 64 * 2**10
MOST_JSON_DEPTH = 32

_SECRETS = re.compile(TOKENS.encode())
_LONGEST_SECRET = 256


def check_path(path: str) -> None:
    """Refuses a path that leaves the repository, means another file on some systems, or misleads a reader.

    Raises:
        ValueError: the path is empty, absolute or too long, or has a part `..` or `.git`, a backslash or an invisible
            character.
    """
    parts = path.split("/")
    wrong = (
        ("be relative", not path or path.startswith("/") or re.match(r"[A-Za-z]:", path)),
        ("have at most 255 bytes", len(path.encode("utf-8", "surrogatepass")) > MOST_PATH_BYTES),
        ("have no empty, . or .. part", any(part in ("", ".", "..") for part in parts)),
        ("have no .git part", any(part.lower() == ".git" for part in parts)),
        ("have no backslash", "\\" in path),
        # Cc: control and NUL; Cf: invisible and right-to-left; Cs: half a surrogate pair.
        ("have no invisible character", any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in path)),
    )
    for rule, is_broken in wrong:
        if is_broken:
            raise ValueError(f"the name of a file must {rule}, got {path[:300]!r}; rename it.")


def check_names(paths: Iterable[str]) -> None:
    """Refuses paths that are invalid, collide on some file systems, or name a format that runs code.

    Raises:
        ValueError: a path is invalid (see `check_path`), equals another one up to case, is also a folder, or has a
            forbidden suffix or that of an archive; or there are more than `MOST_FILES`.
    """
    seen: dict[str, str] = {}
    for path in paths:
        check_path(path)
        suffix = PurePosixPath(path).suffix.lower()
        if suffix in FORBIDDEN_SUFFIXES:
            raise ValueError(f"a file must not run code when it is read, got {path!r}; save tensors as .safetensors.")
        if suffix in ARCHIVE_SUFFIXES or path.lower().endswith(".tar.gz"):
            raise ValueError(f"a file must not be an archive, got {path!r}; publish what is in it.")
        twin = seen.setdefault(_folded(path), path)
        if twin != path:
            raise ValueError(f"names must differ by more than case, got {twin!r} and {path!r}; rename one.")
        if len(seen) > MOST_FILES:
            raise ValueError(f"a repository must have at most {MOST_FILES} files, got more; put rows into tables.")
    for path in seen.values():
        for folder in PurePosixPath(path).parents:
            if _folded(str(folder)) in seen:
                raise ValueError(f"a name must be a file's or a folder's, got {str(folder)!r} as both; rename one.")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def files_of(folder: Path) -> dict[str, Path | bytes]:
    """Returns every file of a folder, by its path in it.

    Raises:
        ValueError: the folder does not exist, is empty, or holds a link, which could point anywhere.
    """
    if not folder.is_dir():
        raise ValueError(f"what is published must be a folder, got {str(folder)!r}; name an existing one.")
    files: dict[str, Path | bytes] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise ValueError(f"a folder that is published must hold no links, got {str(path)!r}; copy its target.")
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    if not files:
        raise ValueError(f"a folder that is published must hold a file, got {str(folder)!r} empty; name another one.")
    return files


def check_files(files: Mapping[str, Path | bytes]) -> None:
    """Refuses files that would crash, hang or exhaust a reader, by the rules of their formats.

    Args:
        files: the files or their bytes, by path in the repository.

    Raises:
        ValueError: a path is no file, or a file breaks the rules of its format.
    """
    tables: dict[str, Path] = {}
    with OwnFolder() as folder:
        for name, source in files.items():
            _check_file(name, source)
            if PurePosixPath(name).suffix.lower() == ".parquet":
                tables[name] = source if isinstance(source, Path) else folder / str(len(tables))
                if isinstance(source, bytes):
                    write(tables[name], source)
        parquet.count_rows(tables)


def _check_file(name: str, source: Path | bytes) -> None:
    suffix = PurePosixPath(name).suffix.lower()
    if isinstance(source, Path) and not source.is_file():
        raise ValueError(f"{name!r} must be a file, got {source}, which is none; name an existing one.")
    try:
        if suffix == ".safetensors":
            check_safetensors(source)
        elif suffix == ".json":
            check_json(_read(source, MOST_BYTES))
        elif suffix in (".yaml", ".yml"):
            parse_yaml(_text(_read(source, MOST_YAML_BYTES)), strict=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def check_safetensors(source: Path | bytes) -> None:
    """Refuses a safetensors file whose header does not match its contents.

    Raises:
        ValueError: the header exceeds 16 MiB or is no JSON; a shape has more than 64 dimensions or a length beyond
            2^63 - 1; or the offsets overlap, leave gaps, do not end with the file, or contradict shape and type.
    """
    with opened(source) as file:
        length = int.from_bytes(file.read(8), "little")
    if length > MOST_HEADER_BYTES:
        raise ValueError(f"the header of tensors must have at most 16 MiB, got {length} bytes; save it again.")
    try:
        if isinstance(source, bytes):
            shapes = [entry["shape"] for _, entry in safetensors.deserialize(source)]
        else:
            with safetensors.safe_open(source, "numpy") as tensors:
                shapes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(
            f"the tensors of a file must match its header, got {str(error)[:200]!r}; save it again."
        ) from None
    for shape in shapes:
        if len(shape) > MOST_DIMENSIONS or any(size >= 2**63 for size in shape):
            raise ValueError(
                f"a tensor must have at most {MOST_DIMENSIONS} lengths below 2^63, got {str(shape)[:200]}; save it "
                "again."
            )


def check_json(content: bytes) -> Any:
    """Parses JSON of bounded depth.

    Raises:
        ValueError: `content` is no JSON, or nested deeper than 32.
    """
    return parse_json(_text(content), most_depth=MOST_JSON_DEPTH)


def find_secret(source: Path | bytes, tokens: Iterable[str] = ()) -> bool:
    """Returns whether a file holds a token of the Hub, a private key or one of `tokens`.

    Args:
        source: the file, or its bytes. Only the header of a safetensors file is searched.
        tokens: further secrets, such as the token in use; shorter ones than 8 characters are ignored.
    """
    secrets = [token.encode() for token in tokens if len(token) >= 8]
    before = b""
    with opened(source) as file:
        is_tensors = isinstance(source, Path) and source.suffix == ".safetensors"
        for chunk in [_header(file)] if is_tensors else iter(lambda: file.read(2**20), b""):
            text = before + chunk
            if _SECRETS.search(text) or any(secret in text for secret in secrets):
                return True
            before = text[-_LONGEST_SECRET:]
    return False


def _read(source: Path | bytes, most: int) -> bytes:
    with opened(source) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"the file must have at most {most} bytes, got more; shorten or split it.")
    return content


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"a text must be UTF-8, got {error.reason} at byte {error.start}; fix it.") from None


def opened(source: Path | bytes) -> BinaryIO:
    """Opens a file, or its bytes."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _header(file: BinaryIO) -> bytes:
    return file.read(min(int.from_bytes(file.read(8), "little"), MOST_HEADER_BYTES))
