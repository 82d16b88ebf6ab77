"""A real API server for the session, a namespace with its own player for each test."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

sys.path.insert(0, str(Path(__file__).parent))

import crds
from control_plane import ADMIN, WORKER, ControlPlane
from kubernetes import client
from player import Player

from fabric_health.jobs.kubernetes.api import Cluster
from fabric_health.jobs.kubernetes.backend import KubernetesBackend
from fabric_health.jobs.settings import KubernetesSettings

urllib3.disable_warnings()
RBAC = Path(__file__).parents[2] / "deploy" / "rbac.yaml"
NODES = ("gpu-001", "gpu-002", "node-1")


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory, kubernetes_assets: Path) -> Iterator[ControlPlane]:
    """The control plane. Without its programs these tests fail: a tier that skips itself proves nothing."""
    made = ControlPlane(tmp_path_factory.mktemp("plane"), kubernetes_assets)
    try:
        made.start()
        extensions = client.ApiextensionsV1Api(made.client(ADMIN))
        for kind in crds.SPECS:
            extensions.create_custom_resource_definition(crds.crd(kind), _preload_content=False)
        yield made
    finally:
        made.stop()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A fresh namespace in which the account of deploy/rbac.yaml has its rights."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    api = plane.client(ADMIN)
    client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})
    rbac = client.RbacAuthorizationV1Api(api)
    for document in yaml.safe_load_all(RBAC.read_text()):
        if document["kind"] == "Role":
            document["metadata"]["namespace"] = name
            rbac.create_namespaced_role(name, document)
        if document["kind"] == "RoleBinding":
            document["metadata"]["namespace"] = name
            rbac.create_namespaced_role_binding(name, document)
    return name


@pytest.fixture
def player(plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Player]:
    """The player of the namespace, playing; what it could not do fails the test."""
    made = Player(plane, namespace, tmp_path)
    for node in NODES:
        made.add_node(node)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def settings(namespace: str) -> KubernetesSettings:
    return KubernetesSettings(namespace=namespace, images={"self": "registry.example.org/tools:1"})


@pytest.fixture
def backend(plane: ControlPlane, namespace: str, settings: KubernetesSettings) -> KubernetesBackend:
    """The backend, with the least rights that deploy/rbac.yaml gives."""
    cluster = Cluster(plane.client(WORKER), namespace, patience_s=60)
    return KubernetesBackend(cluster, settings, "site-a", "run-1", look_s=0.5, image_patience_s=1.0)
