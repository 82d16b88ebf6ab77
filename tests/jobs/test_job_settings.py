"""The ``jobs`` part of a site file: defaults, and faults named by key."""

import pytest

from fabric_health.errors import SiteError, UsageError
from fabric_health.jobs.argv import filled
from fabric_health.jobs.settings import parse

CLUSTER = {"backend": "kubernetes", "kubernetes": {"namespace": "fabric-health", "images": {"nccl": "r.example/n:1"}}}


def test_the_default_is_local():
    made = parse({}, "site.yaml")
    assert (made.backend, made.kubernetes) == ("local", None)


def test_a_cluster_needs_a_namespace_and_images_only():
    made = parse(CLUSTER, "site.yaml").in_cluster
    assert made.multi_node == "mpijob"
    assert made.tolerations[0].key == "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "slurm"}, "site.yaml: jobs.backend: "),
        ({"parallel": 2}, "jobs.parallel: unknown key"),
        ({"kubernets": {}}, "jobs.kubernets: unknown key"),
        ({"kubernetes": None}, "expected its settings under `kubernetes`"),
        ({"kubernetes": {"images": {}}}, "jobs.kubernetes.namespace: required key is missing"),
        ({"kubernetes": {**CLUSTER["kubernetes"], "namespace": "Bad_Name"}}, "jobs.kubernetes.namespace"),
        ({"kubernetes": {**CLUSTER["kubernetes"], "images": {"x": "no image"}}}, "image of 'x'"),
        (
            {"kubernetes": {**CLUSTER["kubernetes"], "host_network": True, "multi_node": "volcano"}},
            "host_network with ssh_port 22",
        ),
        ({"kubernetes": {**CLUSTER["kubernetes"], "models": {}}}, "jobs.kubernetes.models.claim: required key"),
        *(
            ({"kubernetes": {**CLUSTER["kubernetes"], "models": {"claim": "models", key: value}}}, message)
            for key, value, message in [
                ("mount", "models", "expected an absolute path"),
                ("mount", "/a/../b", "expected an absolute path"),
                ("mount", "//models", "expected an absolute path"),
                ("mount", "/", "expected an absolute path"),
                ("mount", "/dev/shm", "hides /dev"),
                ("mount", "/opt", "hides /opt/fabric-health"),
                ("mount", "/lib64", "hides /lib64"),
                ("sub_path", "/abs", "expected the relative path"),
                ("sub_path", "../up", "expected the relative path"),
                ("sub_path", "", "expected the relative path"),
                ("claim", "Not_A_Name", "jobs.kubernetes.models.claim"),
            ]
        ),
    ],
)
def test_a_fault_names_its_key(change, message):
    with pytest.raises(SiteError) as raised:
        parse({**CLUSTER, **change}, "site.yaml")
    assert message in str(raised.value)


def test_models_are_at_a_path_of_their_own():
    models = {"claim": "models", "sub_path": "fabric/models"}
    made = parse({**CLUSTER, "kubernetes": {**CLUSTER["kubernetes"], "models": models}}, "site.yaml").in_cluster
    assert made.models
    assert (made.models.mount, made.models.sub_path) == ("/models", "fabric/models")


def test_placeholders_are_filled_and_other_braces_kept():
    assert filled(("{python}", "--json={x}", "{hosts}"), {"python": "p", "hosts": "a,b"}) == ("p", "--json={x}", "a,b")
    with pytest.raises(UsageError, match="artefacts"):
        filled(("{artefacts}",), {"python": "p"})
    with pytest.raises(UsageError, match="at least one word"):
        filled((), {})
