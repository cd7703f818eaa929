"""F1 of answers as a module of `evaluate`; the computation is hf-credit's."""

from .computation import T3, Measure, token_f1


class AnswerF1(Measure, citation=T3, inputs={"predictions": "string", "references": "string"}):
    """How much of a story an answer contains: F1 of their common words, and of their common characters, as multisets.

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

    def _compute(self, predictions, references):
        words, characters = (
            [token_f1(answer, story, level) for answer, story in zip(predictions, references, strict=True)]
            for level in ("word", "character")
        )
        return {
            "f1_word": sum(words) / len(words),
            "f1_character": sum(characters) / len(characters),
            "exact": sum(one == 1 for one in words) / len(words),
        }
