"""F1 of answers as a module of `evaluate`; the computation is hf-credit's."""

import datasets
import evaluate

from .computation import token_f1

_DESCRIPTION = """\
How much of a story an answer tells: F1 of the words, and of the characters, that the two have in common, as multisets.
"""

_CITATION = """\
@misc{t3,
  title = {T3: Reducing Belief Deviation in Reinforcement Learning for Active Reasoning},
  note = {arXiv:2510.12264},
  year = {2025}
}
"""

_KWARGS_DESCRIPTION = """
Args:
    predictions: the answers.
    references: the true stories.

Returns:
    f1_word: in [0, 1], a mean over answers; words are what white space separates.
    f1_character: the same over all characters.
    exact: the share of answers whose words are those of the story.

Examples:
    >>> metric = evaluate.load("./answer_f1")
    >>> metric.compute(predictions=["the man had hiccups"], references=["the man had a cold"])["exact"]
    0.0
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class AnswerF1(evaluate.Metric):
    """See the description."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {"predictions": datasets.Value("string"), "references": datasets.Value("string")}
            ),
        )

    def _compute(self, predictions, references):
        words, characters = (
            [token_f1(said, due, level) for said, due in zip(predictions, references, strict=True)]
            for level in ("word", "character")
        )
        return {
            "f1_word": sum(words) / len(words),
            "f1_character": sum(characters) / len(characters),
            "exact": sum(one == 1 for one in words) / len(words),
        }
