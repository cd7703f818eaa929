"""What the page says of itself."""

from __future__ import annotations

import html

from hf_credit.hub.leaderboard.seasons import Season

_ABOUT = """
<p>Rows are <b>methods</b>, each with a checkpoint for every training seed. A row with one seed says what that
checkpoint does, and is marked: another seed of the same method may do otherwise.</p>
<ul>
<li><b>self-reported</b>: form, counts and seeds are right.</li>
<li><b>replayed</b>: every reply was executed again, and events, endings and outcomes are the same.</li>
<li><b>verified</b>: the checkpoints were played again, by a process without token or network. Their claim on the
public tasks survived a paired test (p &ge; 0.001), and their outcomes on secret tasks make the rank. Only verified
entries rank: an oracle could have written the replies of any other.</li>
</ul>
<p>A <b>rank</b> is a range: 1 + how many are significantly better, to how many are not significantly worse. Entries
are compared task by task with paired permutation tests, and all p-values of a board are corrected together (Holm, 5%).
Intervals are 95 % bootstrap intervals over training seeds and tasks. The tests speak of these checkpoints on such
tasks; what other training runs would do is in the interval, and only where there are several seeds.</p>
<p>On a board of <b>credit</b> an estimator is scored by how its credit ranks decisions beside their exact advantages,
which are enumerated (fidelity, Spearman), by its bias and variance in the unit of the reward (after the one factor
that brings its credit nearest to them), and by the tokens it took. Critics are taught first, on rows of training; what
that took is a column of its own.</p>
<p><b>Who may enter what</b>: anybody may enter any public checkpoint, one's own or another's. Its row names the
<b>account</b> whose repository holds it, since nobody else can publish there. Weights that an earlier entry shows from
another account's repository are linked to that entry and have no rank; weights of the same account, as in an entry
with one more seed, are linked and ranked. A policy whose <b>chat template</b> the season does not know has no rank
until a maintainer has read the template, since a template can play for a policy.</p>
<p>Seeds of secret tasks come from a salt, of which
the season promises the SHA-256 now and shows the rest when it is over. Records are signed.</p>
"""

_SUBMIT = """
<p>Publish a checkpoint for each training seed, then:</p>
<pre>hf-credit submit me/policy-seed0 me/policy-seed1 BOARD --benchmark {0}</pre>
<p>It plays the public tasks, and opens a pull request with every reply. A method's credit is entered with</p>
<pre>hf-credit submit --method replay_loo BOARD --benchmark {0}</pre>
<p>Here you can check the two files that <code>--output</code> writes{1}.</p>
"""


def about_html(season: Season) -> str:
    """The rules, and what the season promises."""
    boards = [(one.name, f"{one.public} public and {one.secret} secret tasks, {one.size}") for one in season.tasks]
    boards += [(one.name, f"credit: {one.repeats} updates of {one.instances} rows") for one in season.credit]
    listed = "".join(f"<li><b>{html.escape(name)}</b>: {html.escape(told)}</li>" for name, told in boards)
    salt = season.salt or "shown when the season is over"
    facts = [
        ("season", f"{season.name} ({'open' if season.open else 'over'})"),
        ("benchmark", season.benchmark),
        ("results", season.results),
        ("SHA-256 of the salt", season.salt_sha256),
        ("salt", salt),
        ("key of the records (Ed25519)", season.public_key),
    ]
    rows = "".join(
        f'<li>{html.escape(name)}: <code class="told">{html.escape(value)}</code></li>' for name, value in facts
    )
    return f"{_ABOUT}<h3>Boards</h3><ul>{listed}</ul><h3>This season</h3><ul>{rows}</ul>"


def submit_html(sends: bool, benchmark: str = "OWNER/BENCHMARK") -> str:
    """How to submit.

    Args:
        sends: whether the form opens pull requests.
        benchmark: the dataset of the season.
    """
    more = ", and send them; a pull request by form says that nobody proved who they are" if sends else ""
    return _SUBMIT.format(html.escape(benchmark), more)
