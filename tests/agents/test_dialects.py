"""A dialect is one module and one line of a list, and nothing else of the endpoint knows which it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import hf_credit.agents
from hf_credit.agents.dialects import DIALECTS, Dialect, dialect_of, variables

SOURCE = Path(str(hf_credit.agents.__file__)).parent
MODULES = {type(one).__module__.rpartition(".")[2] for one in DIALECTS}


def test_every_dialect_is_in_the_list() -> None:
    assert {path.stem for path in (SOURCE / "dialects").glob("*.py")} == {"__init__", "base", *MODULES}
    assert len(MODULES) == len(DIALECTS)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_only_the_list_knows_the_module_of_a_dialect(path: Path) -> None:
    imported = {one for one in MODULES if f"agents.dialects.{one}" in path.read_text()}
    assert imported == (MODULES if path == SOURCE / "dialects" / "__init__.py" else set())


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_an_address_is_one_of_a_single_dialect(dialect: Dialect) -> None:
    path = f"/v1{dialect.path}"
    assert [one for one in DIALECTS if one.reads(path)] == [dialect]
    assert dialect_of(path, {}) is dialect
    assert dialect_of("/v1/elsewhere", {dialect.marker: "1"}) is (dialect if dialect.marker else DIALECTS[0])
    assert type(dialect).__mro__[1] is Dialect


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/models"])
def test_a_key_is_a_bearer_token_or_in_the_header_of_an_sdk(path: str) -> None:
    key = dialect_of(path, {}).key
    assert key({"authorization": "Bearer a"}) == key({"x-api-key": "a"}) == "a"
    assert key({}) == ""


def test_programs_find_the_endpoint_by_the_variables_of_each_sdk() -> None:
    found = variables("http://127.0.0.1:1/v1", "k")
    assert (found["OPENAI_BASE_URL"], found["OPENAI_API_KEY"]) == ("http://127.0.0.1:1/v1", "k")
    assert (found["ANTHROPIC_BASE_URL"], found["ANTHROPIC_API_KEY"]) == ("http://127.0.0.1:1", "k")
    assert found.items() == {item for one in DIALECTS for item in one.variables("http://127.0.0.1:1/v1", "k").items()}
