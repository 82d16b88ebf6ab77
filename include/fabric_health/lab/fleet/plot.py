"""The picture of the fleet model in ``docs/lab.md``.

``python -m fabric_health.lab.fleet.plot include/sites/lab.yaml docs/images/fleet-model.svg``
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fabric_health.lab.fleet.model import Fleet
from fabric_health.lab.state import LabState
from fabric_health.lab.validation import checked_fault
from fabric_health.site import Site, load_site

_SIZES = tuple(1 << p for p in range(15, 35))
_SINCE = datetime(2026, 1, 1, tzinfo=UTC)
_SLOW = ("slow-rail", "gpu-007/mlx5_3", "18")
_DOWN = ("nic-down", "gpu-012/mlx5_6", None)
_LAUNCHES = 60
_LABEL = (
    "datum.value < 1048576 ? datum.value / 1024 + ' KiB' : datum.value < 1073741824 ? datum.value / 1048576 + ' MiB' "
    ": datum.value / 1073741824 + ' GiB'"
)


def chart(site: Site) -> dict[str, Any]:
    """Return a Vega-Lite document of two panels: bandwidth by size, and bandwidth by rail over launches."""
    import altair as alt

    healthy, slow, down = _fleet(site), _fleet(site, _SLOW), _fleet(site, _DOWN)
    nodes = healthy.fabric.nodes
    curves = [
        ("1 node", healthy, nodes[:1]),
        ("2 nodes", healthy, nodes[:2]),
        (f"{len(nodes)} nodes", healthy, nodes),
        (f"{len(nodes)} nodes, one rail of one node 18 % slow", slow, nodes),
        (f"{len(nodes)} nodes, one NIC down", down, nodes),
    ]
    lines = [
        {"fleet": name, "size": size, "busbw": _busbw(fleet, members, size)}
        for name, fleet, members in curves
        for size in _SIZES
    ]
    ticks = [1 << p for p in range(15, 35, 5)] + [1 << 34]
    x = alt.X(
        "size:Q", title="size", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=ticks, labelExpr=_LABEL)
    )
    order = [name for name, _, _ in curves]
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=400)
    dashes = alt.Scale(domain=order, range=[[1, 0], [8, 3], [4, 2], [2, 2], [8, 2, 2, 2]])
    left = (
        alt.Chart(alt.Data(values=lines), title="all_reduce: bus bandwidth by size")
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=alt.Y("busbw:Q", title="busbw (GB/s)"),
            color=alt.Color("fleet:N", scale=alt.Scale(domain=order), title=None, legend=legend),
            strokeDash=alt.StrokeDash("fleet:N", scale=dashes, title=None, legend=legend),
        )
        .properties(width=340, height=260)
    )
    groups = [slow.group(nodes, (rail,), alone=False) for rail in slow.fabric.rails]
    values = slow.simulate(groups, _SIZES[-1], runs=1, launches=_LAUNCHES)[0]
    points = [
        {"rail": f"{rail}", "busbw": round(float(v), 3)}
        for rail, column in zip(slow.fabric.rails, np.transpose(values), strict=True)
        for v in column
    ]
    right = (
        alt.Chart(alt.Data(values=points), title=f"each rail by itself, {_LAUNCHES} launches: rail 3 slow on one node")
        .mark_tick(thickness=1, opacity=0.7)
        .encode(x=alt.X("rail:N", title="rail", axis=alt.Axis(labelAngle=0)), y=alt.Y("busbw:Q", title="busbw (GB/s)"))
        .properties(width=300, height=260)
    )
    panels: dict[str, Any] = (
        alt.hconcat(left, right)
        .configure_view(stroke=None)
        .configure(font="system-ui, sans-serif", background="white")
        .to_dict()
    )
    return panels


def _fleet(site: Site, *faults: tuple[str, str, str | None]) -> Fleet:
    made = tuple(checked_fault(site, kind, unit, value, _SINCE) for kind, unit, value in faults)
    return Fleet.of_site(site, LabState(_SINCE, made))


def _busbw(fleet: Fleet, nodes: tuple[str, ...], size: int) -> float:
    return round(fleet.measure("all_reduce", fleet.group(nodes), size, "plot", "plot").busbw_gbps, 3)


def main(argv: list[str]) -> int:
    """Write the picture of the site ``argv[0]`` to the file ``argv[1]``."""
    if len(argv) != 2:
        sys.stderr.write("expected a site file and the SVG file to write\n")
        return 2
    import vl_convert

    Path(argv[1]).write_text(vl_convert.vegalite_to_svg(chart(load_site(argv[0]))) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
