"""What runs jobs, whatever it is: one protocol, and the loop that runs a list of jobs through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Protocol

from fabric_health.connections import ConnectionSource, home
from fabric_health.jobs.local import LocalBackend
from fabric_health.jobs.settings import settings
from fabric_health.jobs.spec import JobResult, JobSpec, JobStatus, RetryClass
from fabric_health.site import Site

Tell = Callable[[str], None]


class Backend(Protocol):
    """Runs jobs of one run. A job is known by its name: asked for again, one that runs is found and waited for."""

    def run(self, spec: JobSpec, tell: Tell) -> JobResult:
        """Run a job to its end and return its result; whatever happens to the job is a result, never raised.

        Interrupted by an exception (a cancelled task, Ctrl-C), the job is ended first.
        """

    def cancel(self, name: str) -> None:
        """End the job called ``name`` with all it started; one that does not run is no error."""

    def release(self, name: str) -> None:
        """Delete what is kept of the job called ``name``, once its result is stored."""


def open_backend(site: Site, run: str, connections: ConnectionSource) -> Backend:
    """Return the backend that ``site`` names, for the jobs of ``run`` (the run's name).

    Raises SiteError when the site's ``jobs`` are not valid, ConnectionSettingError when a cluster is not described.
    """
    chosen = settings(site)
    if chosen.backend == "kubernetes":
        # Imported here: the client is heavy, and a site without a cluster does not need it.
        from fabric_health.jobs.kubernetes.backend import KubernetesBackend

        return KubernetesBackend.open(chosen.in_cluster, site=site.name, run=run, connections=connections)
    tools = (site.path.parent / chosen.tools).resolve()
    return LocalBackend(home=home(), run_name=run, tools=tools, connections=connections)


def run_job(spec: JobSpec, backend: Backend, tell: Tell) -> JobResult:
    """Run a job, and once more when it was lost (evicted, deleted, its machine gone) and may be tried again.

    A job that failed, took too long or was cut is a result: it is never tried again here.
    """
    result = backend.run(spec, tell)
    if result.status is not JobStatus.LOST or spec.retry is not RetryClass.INFRASTRUCTURE:
        return result
    tell(f"{spec.name} was lost, it is tried once more: {result.reason}")
    backend.release(spec.name)
    again = backend.run(spec, tell)
    return replace(again, reason="; ".join(r for r in (again.reason, f"first try: {result.reason}") if r))


def run_all(
    specs: Sequence[JobSpec],
    backend: Backend,
    on_result: Callable[[JobSpec, JobResult], None],
    parallel: int = 1,
    tell: Tell = lambda _: None,
) -> None:
    """Run ``specs`` in their order, at most ``parallel`` at once, and hand over each result as it comes.

    ``on_result`` is called in this thread; once it returns, the result counts as stored and what the backend kept of
    the job is deleted. When it raises, or this thread is interrupted, running jobs are ended and nothing more starts.
    """
    if parallel <= 1:
        for spec in specs:
            result = run_job(spec, backend, tell)
            on_result(spec, result)
            backend.release(spec.name)
        return
    queue = iter(specs)
    running: dict[Future[JobResult], JobSpec] = {}
    with ThreadPoolExecutor(parallel, "job") as threads:
        try:
            while True:
                for spec in queue:
                    running[threads.submit(run_job, spec, backend, tell)] = spec
                    if len(running) >= parallel:
                        break
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    spec = running.pop(done)
                    on_result(spec, done.result())
                    backend.release(spec.name)
        finally:
            for spec in running.values():
                backend.cancel(spec.name)
