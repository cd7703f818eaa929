"""Plays `lookups` by a script, as a warm-up imitates it and as episodes can begin late in it."""

from lookups import STATEMENTS, path


class Player:
    """Looks up what is missing with a probability of `quality`, and else replies anything about what it found last."""

    def __init__(self, quality):
        self.quality = quality

    def probabilities(self, state, request):
        question, *notes = request.messages[-1]["content"].split("\n")
        known = dict(note.rpartition(": ")[::2] for note in notes)
        value, columns = path(question)
        right = None
        for column in columns:
            statement = STATEMENTS[column].format(value)
            if statement not in known:
                right = statement
                break
            value = known[statement]
        last = notes[-1].rpartition(" ")[2] if notes else value
        others = [f"answer {last}", *(statement.format(last) for statement in STATEMENTS.values())]
        shares = dict.fromkeys(others, (1 - self.quality) / len(others))
        right = right or f"answer {value}"
        shares[right] = shares.get(right, 0.0) + self.quality
        return shares

    def __call__(self, state, request, draws):
        shares = self.probabilities(state, request)
        return draws.choices(list(shares), list(shares.values()))[0]
