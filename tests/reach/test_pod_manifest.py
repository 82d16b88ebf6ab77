"""The pod that asks a node: valid for Kubernetes, pinned to its node, and no stronger than the site says."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from fabric_health.checks import registry
from fabric_health.evidence import Command
from fabric_health.jobs.kubernetes.manifests import DEADLINE, MANAGED_BY
from fabric_health.reach import UnitRequest
from fabric_health.reach.frames import read_script
from fabric_health.reach.pod_manifest import HOST, MAX_SCRIPT_BYTES, ProbePod
from fabric_health.site import Fabric, Node, ReachProfile, Sku, load_site

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 30, 6, 0, tzinfo=UTC)
GPUS = Sku(gpu_model="H100", gpus=8, link_layer="Ethernet", nic_rate_gbps=1)
PLAIN = GPUS.model_copy(update={"gpus": 0})


def profile_of(**settings: Any) -> ReachProfile:
    pods = {"namespace": "probes", "image": "registry.example.org/node-probe:1", **settings}
    return ReachProfile.model_validate({"kind": "kubernetes", "kubernetes": pods})


def pod_of(sku: Sku = GPUS, unit: Node | Fabric | None = None, **settings: Any) -> dict[str, Any]:
    profile = profile_of(**settings)
    unit = unit or Node("GPU_001.example", "s", sku, "r1", "gpu-001", profile)
    assert profile.kubernetes is not None
    request = UnitRequest(unit, "driver_firmware", (Command("uname", ("uname", "-r")),))
    pod = ProbePod(request, profile.kubernetes, "c0ffee", "0" * 16, 117.0, NOW)
    manifest = pod.manifest()
    assert manifest == pod.manifest()
    return manifest


FULL = {
    "node_selector_key": "kubernetes.io/hostname",
    "host_paths": ["/usr", "/proc"],
    "host_pid": True,
    "runtime_class": "nvidia",
    "selinux_type": "spc_t",
    "priority_class": "high",
    "service_account": "node-probe",
    "image_pull_secrets": ["registry"],
    "capabilities": ["SYSLOG"],
}


@pytest.mark.parametrize("settings", [{}, FULL, {"privileged": True, "host_network": False}])
@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_kubernetes_takes_the_manifest(settings: dict[str, Any], version: str) -> None:
    manifest = pod_of(**settings)
    if version == "1.28":  # it passes over a field that it does not know; the validator does not
        for mount in manifest["spec"]["containers"][0]["volumeMounts"]:
            assert mount.pop("recursiveReadOnly") == "IfPossible"
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_pod_may_do_next_to_nothing() -> None:
    manifest = pod_of(PLAIN)
    spec = manifest["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_CHROOT"]},
    }
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")
    assert spec["hostNetwork"] is True
    assert not {"hostPID", "hostIPC", "runtimeClassName", "nodeName"} & set(spec)
    assert spec["volumes"] == [{"name": "host-0", "hostPath": {"path": "/", "type": "Directory"}}]
    assert all(m["readOnly"] for m in container["volumeMounts"])
    assert [m["mountPath"] for m in container["volumeMounts"]] == [HOST]
    assert [e["name"] for e in container["env"]] == ["SYSTEMD_IGNORE_CHROOT"]


def test_what_a_site_adds_is_there_and_nothing_else() -> None:
    spec = pod_of(**FULL)["spec"]
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYSLOG", "SYS_CHROOT"]}
    assert [m["mountPath"] for m in container["volumeMounts"]] == ["/host/usr", "/host/proc"]
    assert (spec["hostPID"], spec["runtimeClassName"], spec["priorityClassName"]) == (True, "nvidia", "high")
    assert spec["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    privileged = pod_of(privileged=True)["spec"]["containers"][0]["securityContext"]
    assert privileged == {"runAsUser": 0, "runAsGroup": 0, "readOnlyRootFilesystem": True, "privileged": True}


def test_it_runs_on_its_node_and_only_there() -> None:
    by_name = pod_of()["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    here = [{"key": "metadata.name", "operator": "In", "values": ["gpu-001"]}]
    assert by_name == {"nodeSelectorTerms": [{"matchFields": here}]}
    label = pod_of(node_selector_key="example.org/name")["spec"]["affinity"]["nodeAffinity"]
    (term,) = label["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{**here[0], "key": "example.org/name"}]}
    tolerated = [t["key"] for t in pod_of()["spec"]["tolerations"]]
    assert tolerated == ["nvidia.com/gpu", "node.kubernetes.io/unschedulable"]
    assert pod_of(tolerations=[])["spec"]["tolerations"] == []


def test_gpus_are_asked_for_where_there_are_some() -> None:
    env = {e["name"]: e["value"] for e in pod_of(runtime_class="nvidia")["spec"]["containers"][0]["env"]}
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    fabric = Fabric("ib0", "gpu-001", "gpu-001", profile_of())
    for manifest in (pod_of(PLAIN, runtime_class="nvidia"), pod_of(unit=fabric, runtime_class="nvidia")):
        assert "NVIDIA" not in str(manifest["spec"]["containers"][0]["env"])
        assert "runtimeClassName" not in manifest["spec"]


def test_it_ends_by_itself_and_the_sweep_knows_it() -> None:
    manifest = pod_of(start_limit_s=100)
    assert manifest["metadata"]["labels"][MANAGED_BY] == "fabric-health"
    assert manifest["spec"]["activeDeadlineSeconds"] == 180
    assert manifest["metadata"]["annotations"][DEADLINE] == "2026-11-30T06:04:40+00:00"
    assert manifest["metadata"]["name"] == f"fh-probe-gpu-001-example-{'0' * 16}"


def test_the_commands_of_the_largest_node_fit_and_are_the_checks_own() -> None:
    site = load_site(ROOT / "include" / "sites" / "lab.yaml")
    node = max(site.nodes, key=lambda n: len(n.sku.nics))
    check = registry.check("driver_firmware")
    commands = check.commands(node, site)
    profile = profile_of()
    assert profile.kubernetes is not None
    pod = ProbePod(UnitRequest(node, check.name, commands), profile.kubernetes, "c", "0" * 16, 1.0, NOW)
    assert len(pod.script) < MAX_SCRIPT_BYTES / 2
    read = read_script(pod.script.encode())
    assert read is not None
    assert read.commands == tuple(c.argv for c in commands)
    assert read.packed


def test_the_whole_command_really_runs_up_to_the_nodes_root() -> None:
    """Here there is no /host, or no right to enter it: the probe says so and asks nothing of this machine."""
    command = pod_of()["spec"]["containers"][0]["command"]
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, timeout=30)
    assert done.returncode == 3 or os.path.isdir(HOST)
    if done.returncode == 3:
        assert done.stdout == b""
        assert b"no way into the node's root" in done.stderr
