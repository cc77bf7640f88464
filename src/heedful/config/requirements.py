"""What a value must be, in words, where pydantic refuses it."""

from __future__ import annotations

from typing import Any

WORDS = {  # by pydantic's type of the error, with what its context names
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "list_type": "a list",
    "tuple_type": "a list",
    "literal_error": "{expected}",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
}


def requirement(problem: Any) -> str:
    """What a refused value must be, or do, as a sentence without its end: `it must be a whole number`."""
    if words := WORDS.get(problem["type"]):
        limits = problem.get("ctx", {}).items()
        context = {name: f"{limit:.15g}" if isinstance(limit, float) else limit for name, limit in limits}
        return f"it must be {words.format(**context)}"
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}"
