"""What parsing a DAG file costs against an empty one, in fresh processes taken in turn.

    python bench/parse.py [--rounds 7]

Each round parses every DAG file and a file with one empty DAG, each in a process of its own as the DAG processor
does, and takes the ratio within the round, so that a machine whose speed drifts does not matter.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARSE = """
import sys, time
from airflow.dag_processing.dagbag import DagBag
began = time.perf_counter()
bag = DagBag(sys.argv[1])
took = time.perf_counter() - began
assert bag.dags and not bag.import_errors, bag.import_errors
print(took)
"""


def parse(folder: Path, env: dict[str, str]) -> tuple[float, float]:
    """Return seconds of the whole process, and of parsing alone within it."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(folder)], env=env, capture_output=True, text=True, check=True
    )
    return time.perf_counter() - began, float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        empty = home / "empty"
        empty.mkdir()
        (empty / "empty.py").write_text("from airflow.sdk import DAG\n\nwith DAG('empty'):\n    pass\n")
        env = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        }
        files = sorted((ROOT / "dags").glob("*.py"))
        parse(empty, env)
        whole: dict[str, list[float]] = {f.name: [] for f in files}
        alone: dict[str, list[float]] = {f.name: [] for f in files}
        for _ in range(rounds):
            base_whole, base_alone = parse(empty, env)
            for f in files:
                w, a = parse(f, env)
                whole[f.name].append(w / base_whole)
                alone[f.name].append(a - base_alone)
    print(f"{'DAG file':32} {'process / empty process':>24} {'range':>14} {'parsing adds':>14}")
    for name, ratios in whole.items():
        added = statistics.median(alone[name]) * 1000
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        print(f"{name:32} {statistics.median(ratios):24.2f} {spread:>14} {added:11.0f} ms")


if __name__ == "__main__":
    main()
