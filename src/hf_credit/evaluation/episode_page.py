"""Writes an episode with its credit as an HTML page: a single file without scripts and external resources."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from hf_credit.content import has_images
from hf_credit.evaluation.credited import CreditedEpisode
from hf_credit.files import write
from hf_credit.redaction import written_out

PAGE_FILE = "episode.html"

_ROUNDING = 1e-9  # sums below this are 0 up to rounding


def episode_page(
    episode: CreditedEpisode,
    title: str = "Episode",
    method: str = "",
    others: Sequence[tuple[str, str | None]] = (),
    curves: bytes = b"",
    renewed: int = 0,
) -> str:
    """Returns the HTML page of an episode: for each decision the new part of its context, its reply, reward, verdict
    and advantage, the credit of its tokens if they have their own, and its alternatives.

    Bars and colours are scaled by the largest advantage of the page. All text is escaped, and characters that are
    invisible or change the text direction are shown as codes. Images of messages are within the page.

    Args:
        episode: from `hf_credit.evaluation.credited.credited_episode`.
        title: the title of the page.
        method: the name of the method.
        others: links to other episodes, each a label and the name of its page; `None` as the name of this page.
        curves: learning curves as a PNG file, shown above the episode.
        renewed: seconds after which a browser reads the page again; 0 for never.
    """
    of_tokens = [abs(credit) for one in episode.decisions for _, credit in one.token_credit]
    credits = [other.credit for one in episode.decisions for other in (one, *one.alternatives)]
    largest = max((abs(credit) for credit in credits if credit is not None), default=0.0)
    return _template().render(
        title=title,
        method=method,
        others=others,
        episode=episode,
        curves=base64.b64encode(curves).decode("ascii"),
        renewed=renewed,
        seen=any(has_images(content) for one in episode.decisions for _, content in one.messages),
        largest=largest,
        largest_of_tokens=max(of_tokens, default=0.0),
    )


def write_episode_page(episode: CreditedEpisode, path: str | Path, title: str = "Episode", **more: Any) -> Path:
    """Writes the page of an episode.

    Args:
        episode, title, **more: as in `episode_page`.
        path: the HTML file.
    """
    return write(path, episode_page(episode, title, **more))


def rounded(value: float, form: str) -> str:
    """Formats a number; a number that is 0 up to rounding becomes 0."""
    return format(0.0 if abs(value) < _ROUNDING else value, form)


@functools.cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("hf_credit.evaluation", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["written_out"] = written_out
    environment.filters["signed"] = lambda value: rounded(value, "+.3g")
    environment.filters["number"] = lambda value: "unknown" if value is None else rounded(value, ".3g")
    environment.filters["share"] = lambda value, largest: f"{abs(value) / largest if largest else 0:.3f}"
    environment.filters["parts"] = lambda content: [content] if isinstance(content, str) else content
    return environment.get_template("episode_page.html")
