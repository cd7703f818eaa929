"""F1 of answers as a module of `evaluate`; the computation is hf-credit's."""

from .computation import Measure, token_f1


class AnswerF1(Measure, inputs={"predictions": "string", "references": "string"}):
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
