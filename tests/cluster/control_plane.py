"""A real etcd and kube-apiserver on loopback, started by the tests, stopped with everything they started."""

from __future__ import annotations

import ctypes
import datetime as dt
import ipaddress
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from kubernetes import client

ADMIN = "admin-token"
WORKER = "worker-token"
NOBODY = "nobody-token"
WORKER_USER = "system:serviceaccount:fabric-health:fabric-health"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a self-signed certificate for 127.0.0.1 and its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    crt, pem = folder / f"{name}.crt", folder / f"{name}.key"
    crt.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return crt, pem


def _die_with_us() -> None:
    """Have the kernel end this process when the test process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


@dataclass
class ControlPlane:
    """One etcd and one kube-apiserver with RBAC and three users: an admin, the account of deploy/rbac.yaml, nobody.

    ``assets`` holds the programs, ``folder`` what they write.
    """

    folder: Path
    assets: Path
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        certificate(self.folder, "sa")
        (self.folder / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{WORKER},{WORKER_USER},2\n{NOBODY},nobody,3\n'
        )
        self.etcd_port, peer = free_port(), free_port()
        etcd, at = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peer}"
        self._spawn(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *("--listen-peer-urls", at, "--initial-advertise-peer-urls", at, "--initial-cluster", f"default={at}"),
            "--unsafe-no-fsync",
        )
        self.start_api()

    def start_api(self) -> None:
        sa = self.folder / "sa"
        self._spawn(
            "kube-apiserver",
            *("--etcd-servers", f"http://127.0.0.1:{self.etcd_port}", "--bind-address", "127.0.0.1"),
            *("--advertise-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--cert-dir", str(self.folder / "certs"), "--token-auth-file", str(self.folder / "tokens.csv")),
            *("--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", f"{sa}.crt", "--service-account-signing-key-file", f"{sa}.key"),
            *("--disable-admission-plugins", "ServiceAccount,Priority,TaintNodesByCondition"),
            *("--service-cluster-ip-range", "10.0.0.0/24", "--endpoint-reconciler-type", "none"),
            *("--allow-privileged", "--watch-cache=true", "--request-timeout", "60s"),
        )
        until = time.monotonic() + 90
        http = urllib3.PoolManager(cert_reqs=ssl.CERT_NONE)
        while True:
            try:
                answer = http.request(
                    "GET", f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"}, retries=False, timeout=5
                )
                if answer.status == 200:
                    return
            except urllib3.exceptions.HTTPError:
                pass
            if time.monotonic() > until or self.processes["kube-apiserver"].poll() is not None:
                raise RuntimeError((self.folder / "kube-apiserver.log").read_text(errors="replace")[-3000:])
            time.sleep(0.1)

    def stop_api(self) -> None:
        self._end("kube-apiserver")

    def stop(self) -> None:
        for name in ("kube-apiserver", "etcd"):
            self._end(name)
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def client(self, token: str) -> Any:
        """Return an API client of one of the users."""
        configuration = client.Configuration()
        configuration.host = self.url
        configuration.verify_ssl = False
        configuration.retries = False
        configuration.api_key = {"BearerToken": f"Bearer {token}"}
        return client.ApiClient(configuration)

    def kubeconfig(self, token: str) -> dict[str, Any]:
        """Return a kubeconfig of one of the users."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }

    def _spawn(self, name: str, *argv: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.assets / name, *argv],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_die_with_us,
            )

    def _end(self, name: str) -> None:
        process = self.processes.pop(name, None)
        if process is None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
