"""A page that runs a metric: its inputs as JSON, its examples, and the card.

    hf-credit metrics influence --output spaces
    python spaces/influence/app.py

All metrics share this file: each built Space contains a copy, which serves its own folder.
"""

import ast
import doctest
import json
import math
from pathlib import Path

import evaluate
import gradio as gr

FOLDER = Path(__file__).resolve().parent
_MOST_CHARACTERS = 200_000


def own_examples(card):
    """Returns the inputs of the examples in the card, which are plain values."""
    sources = [example.source for example in doctest.DocTestParser().get_examples(card)]
    calls = [node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        {one.arg: ast.literal_eval(one.value) for one in call.keywords}
        for call in calls
        if getattr(call.func, "attr", None) == "compute"
    ]


def compute(text):
    """Computes the metric of the inputs in a JSON text; NaN becomes null."""
    if len(text) > _MOST_CHARACTERS:
        raise gr.Error(f"the inputs must have at most {_MOST_CHARACTERS} characters, got {len(text)}; use Python.")
    try:
        inputs = json.loads(text)
        if not isinstance(inputs, dict):
            raise ValueError(f"the inputs must be a JSON object, got {type(inputs).__name__}")
        # A module keeps its inputs after a failure, so each computation loads a new one.
        result = evaluate.load(str(FOLDER), keep_in_memory=True).compute(**inputs)
    except (ValueError, TypeError, RecursionError) as error:
        raise gr.Error(str(error)[:500], print_exception=False) from None
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in result.items()}


def build():
    """Builds the page."""
    card = (FOLDER / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    examples = [json.dumps(case, ensure_ascii=False) for case in own_examples(card)]
    with gr.Blocks(title=FOLDER.name) as page:
        inputs = gr.Textbox(value=examples[0], label="Inputs (JSON)", lines=6)
        button = gr.Button("Compute", variant="primary")
        output = gr.JSON(label="Result")
        gr.Examples(examples, inputs)
        gr.Markdown(card)
        button.click(compute, inputs, output, api_name="compute")
    return page


if __name__ == "__main__":
    build().launch()
