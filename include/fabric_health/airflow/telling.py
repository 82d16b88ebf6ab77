"""The task that tells people of a run, at the end of its chain."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from fabric_health.airflow.addresses import answer_address, page_address, run_address
from fabric_health.airflow.chain import rooms_of

if TYPE_CHECKING:
    from fabric_health.airflow.chain import Concluded
    from fabric_health.notice import Notice

log = logging.getLogger(__name__)
# Eight channels, each tried three times, with the pauses between.
NOTIFY_LIMIT = timedelta(minutes=10)


@task(retries=0, execution_timeout=NOTIFY_LIMIT)
def notify(run: dict[str, str] | None, page: dict[str, str] | None) -> dict[str, Any]:
    """Tell the channels of ``$FABRIC_HEALTH_NOTIFY``; skipped when there is none, or nothing to tell.

    It fails when a channel was not told, after all were tried.
    """
    from fabric_health.airflow import channels

    ids = channels.channel_ids()
    if not ids:
        raise AirflowSkipException(f"nobody to tell: {channels.CONNECTIONS_VARIABLE} names no connection")
    when = channels.when_to_tell()
    notice = _notice(get_current_context(), run, page)
    if not notice.due(when):
        raise AirflowSkipException(f"nothing to tell: {notice.answer}, and {channels.WHEN_VARIABLE} is {when}")
    done = channels.deliver(ids, notice)
    away = [f"{d.connection}: {d.problem}" for d in done if d.problem]
    if away:
        raise AirflowFailException(
            f"told {len(done) - len(away)} of {len(done)}. Not told: {'; '.join(away)}. The run itself is not "
            "affected; when the cause is gone, clear this task to tell again (docs/connections.md)"
        )
    return {"told": [d.connection for d in done]}


def _notice(context: Any, run: dict[str, str] | None, page: dict[str, str] | None) -> Notice:
    from fabric_health import notice, pipeline, review
    from fabric_health.errors import FabricHealthError

    dag_run = context["dag_run"]
    address = page_address(page) or run_address(dag_run.dag_id, dag_run.run_id)
    site = str((run or {}).get("site") or context["params"].get("site") or dag_run.dag_id)
    if run is None:
        why = "The run could not be opened: the site file, a connection, the form or the object store is at fault."
        return notice.unfinished(site, dag_run.run_id, dag_run.dag_id, "", why, address)
    try:
        rooms = rooms_of(run["site"])
        document = pipeline.load_run(rooms, run["ref"])
        asked = context["params"].get("accept_as_baseline") == "ask" and review.question(rooms.store, document)
        return notice.gather(rooms.store, document, address, f"answer in {answer_address()}" if asked else None)
    except FabricHealthError as error:
        # The store is away, or the site file has become unreadable: that is what people should hear of first.
        log.warning("the results cannot be read: %s", error)
        why = f"The results cannot be read: {error}"
        return notice.unfinished(site, dag_run.run_id, dag_run.dag_id, "", why, address)


def tell(done: Concluded) -> None:
    """Add the task to a chain: once its page is written, or as soon as that cannot be any more.

    It is a teardown: it runs also after a stage that failed, and a channel that is away makes it red, not the run.
    """
    notify(done.run, done.page).as_teardown()
