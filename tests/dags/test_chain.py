"""When the last task fails, and which failures are tried again. Asked of the real task in one Airflow process."""

import json

import pytest

FINE = {"explained": {"unfinished_checks": 0}, "checked": {"critical_failures": []}}
ANSWER = {"answer": "FINDINGS", "headline": "2 findings."}

GATE = """
import json, os
from airflow.sdk.exceptions import AirflowFailException
from fabric_health.airflow import chain
for case in json.loads(os.environ["CASES"]):
    params = {"fail_on": case.pop("fail_on")}
    chain.get_current_context = lambda: {"params": params}
    try:
        print("RESULT", json.dumps(["passed", chain.gate.function(**case)]))
    except AirflowFailException as error:
        print("RESULT", json.dumps(["failed", str(error)]))
"""

CASES = {
    "findings are results": (("never", 1, 1), {}, ["passed", "FINDINGS"]),
    "a warning on warning": (
        ("warning", 0, 1),
        {},
        ["failed", "1 finding(s) of severity warning or worse. FINDINGS: 2"],
    ),
    "both on warning": (("warning", 1, 1), {}, ["failed", "2 finding(s) of severity warning or worse."]),
    "a warning on critical": (("critical", 0, 3), {}, ["passed", "FINDINGS"]),
    "a critical one on critical": (("critical", 1, 3), {}, ["failed", "1 finding(s) of severity critical or worse."]),
    "nothing on warning": (("warning", 0, 0), {}, ["passed", "FINDINGS"]),
    "an unfinished check": (("never", 0, 0), {"explained": {"unfinished_checks": 1}}, ["failed", "1 check(s) did not"]),
    "broken data": (
        ("never", 0, 0),
        {"checked": {"critical_failures": ["facts: keys are unique", "links: fresh"]}},
        ["failed", "critical data-quality failures: facts: keys are unique; links: fresh. FINDINGS: 2 findings."],
    ),
}


@pytest.fixture(scope="module")
def outcomes(python_in):
    cases = [
        {**FINE, "fail_on": on, "answer": {**ANSWER, "critical": critical, "warning": warning}, **extra}
        for (on, critical, warning), extra, _ in CASES.values()
    ]
    lines = python_in(GATE, CASES=json.dumps(cases)).splitlines()
    found = [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_gate(outcomes, case):
    how, text = CASES[case][2]
    assert outcomes[case][0] == how
    assert outcomes[case][1].startswith(text)


def test_mistakes_of_people_are_not_tried_again_and_outages_are(python_in):
    """The names in the policy are those of real exceptions; a store that is away is none of them."""
    out = python_in(
        """
import importlib, json
from airflow.sdk import RetryAction
from fabric_health import errors
from fabric_health.airflow import chain
failing = []
for rule in chain.RETRIES.rules:
    assert rule.action is RetryAction.FAIL
    for name in rule.exception:
        module, _, cls = name.rpartition(".")
        failing.append(getattr(importlib.import_module(module), cls))
print("RESULT", json.dumps({
    n: issubclass(c, tuple(failing))
    for n, c in vars(errors).items() if isinstance(c, type) and c.__module__ == errors.__name__
}))
"""
    )
    fails = json.loads(next(x for x in out.splitlines() if x.startswith("RESULT ")).removeprefix("RESULT "))
    assert {n for n, never_again in fails.items() if never_again} == {
        "UsageError",
        "SiteError",
        "ConnectionSettingError",
        "ContractError",
    }
    assert fails["StoreError"] is False
