"""Attribution in words for a person: which change, what speaks against it, and which test would tell changes apart."""

from __future__ import annotations

from collections.abc import Sequence

from fabric_health.verdict.attribution import Attribution, Candidate, Explains
from fabric_health.verdict.wording import listed, plural


def sentence(found: Attribution) -> str:
    """Return what an attribution says, in one to a few sentences."""
    k = len(found.moved)
    if found.outcome is Explains.NOTHING_MOVED:
        return "No unit moved, so there is nothing to explain."
    if found.outcome is Explains.NONE:
        return _none(found)
    if found.outcome is Explains.NO_CONTROL:
        if not found.candidates:
            return f"All {k} judged units moved and no change is recorded on them."
        named = listed([c.name for c in found.candidates])
        return (
            f"All {plural(k, 'unit')} that could be judged moved, so no change can be separated from another or from "
            f"chance; recorded on them: {named}. Measure units without the change in the same run, or undo it on half."
        )
    first = found.candidates[0]
    told = [_inseparable(found) if found.inseparable else candidate_sentence(first)]
    if found.inseparable:
        told += [t for t in (_against(first), _by_chance(first)) if t]
    if found.close:
        told.append(f"Not excluded: {listed([_differs(first, c) for c in found.close])}.")
    if test := separating_test(found):
        told.append(test)
    if found.rest is not None and found.rest.first is not None:
        told.append(f"As for {listed(first.moved_without)}: {sentence(found.rest)}")
    elif first.moved_without:
        told.append(f"No recorded change separates {listed(first.moved_without)} from what stayed.")
    return " ".join(told)


def candidate_sentence(c: Candidate) -> str:
    """Return what speaks for and against one candidate."""
    with_it, without = len(c.moved_with), len(c.moved_without)
    has = with_it + len(c.unmoved_with)
    if not c.unmoved_with and not without:
        who = "the only unit" if has == 1 else f"all {has} units"
        rest = (
            "the one without it did not"
            if c.unmoved_without == 1
            else f"none of the {c.unmoved_without} without it did"
        )
        told = f"{_change(c)} separates them: {who} with it moved, {rest}."
    elif c.score > 0:
        told = (
            f"{_change(c)} fits best: {with_it} of {plural(has, 'unit')} with it moved, "
            f"{without} of {without + c.unmoved_without} without it."
        )
    else:
        told = (
            f"{_change(c)} separates nothing: {with_it} of {plural(has, 'unit')} with it moved, "
            f"{without} of {without + c.unmoved_without} without it."
        )
    return " ".join([told, *(t for t in (_against(c), _by_chance(c)) if t)])


def separating_test(found: Attribution) -> str | None:
    """Return the test that tells changes on the same units apart; None where there are not several."""
    if not found.inseparable:
        return None
    same = (found.candidates[0], *found.inseparable)
    # What was changed in several places can be taken back in some of them, with everything else equal.
    by_places = sorted(same, key=lambda c: (len(c.changed_units) < 2, same.index(c)))
    first, other = by_places[0], by_places[1]
    places = first.changed_units
    more = f" Then the same with {listed([c.name for c in by_places[2:]])}." if len(same) > 2 else ""
    if len(places) < 2:
        return (
            f"To tell them apart: undo {first.name} on {places[0]}, keep {other.name}, and measure again. "
            f"If it recovers it was the first, if not the second.{more}"
        )
    cut = (len(places) + 1) // 2
    return (
        f"To tell them apart: undo {first.name} on {listed(places[:cut])}, keep {other.name} there and both on "
        f"{listed(places[cut:])}, and measure both halves. If only the first half recovers it was "
        f"{first.group.attribute}, if neither does {other.group.attribute}.{more}"
    )


def _none(found: Attribution) -> str:
    where = f"the {plural(len(found.moved), 'unit')} that moved" if len(found.moved) > 1 else found.moved[0]
    if not found.candidates:
        return f"No recorded change separates them: nothing that we record changed on {where}."
    spread = listed([f"{c.name} ({len(c.moved_with)} moved, {len(c.unmoved_with)} not)" for c in found.candidates])
    return f"No recorded change separates them: what changed on {where} changed as often elsewhere: {spread}."


def _inseparable(found: Attribution) -> str:
    first = found.candidates[0]
    names = [_change(c) for c in (first, *found.inseparable)]
    has = len(first.moved_with) + len(first.unmoved_with)
    return (
        f"These changes are on the same {'unit' if has == 1 else plural(has, 'unit')} and cannot be told apart: "
        f"{listed(names)}. {len(first.moved_with)} of {plural(has, 'unit')} with them moved, "
        f"{len(first.moved_without)} of {len(first.moved_without) + first.unmoved_without} without them."
    )


def _against(c: Candidate) -> str:
    told = []
    if c.unmoved_with:
        told.append(f"{listed(c.unmoved_with)} {_has(c.unmoved_with)} it and did not move")
    if c.moved_without:
        told.append(f"{listed(c.moved_without)} moved without it")
    return f"Against it: {'; '.join(told)}." if told else ""


def _by_chance(c: Candidate) -> str:
    if c.score <= 0:
        return ""
    share = "less than 0.1 %" if c.chance < 0.001 else f"{c.chance:.1%}".replace("%", " %")
    weak = "" if c.strong else ", which is weak evidence"
    return f"By chance, some recorded change would separate as many units as well in {share} of cases{weak}."


def _differs(first: Candidate, other: Candidate) -> str:
    only = sorted(_with(first) ^ _with(other))
    return f"{other.name} (differs on {listed(only)} only)"


def _change(c: Candidate) -> str:
    along = f" (with {', '.join(c.group.along)})" if c.group.along else ""
    elsewhere = {u.split("/", 1)[0] for u in c.changed_units} - {u.split("/", 1)[0] for u in _with(c)}
    return f"{c.name}{along}" + (f" on {listed(c.changed_units)}" if elsewhere else "")


def _with(c: Candidate) -> set[str]:
    return {*c.moved_with, *c.unmoved_with}


def _has(units: Sequence[str]) -> str:
    return "has" if len(units) == 1 else "have"
