"""What reading one launch gave so far: rows, and the rules it broke."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric_health.checks.model_eval.tables import ModelLaunchProblem
from fabric_health.checks.untrusted import clip
from fabric_health.datasets.contracts import Row
from fabric_health.evidence import CommandResult, UnitEvidence

WHOLE = "launch"


@dataclass
class Outcome:
    """Rows of one launch and its broken rules, each once a subject. Texts in problems are untrusted: they are cut."""

    launch: str
    unit: str
    evidence: UnitEvidence
    rows: list[Row] = field(default_factory=list)
    problems: dict[tuple[str, str], ModelLaunchProblem] = field(default_factory=dict)

    def broken(
        self,
        rule: str,
        detail: str,
        *,
        subject: str = WHOLE,
        refuses: bool = True,
        expected: str | None = None,
        actual: str | None = None,
    ) -> str:
        """Note that ``subject`` breaks ``rule``; return what is wrong as one line."""
        told = clip(detail)
        self.problems.setdefault(
            (rule, subject),
            ModelLaunchProblem(
                launch=self.launch,
                unit=self.unit,
                rule=rule,
                subject=clip(subject, 120),
                refuses=refuses,
                detail=told,
                expected=None if expected is None else clip(expected),
                actual=None if actual is None else clip(actual),
            ),
        )
        return told

    def first_problem(self) -> str | None:
        """Return what makes the launch's numbers unusable as a whole, None when nothing does."""
        return next((p.detail for p in self.problems.values() if p.refuses and p.subject == WHOLE), None)

    def file(self, name: str) -> CommandResult | None:
        """Return an artefact, None when it did not come back whole."""
        found = self.evidence.result(f"artefact:{name}")
        return found if found is not None and found.ran else None

    def why_missing(self, name: str) -> str:
        """Say that a file did not come back, and why where the job's backend knew."""
        found = self.evidence.result(f"artefact:{name}")
        if found is not None:
            return f"{name} was cut or cannot be unpacked: {found.stderr}" if found.stderr else f"{name} was cut"
        head = f"artefact {name}: "
        why = next((part[len(head) :] for part in self.evidence.detail.split("; ") if part.startswith(head)), "")
        return f"{name} was not written" + (f" ({why})" if why else "")

    def all_rows(self) -> list[Row]:
        """Return the rows with those of the problems."""
        return [*self.rows, *self.problems.values()]
