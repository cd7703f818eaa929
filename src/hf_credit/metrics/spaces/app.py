"""A page that runs a metric: its inputs as JSON, its examples, and the card.

    hf-credit metrics influence --output spaces
    python spaces/influence/app.py

All metrics share this file: each built Space contains a copy, which serves its own folder.
"""

import importlib.util
import json
import math
from pathlib import Path

import evaluate
import gradio as gr

FOLDER = Path(__file__).resolve().parent
_MOST_CHARACTERS = 200_000


def own_examples():
    """Returns the examples in the tests of this metric."""
    spec = importlib.util.spec_from_file_location("examples", FOLDER / "tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [{name: value for name, value in case.items() if name != "result"} for case in module.test_cases]


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
    examples = [json.dumps(case, ensure_ascii=False) for case in own_examples()]
    card = (FOLDER / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
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
