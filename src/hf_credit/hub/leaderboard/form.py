"""The form of the page: files of an entry are checked, and sent in the name of the page if it has a token for that."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hf_credit.hub.leaderboard.entries import Entry, entry_id, entry_path, episodes_path
from hf_credit.hub.leaderboard.inputs import MOST_BYTES
from hf_credit.hub.leaderboard.replay import replay_entry, require_seeds
from hf_credit.hub.leaderboard.replies import read_replies
from hf_credit.hub.leaderboard.results import expected_rows, require_digest
from hf_credit.hub.leaderboard.seasons import Season
from hf_credit.hub.leaderboard.submission import Hub

UNPROVED = "by form, identity unproved"


def check_files(entry_file: Path, replies_file: Path, season: Season) -> tuple[Entry, str]:
    """What a verifier does before it plays: form, season, seeds, and every reply executed again.

    Args:
        entry_file, replies_file: as `hf-credit submit --output` writes them.
        season: that is open.

    Returns:
        The entry and its id.

    Raises:
        ValueError: a rule is broken, in one sentence.
    """
    with entry_file.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    entry = Entry.from_json(content)
    if (entry.season, entry.benchmark.partition("@")[0]) != (season.name, season.benchmark) or not season.open:
        raise ValueError(f"an entry must be of the open season {season.name!r}, got {entry.season!r}; play its tasks.")
    require_digest(replies_file, entry.episodes_sha256)
    episodes = read_replies(replies_file, expected_rows(entry, season))
    if entry.kind == "policy":
        require_seeds(entry, season, episodes)
        replay_entry(entry, season, episodes)
    return entry, entry_id(content, entry.episodes_sha256)


class Form:
    """Sends entries that were checked: as the visitor who signed in, or as the page, so many an hour at most.

    Args:
        hub: with the page's own token; `None` where the page has none, and sends for those alone who sign in.
        most: pull requests an hour as the page.
        clock: seconds that only ever grow.
        visitors: the Hub whose accounts visitors can sign in to; `None` where they cannot.
    """

    def __init__(
        self,
        hub: Hub | None,
        most: int = 6,
        clock: Callable[[], float] = time.monotonic,
        visitors: Hub | None = None,
    ) -> None:
        self._hub = hub
        self._visitors = visitors
        self._most = most
        self._clock = clock
        self._sent: list[float] = []
        self._lock = threading.Lock()

    @property
    def sends(self) -> bool:
        """Whether it can open pull requests at all."""
        return self._hub is not None or self.signs_in

    @property
    def signs_in(self) -> bool:
        """Whether visitors can sign in."""
        return self._visitors is not None

    def send(self, entry_file: Path, replies_file: Path, season: Season, token: str | None = None) -> str:
        """Checks the files and opens a pull request: the visitor's own, or one marked as of nobody who proved who
        they are.

        Args:
            entry_file, replies_file, season: as for `check_files`.
            token: of a visitor who signed in.

        Returns:
            What to tell the visitor.

        Raises:
            ValueError: a rule is broken, or too many were sent this hour.
            OSError: the Hub refused.
        """
        entry, name = check_files(entry_file, replies_file, season)
        files: dict[str, Path | bytes] = {
            entry_path(name): entry_file.read_bytes(),
            episodes_path(name): replies_file.read_bytes(),
        }
        if self._visitors is not None and token is not None:
            theirs = dataclasses.replace(self._visitors, token=token)
            own = theirs.publish(files, season.results, "dataset", pr=True, message=f"Enter {name[:8]}")
            return f"Opened {own.pull_request} in your name."
        if self._hub is None:
            how = (
                "Sign in to send them, or use hf-credit submit."
                if self.signs_in
                else "Send them with hf-credit submit."
            )
            return f"The files are right: {entry.name!r}, {name}. {how}"
        with self._lock:
            now = self._clock()
            self._sent = [one for one in self._sent if now - one < 3600]
            if len(self._sent) >= self._most:
                raise ValueError(f"this form opens at most {self._most} pull requests an hour; use hf-credit submit.")
            self._sent.append(now)
        message = f"Enter {name[:8]} ({UNPROVED})"
        made = self._hub.publish(files, season.results, "dataset", pr=True, message=message)
        return f"Opened {made.pull_request} ({UNPROVED})."
