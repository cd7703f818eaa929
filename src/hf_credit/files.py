"""Everything that this library writes, replaces and deletes.

A file is replaced whole or stays as it was: the new one is written next to it, flushed to the disk and renamed. A link
in its place is replaced, and never followed, since a downloaded folder may hold links to anything. Folders go only if
this process made them, by the handle that it kept, or if a mark in them says that an earlier run made them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO


@contextlib.contextmanager
def replaced(path: str | Path) -> Iterator[Path]:
    """Context to write a file that then replaces another one; its folder is made if it is missing.

    The file has the permissions of the one that it replaces, else those of any new file. If the context raises, such
    as at a full disk, the old file is unchanged. A pipe or a device, such as /dev/stdout, is written to directly.

    Yields:
        The path to write to, in the same folder and with the same suffix.

    Raises:
        OSError: the file is read-only, or the disk fails.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = _about(path)
    if _is_stream(path, before):
        yield path
        return
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished{path.suffix}")
    try:
        _refuse_read_only(path, before)
        yield unfinished
        if before is not None and stat.S_ISREG(before.st_mode):
            unfinished.chmod(stat.S_IMODE(before.st_mode))
        flush(unfinished)
        unfinished.replace(path)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(unfinished):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    flush_names(path.parent)


def write(path: str | Path, content: str | bytes) -> Path:
    """Replaces the content of a file, as `replaced` does; text is UTF-8. Returns its path."""
    content = content.encode() if isinstance(content, str) else content
    with replaced(path) as unfinished:
        unfinished.write_bytes(content)
    return Path(path)


def write_json(path: str | Path, value: Any, indent: int | None = 2) -> Path:
    """Replaces the content of a file by a value as JSON, and returns its path."""
    return write(path, json.dumps(value, indent=indent) + "\n")


