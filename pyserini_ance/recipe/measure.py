"""Measures by the names that recipes, tables and commands give them: those of ir-measures."""

import ast
import difflib
import re
from collections.abc import Iterable
from typing import Annotated

import ir_measures
from ir_measures import Measure
from pydantic import AfterValidator

EXAMPLES = "nDCG@10, RR@10, R@100, AP, P@5, Success@20, RR(rel=2)@10"
SPELLING = re.compile(r"(?P<name>\w+)(?:\((?P<parameters>.*)\))?(?:@(?P<cutoff>[1-9]\d*|\d+\.\d+))?")


def parse(names: Iterable[str]) -> list[Measure]:
    """The measures of these names, ready to compute. Raises ValueError for one that is unknown, misspelt or not installed."""
    return [_parse(name.strip()) for name in names]


def as_in_tables(name: str) -> str:
    """The name itself. Raises ValueError for one that is unknown, or that tables call otherwise."""
    (measure,) = parse([name])
    if str(measure) != name:
        raise ValueError(f"tables call {name} {measure}; write {measure}")
    return name


# A measure by the one name that tables have for it, so that figures of several places meet.
MeasureName = Annotated[str, AfterValidator(as_in_tables)]


def _parse(text: str) -> Measure:
    # Not ir_measures.parse_measure: in 0.4.3 it uses ast.Num, which Python 3.14 no longer has.
    spelt = SPELLING.fullmatch(text)
    if not spelt:
        raise ValueError(f"measure {text!r} is not of the form Name@cutoff or Name(key=value)@cutoff, for example {EXAMPLES}")
    registered = ir_measures.measures.registry.get(spelt["name"])
    if registered is None:
        raise ValueError(f"unknown measure {text!r}{_did_you_mean(spelt['name'])}; examples: {EXAMPLES}")
    parameters = _parameters(spelt["parameters"] or "", text)
    if spelt["cutoff"]:
        parameters[registered.AT_PARAM] = ast.literal_eval(spelt["cutoff"])
    return _computable(registered, parameters, text)


def _parameters(text: str, measure: str) -> dict:
    try:
        match ast.parse(f"f({text})", mode="eval").body:
            case ast.Call(args=[], keywords=keywords):
                return {keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords}
    except (SyntaxError, ValueError):
        pass
    raise ValueError(f"measure {measure!r}: {text!r} is not a list of key=value, for example RR(rel=2)@10")


def _computable(registered: Measure, parameters: dict, text: str) -> Measure:
    known = registered.SUPPORTED_PARAMS
    fits = parameters.keys() <= known.keys() and all(
        known[key].validate(parameters[key]) if key in parameters else not known[key].required for key in known
    )
    if not fits:
        listed = ", ".join(f"{key} (required)" if known[key].required else key for key in known)
        raise ValueError(f"measure {text!r} has a wrong or missing parameter; it takes {listed}; examples: {EXAMPLES}")
    measure = registered(**parameters)
    try:
        ir_measures.evaluator([measure], {})
    except ValueError as error:
        raise ValueError(f"measure {text!r} cannot be computed here: {error}") from None
    return measure


def _did_you_mean(name: str) -> str:
    by_lower_case = {known.lower(): known for known in reversed(ir_measures.measures.registry)}  # aliases come last
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return f" (did you mean {by_lower_case[near[0]]!r}?)" if near else ""
