"""The format that a call asks for: the reply is sampled freely, and then it has the format or not.

A sampler that only draws what fits never draws what does not: the free policy, which is trained, would get no gradient
from it, and the ratio of the two would not be 1 but the mass of the allowed tokens.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from hf_credit.agents.white_lists import RefusedCallError
from hf_credit.optional_packages import needed
from hf_credit.rollouts.failures import in_one_line
from hf_credit.safe_io import parse_json

# Left to the program: patterns, which may take exponential time on a reply, what depends on these, and quadratic time.
_UNREAD = ("pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems", "uniqueItems", "$dynamicRef")


def schema_of(asked: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns the JSON schema that a call's `response_format` asks for; `None` for text.

    Raises:
        RefusedCallError: it is no schema.
    """
    if asked is None or asked.get("type", "text") == "text":
        return None
    declared = (asked.get("json_schema") or asked).get("schema")
    schema = {"type": "object"} if asked["type"] == "json_object" or declared is None else declared
    _validators(json.dumps(schema))
    return schema


def fits(text: str, schema: Mapping[str, Any]) -> bool:
    """Returns whether a reply is JSON of a schema, apart from its patterns, which the program's own check reads.

    Raises:
        referencing.exceptions.Unresolvable: the schema refers to what it does not contain; nothing is fetched.
    """
    jsonschema, registry, kind = _validators(json.dumps(schema))
    known: dict[tuple[str, int], list[Any]] = {}  # else nested alternatives would take exponential time

    def referred(validator: Any, reference: str, value: Any, within: Any) -> list[Any]:
        at = reference, id(value)
        if at not in known:
            known[at] = list(kind.VALIDATORS["$ref"](validator, reference, value, within))
        return known[at]

    try:
        value = parse_json(text, finite=True)
        return bool(jsonschema.validators.extend(kind, {"$ref": referred})(schema, registry=registry).is_valid(value))
    except (ValueError, RecursionError):
        return False


@functools.lru_cache(maxsize=64)
def _validators(written: str) -> tuple[Any, Any, Any]:
    """Returns the library, a registry without other schemas, and the class of validators of a schema."""
    jsonschema = needed("calls with a response_format need", "jsonschema", "agents")
    from referencing.jsonschema import EMPTY_REGISTRY  # which jsonschema needs

    validator = jsonschema.Draft202012Validator
    unread = (*_UNREAD, "additionalProperties") if '"patternProperties"' in written else _UNREAD
    try:
        validator.check_schema(json.loads(written))
    except jsonschema.SchemaError as error:
        raise RefusedCallError(
            f"response_format of a call must be a JSON schema, got one with {in_one_line(error)}; correct it."
        ) from None
    return jsonschema, EMPTY_REGISTRY, jsonschema.validators.extend(validator, dict.fromkeys(unread, lambda *_: ()))
