"""What vLLM's own server answers, by its protocol classes (0.22 to 0.31), in `stock.json`.

`<text>`, `<number>` and `<any>` stand for values that depend on the model. Fields of only some of these versions are
left out.
"""

import json
from pathlib import Path

STOCK = json.loads(Path(__file__).with_name("stock.json").read_text())
KINDS = {"<text>": str, "<number>": (int, float), "<any>": object}


def differences(wanted, got, place=""):
    """The places where a value is not as in the table; other fields are free."""
    if isinstance(wanted, str) and wanted in KINDS:
        return [] if isinstance(got, KINDS[wanted]) else [f"{place}: {got!r}"]
    if isinstance(wanted, dict) and isinstance(got, dict):
        missing = [f"{place}.{name} is missing" for name in wanted if name not in got]
        known = [name for name in wanted if name in got]
        return missing + [one for name in known for one in differences(wanted[name], got[name], f"{place}.{name}")]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        pairs = zip(wanted, got, strict=True)
        return [one for at, pair in enumerate(pairs) for one in differences(*pair, f"{place}[{at}]")]
    return [] if wanted == got else [f"{place}: {got!r}"]


def collapsed(types):
    """The types of events, without repetitions of one."""
    return [one for one, after in zip(types, [*types[1:], None], strict=True) if one != after]
