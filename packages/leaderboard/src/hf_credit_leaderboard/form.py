"""Entries that visitors of the page submit: checked, and sent in the visitor's name or as of unproved identity."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hf_credit_leaderboard import entries
from hf_credit_leaderboard.seasons import Season
from hf_credit_leaderboard.sources import Hub
from hf_credit_leaderboard.verification import replay_entry

UNPROVED = "by form, identity unproved"


def check_files(entry_file: Path, replies_file: Path, season: Season) -> tuple[entries.Entry, str]:
    """Checks form, season and seeds and replays every reply, as a verifier does before it plays.

    Args:
        entry_file, replies_file: the files that `hf-credit submit --output` writes.

    Returns:
        The entry and its id.

    Raises:
        ValueError: a file breaks a rule, which the message names in one sentence.
    """
    name, entry = entries.read_entry(entry_file)
    entries.require_season(entry, season)
    episodes = entries.read_episodes(replies_file, entry, season)
    replay_entry(entry, season, episodes)
    return entry, name


class Form:
    """Submits checked entries, as the visitor who signed in or, with a limit per hour, as the page.

    Args:
        hub: the Hub with the page's own token; `None` without one, so that only signed-in visitors can submit.
        most: the most pull requests per hour of the page.
        visitors: the Hub that visitors can sign in to; `None` without sign-in.

    Attributes:
        signs_in: whether visitors can sign in.
        sends: whether the form can open pull requests.
    """

    def __init__(
        self, hub: Hub | None, most: int = 6, clock: Callable[[], float] = time.monotonic, visitors: Hub | None = None
    ) -> None:
        self._hub = hub
        self._visitors = visitors
        self._most = most
        self._clock = clock
        self._times: list[float] = []
        self._lock = threading.Lock()
        self.signs_in = visitors is not None
        self.sends = hub is not None or self.signs_in

    def send(self, entry_file: Path, replies_file: Path, season: Season, token: str | None = None) -> str:
        """Checks the files and opens a pull request in the visitor's name, or one marked as of unproved identity.

        Args:
            entry_file, replies_file, season: as for `check_files`.
            token: the token of a visitor who signed in.

        Returns:
            The message for the visitor.

        Raises:
            ValueError: a file breaks a rule, or the page opened too many pull requests this hour.
            OSError: the Hub refused.
        """
        entry, name = check_files(entry_file, replies_file, season)
        contents = entry_file.read_bytes(), replies_file.read_bytes()
        files = dict(zip(entries.paths_of(name), contents, strict=True))
        message = f"Enter {name[:8]}"
        if self._visitors is not None and token is not None:
            sender, how = dataclasses.replace(self._visitors, token=token), "in your name"
        elif self._hub is not None:
            self._count()
            sender, how = self._hub, f"({UNPROVED})"
            message += f" {how}"
        else:
            how = "Sign in to send them, or use" if self.signs_in else "Send them with"
            return f"The files are right: {entry.name!r}, {name}. {how} hf-credit submit."
        opened = sender.publish(files, season.results, "dataset", pr=True, message=message)
        return f"Opened {opened.pull_request} {how}."

    def _count(self) -> None:
        """Counts a pull request of the page, and refuses one beyond the limit."""
        with self._lock:
            now = self._clock()
            self._times = [time for time in self._times if now - time < 3600]
            if len(self._times) >= self._most:
                raise ValueError(f"this form opens at most {self._most} pull requests an hour; use hf-credit submit.")
            self._times.append(now)
