"""The verifier: checks each open pull request, lists its entry with a signed record, or gives a reason, and closes it.
It commits what it read and merges nothing, since the author may push at any time. After a crash it starts open pull
requests again; an entry without a record, which a merge by hand leaves, gets one."""

from __future__ import annotations

import dataclasses
import functools
import logging
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile

from hf_credit.files import OwnFolder, copy
from hf_credit.hub.checkpoints import STATE_PREFIX
from hf_credit.hub.client import connect
from hf_credit.hub.loading import TooLarge
from hf_credit.hub.publishing import Repository
from hf_credit.hub.retries import HubError, is_passing, retried
from hf_credit.redaction import redacted, without_folders, written_out
from hf_credit.validators import first_line
from hf_credit_leaderboard import entries
from hf_credit_leaderboard.confined import Limits, confined_play
from hf_credit_leaderboard.inputs import MOST_BYTES, to_json
from hf_credit_leaderboard.records import SELF_REPORTED, Record, record_path
from hf_credit_leaderboard.results import Results
from hf_credit_leaderboard.seasons import SeasonSecret
from hf_credit_leaderboard.sources import MOST_LISTED, Hub
from hf_credit_leaderboard.verification import Play, Refusal, verify_entry
from hf_credit_leaderboard.weights import WANTED

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """The result of a pull request.

    Attributes:
        number: that of the pull request; 0 for an entry that was there without a record.
        entry: the id of the entry, if it has one.
        listed: whether it is listed.
        reason: of a refusal, of a pull request that stays as it is, or the verification result.
    """

    number: int
    entry: str | None
    listed: bool
    reason: str


