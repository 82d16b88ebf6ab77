"""Settings of the object store benchmark: the site file's ``checks.object_store``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from fabric_health.checks.object_store.quantities import endpoint, size_bytes
from fabric_health.errors import settings_error
from fabric_health.site import Identifier, Site

Load = Literal["get", "put", "mixed", "delete", "stat"]
BUCKET = r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$"
# What S3 itself allows for one object.
MAX_OBJECT_BYTES = 5 << 40


def _bytes(value: object) -> object:
    if isinstance(value, str):
        found = size_bytes(value)
        if found is None:
            raise ValueError(f"{value!r}; expected a size such as 4KiB, 4MiB, 100MiB")
        return found
    return value


ObjectBytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1, le=MAX_OBJECT_BYTES)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class ExpectedCluster(_Model):
    """The MinIO cluster as it should be. What is left out is not held to a value."""

    drives: int | None = Field(None, ge=1, description="drives of the cluster, all online")
    drives_per_set: int | None = Field(None, ge=1, le=16, description="erasure set size N")
    parity: int | None = Field(None, ge=0, le=8, description="M of EC:M; EC:4 is 4 parity drives of N, not 4+4")
    version: str | None = Field(None, description="server version, as `mc admin info` prints it")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.parity is not None and self.drives_per_set is not None and 2 * self.parity > self.drives_per_set:
            raise ValueError(f"parity {self.parity} of {self.drives_per_set} drives; expected at most half of them")
        return self


class Settings(_Model):
    """How the object store of a site is measured, and what it is held to."""

    store: Identifier = Field("object-store", description="name of the object store as a unit")
    engine: Literal["embedded", "warp"] = Field(
        "embedded", description="`warp` for production; `embedded` needs nothing but this package"
    )
    connection: Identifier = Field(
        "fabric_health_s3_benchmark", description="connection with access and secret key of a user of this bucket only"
    )
    session_token: bool = Field(False, description="the connection's extra.session_token is used, too")
    hosts: tuple[str, ...] = Field(
        (),
        description="host:port of every server, by the names of the network to measure; empty (embedded engine "
        "only): the connection's extra.endpoint",
    )
    tls: bool = False
    region: str | None = None
    bucket: str = Field(
        "fabric-health-benchmark", pattern=BUCKET, description="scratch bucket: warp EMPTIES it before and after"
    )
    results_bucket: str = Field("fabric-health", pattern=BUCKET, description="bucket of the results: never measured on")
    loads: tuple[Load, ...] = Field(("put", "get"), min_length=1)
    object_sizes: tuple[ObjectBytes, ...] = Field((4 << 20,), min_length=1, description="e.g. [4KiB, 4MiB, 100MiB]")
    concurrency: int = Field(8, ge=1, le=4096, description="concurrent requests of each client")
    processes: int = Field(2, ge=1, le=256, description="processes of the embedded engine that share them")
    duration_s: int = Field(30, ge=1, le=3600, description="measured time of a launch")
    warmup_s: float = Field(1.0, ge=0, le=300, description="embedded engine: time before it that is not counted")
    objects: int = Field(256, ge=1, le=1_000_000, description="objects prepared for get, stat, delete and mixed")
    launches: int = Field(3, ge=1, le=100, description="independent repetitions of every load and size")
    clients: tuple[str, ...] = Field((), description="warp client servers (host or host:port, default port 7761)")
    warp: str = Field("warp", description="program, as the workload's image or machine has it")
    cluster_info: bool = Field(False, description="also read `mc admin info`; needs the connection's extra.mc_host")
    mc: str = Field("mc", description="program")
    expected: ExpectedCluster = ExpectedCluster()
    host_skew_max: float = Field(1.3, gt=1, description="fastest host / slowest host")
    slowest_segment_min: float = Field(0.7, gt=0, le=1, description="slowest segment / median segment")
    median_to_average: float = Field(0.1, gt=0, lt=1, description="how far the median segment may be off the average")
    capacity_tolerance: float = Field(0.01, gt=0, lt=1, description="of usable / raw against (N - M) / N")
    line_rate_gbps: float | None = Field(
        None, gt=0, description="Gb/s that one server's (or client's) network can carry: more was not measured on it"
    )

    @field_validator("hosts", "clients")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [endpoint(v) for v in value]
        if any(not n or any(c in n for c in ", \t\"'") for n in names):
            raise ValueError(f"{', '.join(value)}; expected host:port, one an entry")
        if len(set(names)) != len(names):
            raise ValueError(f"{', '.join(value)}; expected every host once")
        return value

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if self.bucket == self.results_bucket:
            raise ValueError(
                f"bucket {self.bucket!r} holds the results; expected a bucket of its own, a benchmark deletes what is "
                "in it"
            )
        if "bench" not in self.bucket:
            raise ValueError(f"bucket {self.bucket!r}; expected a name with `bench` in it, for warp empties the bucket")
        if self.engine == "warp" and not self.hosts:
            raise ValueError("hosts is empty; expected host:port of every server for the engine warp")
        if self.engine == "embedded" and (len(self.hosts) > 1 or self.clients):
            raise ValueError("the embedded engine measures from one client to one host; expected the engine warp")
        if self.engine == "embedded" and self.processes > self.concurrency:
            raise ValueError(f"{self.processes} processes share {self.concurrency} requests; expected at most as many")
        return self

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Requested endpoints in normal form, ascending; empty where the connection names it."""
        return tuple(sorted(endpoint(h) for h in self.hosts))


def settings(site: Site) -> Settings:
    """Return the site's settings. Raises SiteError naming each key at fault and what was expected."""
    try:
        return Settings.model_validate(site.checks.get("object_store", {}))
    except ValidationError as error:
        page = "docs/checks/object_store.md"
        raise settings_error(error, str(site.path), "checks.object_store", page) from None
