"""The answers to refused requests: a status, one sentence, and a code for clients."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response


class HubError(Exception):
    """A refused request.

    Args:
        status: of the answer.
        message: one sentence, in the body as `error` and in `X-Error-Message`.
        code: `X-Error-Code`, by which `huggingface_hub` picks its exception: `RepoNotFound`, `RevisionNotFound` or
            `EntryNotFound`.
        headers: more headers.
        body: more entries of the body.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers or {})
        self.body = dict(body or {})

    def response(self) -> Response:
        # A header holds neither line ends nor letters beyond Latin-1.
        headers = {
            "X-Error-Message": self.message.encode("ascii", "replace").decode().replace("\n", " "),
            **self.headers,
        }
        if self.code is not None:
            headers["X-Error-Code"] = self.code
        return JSONResponse({"error": self.message, **self.body}, self.status, headers)


def bad_request(message: str) -> HubError:
    return HubError(400, message)


def no_repo(status: int = 404) -> HubError:
    """Returns the same error for a missing repository and for one that the caller may not read."""
    return HubError(status, "Repository not found.", "RepoNotFound")


def no_revision(revision: str) -> HubError:
    return HubError(404, f"Revision not found: {revision[:100]!r}.", "RevisionNotFound")


def no_entry(path: str, commit: str) -> HubError:
    return HubError(404, f"Entry not found: {path[:200]!r}.", "EntryNotFound", headers={"X-Repo-Commit": commit})
