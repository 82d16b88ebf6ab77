"""The ``fabric-health`` command."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from fabric_health import __version__
from fabric_health.cli import housekeeping, lab, results, runs, sites, verdicts
from fabric_health.cli.terminal import Exit, fail
from fabric_health.errors import FabricHealthError, SiteError, UsageError

INTERRUPTED = 130
_INTERRUPTED = "interrupted; what was landed so far is kept, run the command again to go on"

app = typer.Typer(
    name="fabric-health",
    help="What changed in the cluster, did it hurt, where exactly, and how sure are we.\n\n"
    "Exit codes: 0 healthy, 1 findings, 2 could not judge, 64 wrong usage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(lab.app, name="lab")
app.add_typer(sites.app, name="site")
runs.add_to(app)
results.add_to(app)
verdicts.add_to(app)
housekeeping.add_to(app)


@app.callback()
def _options(
    context: typer.Context,
    site: Annotated[
        Path | None, typer.Option("--site", envvar="FABRIC_HEALTH_SITE", help="site file; default: the lab's")
    ] = None,
) -> None:
    context.obj = site


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code; a user's mistake never shows a traceback, ours does, with 2."""
    try:
        code = int(app(args=argv, standalone_mode=False) or 0)
        # Typer turns Ctrl-C into this exit code and says nothing.
        if code == INTERRUPTED:
            fail(_INTERRUPTED)
        return code
    except typer.TyperException as error:
        if hasattr(error, "show"):
            error.show()
        else:
            fail(str(error))
        return Exit.USAGE
    except (SiteError, UsageError) as error:
        fail(str(error))
        return Exit.USAGE
    except FabricHealthError as error:
        fail(str(error))
        return Exit.NOT_JUDGED
    except (typer.Abort, KeyboardInterrupt):
        fail(_INTERRUPTED)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return Exit.HEALTHY
    except Exception:
        # A mistake of ours, with all that tells where. Python's own exit code for it, 1, would say "findings".
        traceback.print_exc()
        fail("this is a mistake in fabric-health, not in your site: please report it with the lines above")
        return Exit.NOT_JUDGED


if __name__ == "__main__":
    sys.exit(main())
