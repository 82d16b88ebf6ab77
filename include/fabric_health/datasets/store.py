"""The object store: the only module that speaks S3 through the minio SDK.

Production is MinIO or any S3; the embedded default is ``datasets.embedded``. Every method is thread-safe, names
objects by their key within one bucket, and raises :class:`~fabric_health.errors.StoreError` only.
"""

from __future__ import annotations

import builtins
import io
import logging
import mimetypes
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from fabric_health.connections import Connection
from fabric_health.errors import ConnectionSettingError, StoreError

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

log = logging.getLogger(__name__)

T = TypeVar("T")
DEFAULT_BUCKET = "fabric-health"
POOL_SIZE = 64
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0
RETRY_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
MAX_OBJECT_BYTES = 1 << 30
MIN_PART_BYTES = 5 << 20

# What S3 servers answer while they start, fail over or are overloaded, besides any 5xx status.
_TRANSIENT_CODES = frozenset(
    {
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "XMinioServerNotInitialized",
    }
)
_MISSING_CODES = frozenset({"NoSuchKey", "NoSuchObject", "NoSuchVersion"})
_REFUSED: Mapping[str, str] = {
    # Also what a wrong key looks like when the request has no answer body to say so in.
    "AccessDenied": "check login and password of the connection, and what the policy of that user allows",
    "AuthorizationHeaderMalformed": "check extra.region of the connection",
    "InvalidAccessKeyId": "the store does not know the access key: check the connection's login",
    "NoSuchBucket": "the bucket does not exist: create it or set extra.bucket of the connection",
    "RequestTimeTooSkewed": "the clocks of this machine and the store differ: check time synchronisation",
    "SignatureDoesNotMatch": "the secret key is wrong: check the connection's password",
}


class ObjectMissing(StoreError):  # noqa: N818 - reads as what happened, like KeyError
    """The store answered that there is no object under this key."""


class _Transient(Exception):  # noqa: N818 - a signal between two functions of this module, not an error to report
    """The attempt failed in a way that may pass; carries what failed."""