class Verifier:
    """Verifies the entries of a season with its secret.

    Args:
        hub: the Hub, with an account that may write.
        limits, play: as for `hf_credit_leaderboard.verification.verify_entry`.

    Raises:
        ValueError: the benchmark holds no season, or the secret belongs to another one.
    """

    def __init__(
        self,
        hub: Hub,
        benchmark: str,
        secret: SeasonSecret,
        *,
        limits: Limits | None = None,
        play: Play = confined_play,
    ) -> None:
        self.hub = hub
        self.season, _ = hub.season(benchmark)
        if (secret.salt_sha256, secret.public_key) != (self.season.salt_sha256, self.season.public_key):
            raise ValueError(f"the secret must be that of the season {self.season.name!r}, got another season's.")
        self.secret = secret
        self.limits = limits or Limits()
        self.play = play
        self.api = connect(hub.endpoint, hub.token)
        self._repo = Repository(self.api, self.season.results, "dataset")

    def rulings(self) -> Iterator[Ruling]:
        """Handles every entry to `finish` and every open pull request.

        A round takes the oldest pull request of each account, so that nobody waits longer than for one entry of each
        other account. Each is judged alone: whatever it raises is its ruling.

        Raises:
            HubError: the Hub refuses this verifier, or failed after all retries.
        """
        for row in self.results().rows:
            if row.record is None or row.record.awaits(self.season):
                yield self._alone(self.finish, row.id, 0)
        judged: set[int] = set()
        while True:
            newest_first = sorted(self._repo.open_requests(), key=lambda one: -one.num)
            oldest = {one.author: one.num for one in newest_first if one.num not in judged}
            if not oldest:
                return
            for number in sorted(oldest.values()):
                judged.add(number)
                yield self._alone(self.handle, number, number)

    def _alone(self, judge: Callable[[Any], Ruling], subject: int | str, number: int) -> Ruling:
        """Returns the ruling on an entry. What it raises is its own if the Hub answers this verifier otherwise."""
        try:
            return judge(subject)
        except Exception as error:
            if isinstance(error, HubError):
                self._repo.head()
            entry = None if number else str(subject)
            reason = f"It stays as it is: {_reason(error, f'entry {entry or number}')}"
            return Ruling(number=number, entry=entry, listed=False, reason=reason)

    def handle(self, number: int) -> Ruling:
        """Checks one pull request, commits its entry with a record unless there is a reason not to, and closes it.

        Any exception that its files cause is a reason. The commit has the bytes that were read, and no others.

        Raises:
            OSError: the Hub (a `HubError`) or this machine failed.
        """
        name = None
        try:
            name, head, submitter = self._submitted(number)
            entry, episodes, files = self._read(name, head)
            record = self.verify(name, entry, episodes, submitter)
            files[record_path(name)] = record.signed(self.secret)
            self._require_publishable(files, entry)
            self._author(number)  # who may have closed it meanwhile
        except OSError:
            raise
        except Exception as error:
            return self._refuse(number, name, _reason(error, f"pull request {number}"))
        self._publish(files)
        comment = f"Listed: `{record.badge}`. {' '.join(record.notes)}".strip()
        self._close(number, comment)
        return Ruling(number=number, entry=name, listed=True, reason=comment)

    def finish(self, name: str) -> Ruling:
        """Verifies an entry without a record, or again one whose templates a maintainer accepted since."""
        row = self.results().row(name)
        board, submitter = row.entry.board, row.record.submitter if row.record else ""
        try:
            entry, episodes, _ = self._read(name, None)
            record = self.verify(name, entry, episodes, submitter)
            files: dict[str, Path | bytes] = {record_path(name): record.signed(self.secret)}
            self._require_publishable(files, entry)
        except OSError:
            raise
        except Exception as error:
            reason = redacted(f"Merged, and refused when it was verified: {_reason(error, f'the entry {name}')}")
            record = Record(entry=name, season=self.season.name, board=board, badge=SELF_REPORTED, notes=(reason,))
            files = {record_path(name): record.signed(self.secret)}
        self._publish(files)
        return Ruling(number=0, entry=name, listed=True, reason=" ".join(record.notes) or record.badge)

    def verify(
        self, name: str, entry: entries.Entry, episodes: Sequence[entries.PlayedEpisode], submitter: str = ""
    ) -> Record:
        """Checks that an entry is of this season, new, and not one too many of its account, then calls `verify_entry`.

        Raises:
            ValueError: the entry is not listed, for the reason in the message.
        """
        benchmark = Repository(self.api, self.season.benchmark, "dataset")
        # Read again, since its salt may have been published after this round began.
        season, _ = self.hub.season(self.season.benchmark)
        entries.require_season(entry, season, [one.commit_id for one in benchmark.history()])
        listed = [row for row in self.results().rows if row.id != name]
        for row in listed:
            if entries.same_claim(row.entry) == entries.same_claim(entry):
                raise Refusal(
                    f"an entry must be new, got the results of {row.id} ({row.entry.name}) again under another name; "
                    "nothing is listed twice."
                )
        records = [row.record for row in listed if row.record is not None and row.entry.board == entry.board]
        most = self.season.board(entry.board).each
        if Counter(one.submitter.casefold() for one in records if submitter)[submitter.casefold()] >= most:
            raise Refusal(f"an account may list at most {most} entries on a board, got one more; it is not played.")
        with self._work() as work:
            return verify_entry(
                name,
                entry,
                episodes,
                self.season,
                self.secret,
                functools.partial(self._checkpoint, work),
                submitter=submitter,
                listed=records,
                limits=self.limits,
                play=self.play,
            )

    def _work(self) -> OwnFolder:
        """A folder for what an entry makes the verifier download, which goes with it."""
        return OwnFolder(self.hub.cache_dir or HF_HUB_CACHE, prefix="hf-credit-verification-")

    def results(self) -> Results:
        """Fetches the current results."""
        return self.hub.results(self.season)

    def _submitted(self, number: int) -> tuple[str, str, str]:
        """Returns the id of a pull request's entry, its commit and its author; it must add one entry and no more."""
        revision = f"refs/pr/{number}"
        author = self._author(number)
        head = self._repo.head(revision)
        main = {one.commit_id for one in self._repo.history()}
        history = [one.commit_id for one in self._repo.history(revision)]
        base = next((commit for commit in history if commit in main), None)
        if base is None:
            raise Refusal("a pull request must start from a commit of main, got another history; open a new one.")
        before, after = self._repo.tree(base), self._repo.tree(head)
        changed = _changed(before, after)
        added = sorted(changed - before.keys())
        name = Path(added[0]).stem if added else ""
        paths = entries.paths_of(name)
        if changed != {*paths} or len(added) != 2:
            raise Refusal(
                "a pull request must add one entry and its replies, entries/ID.json and episodes/ID.parquet, and "
                f"change nothing else, got {', '.join(sorted(changed))[:300] or 'nothing'}; use hf-credit submit."
            )
        if not entries.ENTRY_ID.fullmatch(name):
            raise Refusal(
                f"the name of an entry must be 32 hexadecimal digits, got {name[:64]!r}; use hf-credit submit."
            )
        listed = [path for path in self._repo.tree("main") if path.startswith("entries/")]
        if paths[0] in listed:
            raise Refusal(f"an entry must be new, got {name}, which is listed; nothing is listed twice.")
        if len(listed) >= MOST_LISTED:
            raise Refusal(f"a season may list at most {MOST_LISTED} entries, got one more; submit to the next season.")
        for path, most in zip(paths, (MOST_BYTES, entries.MOST_REPLIES_BYTES), strict=True):
            if after[path].size > most:
                raise Refusal(f"{path.split('/')[0]} must have at most {most} bytes, got {after[path].size}; shorten.")
        return name, head, author

    def _author(self, number: int) -> str:
        author = next((one.author for one in self._repo.open_requests() if one.num == number), None)
        if author is None:
            raise Refusal("a pull request must be open, got one that is closed; open a new one.")
        return str(author)

    def _read(
        self, name: str, revision: str | None
    ) -> tuple[entries.Entry, list[entries.PlayedEpisode], dict[str, Path | bytes]]:
        """Fetches and reads an entry and its replies; also returns the bytes. `name` must be checked: fetch takes
        patterns."""
        paths = entries.paths_of(name)
        with self._work() as work:
            hub = dataclasses.replace(self.hub, cache_dir=work)
            most = MOST_BYTES + entries.MOST_REPLIES_BYTES
            entry_file, replies = map(hub.get(self.season.results, "dataset", revision, paths, most).files.get, paths)
            if entry_file is None or replies is None:
                raise Refusal(f"an entry must have two files, got only one of {name}; submit both.")
            digest, entry = entries.read_entry(entry_file)
            if name != digest:
                raise Refusal(f"an entry's name must be the digest of its files, got {name[:64]!r}; submit it again.")
            entries.require_season(entry, self.season)
            episodes = entries.read_episodes(replies, entry, self.season)
            return entry, episodes, dict(zip(paths, (entry_file.read_bytes(), replies.read_bytes()), strict=True))

    def _checkpoint(self, work: Path, repo: str, commit: str, most_bytes: int) -> Path:
        """Downloads a checkpoint into a folder of its own: a cache holds links into a folder that commits share, so a
        process that can read one could read the others."""
        folder = work / repo / commit
        if folder.is_dir():  # the base of several adapters
            return folder
        stranger = HfApi(endpoint=self.hub.endpoint, token=False)
        if not retried(lambda: stranger.revision_exists(repo, commit), f"looking for {repo}"):
            raise ValueError(
                "a checkpoint must exist at the commit that the entry names and be public, got "
                f"{repo}@{commit[:12]}; publish it, and keep it there."
            )
        most = min(most_bytes, shutil.disk_usage(work).free // 2)  # of the download and its copy
        first = not any(work.iterdir())
        try:
            with OwnFolder(work, prefix="cache-") as cache:
                hub = dataclasses.replace(self.hub, cache_dir=cache)
                for path, file in hub.get(repo, "model", commit, WANTED, most).files.items():
                    if not Path(path).name.startswith(STATE_PREFIX):  # neither weights nor parameters of the policy
                        copy(file, folder / path)
        except TooLarge:
            if most < most_bytes and first:  # else the entry takes more than there is
                raise HubError(f"a disk must have {2 * most_bytes} bytes free, got {2 * most}; free some.") from None
            raise
        except (HubError, ValueError) as error:
            if isinstance(error, HubError) and (is_passing(error) or not isinstance(error.__cause__, HfHubHTTPError)):
                raise  # trouble of the Hub, its storage or this machine
            raise ValueError(
                f"a checkpoint must exist at the commit that the entry names, got {repo}@{commit[:12]} "
                f"({str(error)[:300]}); publish it, and keep it there."
            ) from None
        return folder

    def _require_publishable(self, files: Mapping[str, Path | bytes], entry: entries.Entry) -> None:
        """Raises a `ValueError` if the files, or the entry without escapes that hide a token, cannot be published."""
        self._publish({**files, "entry.json": to_json(entry)}, dry_run=True)

    def _publish(self, files: Mapping[str, Path | bytes], dry_run: bool = False) -> None:
        message = f"Record {Path(next(iter(files))).stem}"
        self.hub.publish(files, self.season.results, "dataset", message=message, dry_run=dry_run)

    def _refuse(self, number: int, name: str | None, reason: str) -> Ruling:
        # The reason may quote untrusted text, and a comment is Markdown.
        self._close(number, "Refused:\n\n```\n" + reason[:2000].replace("`", "'") + "\n```")
        return Ruling(number=number, entry=name, listed=False, reason=reason)

    def _close(self, number: int, comment: str) -> None:
        self._repo.ask(self.api.change_discussion_status, number, "closed", comment=comment, doing="closing in")


def _reason(error: Exception, what: str) -> str:
    """Returns in one line why an entry is not listed, without folders of this machine, since it is published, and logs
    the traceback of any error but a `ValueError`. Both may quote texts of strangers."""
    line = written_out(without_folders(first_line(error)))
    if isinstance(error, ValueError):
        return line
    logger.error("could not check %s:\n%s", what, written_out("".join(traceback.format_exception(error))))
    remedy = "verify it again" if isinstance(error, OSError) else "correct its files"
    return f"the check of an entry must not fail, got {type(error).__name__}: {line}; {remedy}."


def _changed(before: Mapping[str, RepoFile], after: Mapping[str, RepoFile]) -> set[str]:
    blobs = [{path: file.blob_id for path, file in tree.items()} for tree in (before, after)]
    return {path for path, _ in blobs[0].items() ^ blobs[1].items()}
