"""Which launches a run makes: every load and size ``launches`` times, in an order that the run's name decides."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fabric_health.checks.check import Launch
from fabric_health.checks.object_store.quantities import size_text
from fabric_health.checks.object_store.settings import Load, Settings, settings
from fabric_health.jobs.spec import JobSpec, Resources, SecretReference
from fabric_health.site import Node, Site

CLUSTER_LAUNCH = "s3-cluster-info"
WARP_FILE = "warp.json.zst"
# What preparing, warming up, cleaning up and starting may take besides the measured time.
OVERHEAD_S = 300.0
CLUSTER_INFO_S = 60.0


@dataclass(frozen=True)
class Asked:
    """What one launch was asked to measure. ``concurrency`` is that of all clients together."""

    load: Load
    object_bytes: int
    concurrency: int
    repetition: int


def plan(wanted: Settings) -> dict[str, Asked]:
    """Return what is asked of every benchmark launch, by the launch's name."""
    total = wanted.concurrency * max(1, len(wanted.clients))
    return {
        f"s3-{load}-{size_text(size).lower()}-c{total}-{n}": Asked(load, size, total, n)
        for n in range(1, wanted.launches + 1)
        for load in dict.fromkeys(wanted.loads)
        for size in dict.fromkeys(wanted.object_sizes)
    }


def launches(site: Site, _nodes: tuple[Node, ...], run: str) -> tuple[Launch, ...]:
    """Return the run's launches. Each repetition is a block of its own, shuffled within, so that drift of the store
    during a run does not fall on one load alone. Raises SiteError for settings that cannot be used."""
    wanted = settings(site)
    order = random.Random(run)  # noqa: S311  an order, not a secret
    asked = plan(wanted)
    out = []
    if wanted.cluster_info:
        out.append(_launch(CLUSTER_LAUNCH, _cluster_spec(wanted), wanted))
    for n in range(1, wanted.launches + 1):
        block = [name for name, a in asked.items() if a.repetition == n]
        order.shuffle(block)
        make = _warp_spec if wanted.engine == "warp" else _embedded_spec
        out += [_launch(name, make(wanted, name, asked[name]), wanted) for name in block]
    return tuple(out)


def _launch(name: str, spec: JobSpec, wanted: Settings) -> Launch:
    return Launch(name, spec, (wanted.store,), origin="measured", unit_kind="object_store")


def _keys(wanted: Settings, prefix: str) -> dict[str, SecretReference]:
    secrets = {
        f"{prefix}_ACCESS_KEY": SecretReference(wanted.connection, "login"),
        f"{prefix}_SECRET_KEY": SecretReference(wanted.connection, "password"),
    }
    if wanted.session_token:
        secrets[f"{prefix}_SESSION_TOKEN"] = SecretReference(wanted.connection, "extra.session_token")
    return secrets


def _embedded_spec(wanted: Settings, name: str, asked: Asked) -> JobSpec:
    secrets = _keys(wanted, "S3")
    argv = [
        "{python}", "-m", "fabric_health.workloads.s3_bench",
        f"--load={asked.load}",
        f"--object-bytes={asked.object_bytes}",
        f"--concurrency={wanted.concurrency}",
        f"--processes={wanted.processes}",
        f"--duration-s={wanted.duration_s}",
        f"--warmup-s={wanted.warmup_s}",
        f"--objects={wanted.objects}",
        f"--bucket={wanted.bucket}",
        f"--name={name}",
    ]  # fmt: skip
    if wanted.hosts:
        argv.append(f"--endpoint={wanted.endpoints[0]}")
    else:
        secrets["S3_ENDPOINT"] = SecretReference(wanted.connection, "extra.endpoint")
    argv += ["--tls"] if wanted.tls else []
    argv += [f"--region={wanted.region}"] if wanted.region else []
    return JobSpec(
        name=name,
        tool="self",
        argv=tuple(argv),
        secrets=secrets,
        resources=Resources(cpu=float(wanted.processes), memory_mib=512 + 64 * wanted.concurrency),
        time_limit_s=wanted.duration_s + wanted.warmup_s + OVERHEAD_S,
    )


def _warp_spec(wanted: Settings, name: str, asked: Asked) -> JobSpec:
    # Hosts are taken in turn: the default sends more to whichever answers faster, a store on the client's own
    # machine above all, and the shares of hosts then say nothing.
    argv = [
        wanted.warp, asked.load, "--json", "--no-color",
        f"--host={','.join(wanted.hosts)}",
        "--host-select=roundrobin",
        f"--tls={'true' if wanted.tls else 'false'}",
        f"--bucket={wanted.bucket}",
        f"--concurrent={wanted.concurrency}",
        f"--duration={wanted.duration_s}s",
        f"--benchdata={{artefacts}}/{WARP_FILE.removesuffix('.json.zst')}",
    ]  # fmt: skip
    argv += [f"--obj.size={size_text(asked.object_bytes)}"]
    argv += _objects(wanted, asked)
    argv += [f"--region={wanted.region}"] if wanted.region else []
    argv += [f"--warp-client={','.join(wanted.clients)}"] if wanted.clients else []
    return JobSpec(
        name=name,
        tool="warp",
        argv=tuple(argv),
        secrets=_keys(wanted, "WARP"),
        resources=Resources(cpu=4.0, memory_mib=4096),
        time_limit_s=wanted.duration_s + OVERHEAD_S,
        artefacts=(WARP_FILE,),
    )


def _objects(wanted: Settings, asked: Asked) -> list[str]:
    if asked.load == "put":
        return []
    # One object a request, as all other loads have it; warp wants four requests for each of its threads at least.
    if asked.load == "delete":
        return ["--batch=1", f"--objects={max(wanted.objects, 4 * asked.concurrency)}"]
    return [f"--objects={wanted.objects}"]


def _cluster_spec(wanted: Settings) -> JobSpec:
    # The alias comes from the environment, in mc's own form (https://KEY:SECRET@host:port): nothing in argv, no file.
    return JobSpec(
        name=CLUSTER_LAUNCH,
        tool="mc",
        argv=(wanted.mc, "--json", "--no-color", "admin", "info", "store"),
        secrets={"MC_HOST_store": SecretReference(wanted.connection, "extra.mc_host")},
        time_limit_s=CLUSTER_INFO_S,
    )