@dataclass(frozen=True)
class ObjectStore:
    """One bucket of an S3 store. Make it with :meth:`connect`; ``repr`` shows no secret."""

    endpoint: str
    bucket: str
    secure: bool
    region: str
    retry_s: float
    _access_key: str = field(repr=False)
    _secret_key: str = field(repr=False)
    _ca_file: str | None = field(repr=False)
    _client: Minio = field(repr=False, compare=False)

    @classmethod
    def connect(cls, conn: Connection, *, retry_s: float = RETRY_S) -> ObjectStore:
        """Make a store from a connection; nothing is sent yet.

        ``extra``: ``bucket`` (default ``fabric-health``), ``secure`` (TLS), ``region``, ``ca_file`` (private CA).
        ``retry_s`` bounds how long one operation is repeated while the store is away, in seconds.
        Raises ConnectionSettingError when host, login or password is missing.
        """
        absent = [name for name in ("host", "login", "password") if not getattr(conn, name)]
        if absent or conn.host is None or conn.login is None or conn.password is None:
            raise ConnectionSettingError(
                f"connection {conn.id!r}: {', '.join(absent)} missing; expected host, login (access key) and "
                "password (secret key) of an S3 store"
            )
        extra = conn.extra
        secure, region = bool(extra.get("secure", False)), str(extra.get("region", "us-east-1"))
        endpoint = f"{conn.host}:{conn.port}" if conn.port else conn.host
        ca_file = extra.get("ca_file")
        http = urllib3.PoolManager(
            num_pools=4,
            maxsize=POOL_SIZE,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=READ_TIMEOUT_S),
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file,
        )
        client = Minio(
            endpoint,
            access_key=conn.login,
            secret_key=conn.password,
            secure=secure,
            region=region,
            http_client=http,
        )
        bucket = str(extra.get("bucket", DEFAULT_BUCKET))
        return cls(endpoint, bucket, secure, region, retry_s, conn.login, conn.password, ca_file, client)

    def put(self, key: str, data: bytes, content_type: str | None = None) -> None:
        """Write one object with one PUT, which is atomic: a reader sees the old bytes or the new ones.

        ``content_type`` is guessed from the key's suffix where none is given.
        """
        kind = content_type or mimetypes.guess_type(key)[0] or "application/octet-stream"
        part_size = max(len(data), MIN_PART_BYTES)

        def attempt() -> None:
            self._client.put_object(
                self.bucket, key, io.BytesIO(data), len(data), content_type=kind, part_size=part_size
            )

        self._retried(f"write {key}", attempt)

    def get(self, key: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read one object whole. Raises ObjectMissing, and StoreError when it is larger than ``max_bytes``."""

        def attempt() -> bytes:
            response = self._client.get_object(self.bucket, key)
            try:
                data: bytes = response.read(max_bytes + 1)
            finally:
                response.close()
                response.release_conn()
            return data

        data = self._retried(f"read {key}", attempt)
        if len(data) > max_bytes:
            raise StoreError(f"{self.uri(key)} is larger than {max_bytes} bytes; expected a smaller object")
        return data

    def exists(self, key: str) -> bool:
        """Tell whether there is an object under ``key``."""
        try:
            self._retried(f"look up {key}", lambda: self._client.stat_object(self.bucket, key))
        except ObjectMissing:
            return False
        return True

    def list(self, prefix: str) -> list[str]:
        """Return all keys that start with ``prefix``, in ascending order."""

        def attempt() -> builtins.list[str]:
            found = self._client.list_objects(self.bucket, prefix=prefix, recursive=True)
            return [o.object_name for o in found if o.object_name and not o.is_dir]

        return sorted(self._retried(f"list {prefix}", attempt))

    def written(self, prefix: str) -> dict[str, datetime]:
        """Return when each object whose key starts with ``prefix`` was last written (UTC), by key, ascending."""

        def attempt() -> dict[str, datetime]:
            found = self._client.list_objects(self.bucket, prefix=prefix, recursive=True)
            return {o.object_name: o.last_modified for o in found if o.object_name and o.last_modified and not o.is_dir}

        return dict(sorted(self._retried(f"list {prefix}", attempt).items()))

    def folders(self, prefix: str) -> builtins.list[str]:
        """Return the names directly under ``prefix`` (which ends in ``/``) that have keys below them, ascending."""

        def attempt() -> builtins.list[str]:
            found = self._client.list_objects(self.bucket, prefix=prefix, recursive=False)
            return [o.object_name[len(prefix) :].rstrip("/") for o in found if o.object_name and o.is_dir]

        return sorted(self._retried(f"list {prefix}", attempt))

    def put_many(self, items: Iterable[tuple[str, bytes]], threads: int = 16, content_type: str | None = None) -> None:
        """Write objects side by side. Raises the first StoreError; objects not yet begun are then left out."""
        self._side_by_side(lambda item: self.put(item[0], item[1], content_type), [*items], threads)

    def get_many(self, keys: Iterable[str], threads: int = 16) -> builtins.list[bytes]:
        """Read objects side by side and return them in the order of ``keys``. Raises the first StoreError."""
        return self._side_by_side(self.get, [*keys], threads)

    def delete(self, key: str) -> None:
        """Remove an object; removing what is not there is no error."""
        try:
            self._retried(f"delete {key}", lambda: self._client.remove_object(self.bucket, key))
        except ObjectMissing:
            return

    def delete_many(self, keys: Iterable[str], threads: int = 16) -> None:
        """Remove objects side by side. Raises the first StoreError; what is not yet begun then stays."""
        self._side_by_side(self.delete, [*keys], threads)

    def ensure_bucket(self) -> None:
        """Create the bucket unless it is there."""

        def attempt() -> None:
            if not self._client.bucket_exists(self.bucket):
                self._client.make_bucket(self.bucket)

        self._retried(f"create bucket {self.bucket}", attempt)

    def uri(self, key: str) -> str:
        """Return ``s3://bucket/key``."""
        return f"s3://{self.bucket}/{key}"

    def filesystem(self) -> S3FileSystem:
        """Return a pyarrow file system on the same store, for readers of datasets; paths begin with the bucket."""
        from pyarrow.fs import S3FileSystem

        options: dict[str, Any] = {"tls_ca_file_path": self._ca_file} if self._ca_file else {}
        return S3FileSystem(
            access_key=self._access_key,
            secret_key=self._secret_key,
            endpoint_override=self.endpoint,
            scheme="https" if self.secure else "http",
            region=self.region,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=READ_TIMEOUT_S,
            **options,
        )

    def _side_by_side(self, act: Callable[[Any], T], items: Sequence[Any], threads: int) -> builtins.list[T]:
        if not items:
            return []
        with ThreadPoolExecutor(max_workers=min(threads, len(items), POOL_SIZE)) as pool:
            futures = [pool.submit(act, item) for item in items]
            try:
                return [f.result() for f in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _retried(self, what: str, attempt: Callable[[], T]) -> T:
        """Run ``attempt`` until it succeeds, fails for good, or ``retry_s`` is over."""
        deadline = time.monotonic() + self.retry_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                return self._attempted(what, attempt)
            except _Transient as error:
                if time.monotonic() + pause > deadline:
                    raise StoreError(
                        f"object store {self.endpoint}: cannot {what}: {error}; tried for {self.retry_s:.0f} s. "
                        "Check that the store runs and is reachable, then repeat the run: it continues where it was."
                    ) from None
                log.warning("object store %s: cannot %s yet: %s; trying again", self.endpoint, what, error)
            # Jitter, so that threads that lost the store together do not come back together.
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not for security
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _attempted(self, what: str, attempt: Callable[[], T]) -> T:
        try:
            return attempt()
        except S3Error as error:
            code, status = error.code or "", getattr(error.response, "status", 0) or 0
            if code in _MISSING_CODES:
                raise ObjectMissing(f"{self.bucket} on {self.endpoint}: cannot {what}: no such object") from None
            if code in _TRANSIENT_CODES or status >= 500 or status == 429:
                raise _Transient(f"{code or status} {error.message or ''}".strip()) from None
            advice = _REFUSED.get(code, "see the store's own log")
            raise StoreError(
                f"object store {self.endpoint}, bucket {self.bucket}: cannot {what}: {code or status} "
                f"({error.message}); {advice}"
            ) from None
        except ServerError as error:
            raise _Transient(f"HTTP {error.status_code}") from None
        except InvalidResponseError as error:
            if (getattr(error, "_code", 0) or 0) >= 500:
                raise _Transient(f"HTTP {error._code} without an S3 body") from None
            raise StoreError(
                f"object store {self.endpoint}: cannot {what}: the answer is not S3 ({str(error)[:200]}); "
                "check that host and port of the connection are the S3 endpoint"
            ) from None
        except urllib3.exceptions.SSLError as error:
            raise StoreError(
                f"object store {self.endpoint}: cannot {what}: TLS failed ({error}); "
                "check extra.secure and extra.ca_file of the connection"
            ) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _Transient(_short(error)) from None
        except (MinioException, ValueError) as error:
            raise StoreError(f"object store {self.endpoint}: cannot {what}: {error}") from None


def _short(error: Exception) -> str:
    """Say what failed on the wire without the repr of connection objects that urllib3 puts in front."""
    text = str(error).rsplit(": ", 1)[-1] or type(error).__name__
    return text[:200]