def write_private(path: str | Path, content: bytes) -> Path:
    """Writes a new file that only its owner can read.

    Raises:
        FileExistsError: the file exists; a secret is never replaced.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            Path(path).unlink()
            raise
    return Path(path)


def append(path: str | Path, text: str) -> None:
    """Adds lines to a log, which is made if it is missing: all of them or, at a full disk, none.

    They begin on a new line if a killed process left half a line.

    Raises:
        OSError: the path is a link, or the disk fails.
    """
    path, content = Path(path), text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        if length:
            file.seek(length - 1)
            content = content if file.read() == b"\n" else b"\n" + content
        try:
            while content:
                content = content[file.write(content) :]
        except BaseException:
            file.truncate(length)
            raise


def log_of_process(path: str | Path) -> BinaryIO:
    """Opens an empty file for what another process prints."""
    return write(path, "").open("ab")


def copy(source: str | Path, target: str | Path) -> None:
    """Replaces the content of a file by that of another one."""
    with replaced(target) as unfinished:
        shutil.copyfile(source, unfinished)


@contextlib.contextmanager
def filled(folder: str | Path, without: Iterable[str] = ()) -> Iterator[Path]:
    """Context to write several files that then go to a folder together; other files in it stay.

    Args:
        folder: is made if it is missing.
        without: paths in the folder that are removed, unless they are among the files.

    Yields:
        An empty folder to write to. If the context raises, nothing in `folder` changes.

    Raises:
        ValueError: a link leads a path out of `folder`.
        OSError: as in `replaced`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with OwnFolder(folder, ".unfinished-") as new:
        yield new
        paths = [path for path in sorted(new.rglob("*")) if not path.is_dir()]
        for path in paths:
            flush(path)
        names = [path.relative_to(new).as_posix() for path in paths]
        for name in {*names, *without}:
            _refuse_outside(folder, name)
            _refuse_read_only(folder / name, _about(folder / name))
        for path, name in zip(paths, names, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(folder / name)
        for name in set(without) - set(names):
            remove(folder / name)
        flush_names(folder)


_BLOCK = 4096  # bytes
_DEEPEST = 100  # folders within folders


class FolderHandle:
    """Knows a folder of ours again, such as one that a parent process made, whatever is under its path by then.

    It holds the folder open, so that the system gives its number to no other one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self._descriptor = Path(path), None
        self._about = self.path.stat()
        if shutil.rmtree.avoids_symlink_attacks:  # not on Windows
            self._descriptor = os.open(path, os.O_RDONLY)

    def takes_more(self, most: int) -> bool:
        """Returns whether what is in the folder takes more bytes of the disk, each file and folder at least a block.

        What links have in common counts once, what cannot be read not at all, and what lies too deep as more.
        """
        left, known = most, set[tuple[int, int]]()
        for path, folders, files, here in os.fwalk(".", dir_fd=self._descriptor):
            for name in (*folders, *files):
                with contextlib.suppress(OSError):
                    about = os.stat(name, dir_fd=here, follow_symlinks=False)
                    left -= 0 if (about.st_dev, about.st_ino) in known else max(about.st_blocks * 512, _BLOCK)
                    known.add((about.st_dev, about.st_ino))
            if path.count(os.sep) > _DEEPEST or left < 0:
                return True
        return False

    def remove(self) -> None:
        """Removes the folder, if it is still under its path."""
        about = _about(self.path)
        if about is not None and os.path.samestat(about, self._about):
            inside = self.path if self._descriptor is None else "."
            with contextlib.suppress(RecursionError):
                shutil.rmtree(inside, ignore_errors=True, dir_fd=self._descriptor)
            if self._descriptor is not None:
                with contextlib.suppress(OSError):
                    os.chmod(self._descriptor, stat.S_IRWXU)
                _empty(self._descriptor)
            with contextlib.suppress(OSError):
                self.path.rmdir()
        self.__del__()

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class OwnFolder(FolderHandle):
    """A new folder with a random name, which goes at the end of the context, by `remove`, or with the process.

    Args:
        parent: is made if it is missing; the system's folder for temporary files if `None`.
        prefix: of the name.
        mode: its permissions, less the umask.
        kept: whether only `remove` removes it.
    """

    def __init__(
        self, parent: str | Path | None = None, prefix: str = "hf-credit-", mode: int = 0o700, kept: bool = False
    ) -> None:
        path = Path(parent or tempfile.gettempdir()).resolve() / f"{prefix}{secrets.token_hex(8)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode)
        super().__init__(path)
        if not kept:
            weakref.finalize(self, _remove_by, os.getpid(), FolderHandle(path))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def _empty(descriptor: int) -> None:
    """Removes what is left in a folder, however deep: what a folder in it holds moves up before."""
    left = True
    while left:
        left = False
        for name in os.listdir(descriptor):
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                    _make_writable(name, descriptor)
                    _move_up(name, descriptor)
                    os.rmdir(name, dir_fd=descriptor)
                else:
                    os.unlink(name, dir_fd=descriptor)
                left = True


def _make_writable(name: str, descriptor: int) -> None:
    """Gives the owner all rights on a folder in a folder, such as one that Go's cache has made read-only."""
    by_path = getattr(os, "O_PATH", 0)  # opens what may not be read
    inner = os.open(name, by_path | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
    try:
        os.chmod(f"/proc/self/fd/{inner}" if by_path else inner, stat.S_IRWXU)
    finally:
        os.close(inner)


def _move_up(name: str, descriptor: int) -> None:
    """Moves what is in a folder of a folder up, under new names."""
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
    try:
        for one in os.listdir(inner):
            with contextlib.suppress(NotADirectoryError):  # a folder must be writable to get another parent
                _make_writable(one, inner)
            os.rename(one, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=descriptor)
    finally:
        os.close(inner)


def _remove_by(owner: int, handle: FolderHandle) -> None:
    if owner == os.getpid():  # a fork, such as a data loader's, owns no folder
        handle.remove()


def remove(path: str | Path) -> None:
    """Removes a file, or a link, that this run writes anew, if it exists."""
    Path(path).unlink(missing_ok=True)


def remove_earlier(folder: str | Path, marks: Iterable[str]) -> bool:
    """Removes a folder that an earlier run made, and returns whether it did.

    Args:
        folder: links to folders, and folders without a mark, stay.
        marks: names of files of which such a folder has one.
    """
    folder = Path(folder)
    made = not folder.is_symlink() and any((folder / name).is_file() for name in marks)
    if made:
        shutil.rmtree(folder, ignore_errors=True)
    return made


def move(folder: Path, target: Path) -> None:
    """Gives a folder its name, once it is whole.

    Raises:
        OSError: something has the name.
    """
    folder.rename(target)
    flush_names(target.parent)


def set_aside(path: str | Path) -> Path:
    """Gives what is at a path, if anything, a new name next to it, and returns that."""
    path = Path(path)
    other = path.with_name(f"{path.name}.before-{secrets.token_hex(4)}")
    with contextlib.suppress(FileNotFoundError):
        path.rename(other)
    return other


def flush(path: Path) -> None:
    """Writes a file through to the disk, so that it survives a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_names(folder: Path) -> None:
    """Writes the names in a folder through to the disk, if its file system supports that."""
    with contextlib.suppress(OSError):
        flush(folder)


def _about(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_stream(path: Path, about: os.stat_result | None) -> bool:
    """Returns whether a path is a pipe or a device, or stands for one that this process holds, as /dev/stdout does."""
    if about is None or stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode):
        return False
    folder = path.parent.resolve()
    return not stat.S_ISLNK(about.st_mode) or folder == Path("/dev") or folder.is_relative_to("/proc")


def _refuse_read_only(path: Path, about: os.stat_result | None) -> None:
    if about is not None and not stat.S_ISLNK(about.st_mode) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _refuse_outside(folder: Path, name: str) -> None:
    if not (folder / name).parent.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"what is written to {str(folder)!r} must lie in it, got a link in {name!r}; remove the link."
        )
