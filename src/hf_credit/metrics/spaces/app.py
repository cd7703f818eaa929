"""A page to try a metric on: its inputs as JSON, its own examples, and the card.

    hf-credit metrics influence --output spaces
    python spaces/influence/app.py

One file for all metrics: each Space that is built gets a copy, which serves the folder it lies in.
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
    """The examples that the tests of this metric hold."""
    spec = importlib.util.spec_from_file_location("examples", FOLDER / "tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [{name: value for name, value in case.items() if name != "result"} for case in module.test_cases]


def compute(text):
    """The metric of the inputs that a JSON text holds; what is not a number is shown as null."""
    if len(text) > _MOST_CHARACTERS:
        raise gr.Error(f"the inputs must have at most {_MOST_CHARACTERS} characters, got {len(text)}; use Python.")
    try:
        inputs = json.loads(text)
        if not isinstance(inputs, dict):
            raise ValueError(f"the inputs must be a JSON object, got {type(inputs).__name__}")
        # A module that failed keeps what it was given, so each computation has one of its own.
        result = evaluate.load(str(FOLDER), keep_in_memory=True).compute(**inputs)
    except (ValueError, TypeError, RecursionError) as error:
        raise gr.Error(str(error)[:500], print_exception=False) from None
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in result.items()}


def build():
    """The page."""
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
