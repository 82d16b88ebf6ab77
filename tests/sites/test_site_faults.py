"""A site file that cannot be used is refused with file, line and key of every fault, whatever is in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fabric_health.errors import SiteError, UsageError
from fabric_health.site import MAX_UNITS, Site, expand, load_site

GOOD = """\
site: tiny
title: Tiny
reach:
  ssh: {connection: c}
skus:
  one:
    gpu_model: H100
    gpus: 8
    link_layer: InfiniBand
    nic_rate_gbps: 400
    nics:
      - {name: mlx5_0, rail: 0}
nodes:
  - names: n[1-2]
    sku: one
    rack: r1
    reach: ssh
switches:
  - names: s1
    platform: eos
    reach: ssh
port_profiles:
  gpu: {mtu_bytes: 9216}
cabling:
  - switch: s1
    ports: Ethernet[1-2]
    nodes: n[1-2]
    nic: mlx5_0
    profile: gpu
"""
PODS = "{namespace: probes, image: registry.example.org/node-probe:1}"


def by_pods(pods: str, more: str = "connection: c") -> str:
    return f"{{kind: kubernetes, {more}, kubernetes: {pods}}}"


def pod_with(setting: str) -> str:
    return by_pods(PODS.replace("}", f", {setting}}}"))


def load(folder: Path, text: str) -> Site:
    path = folder / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return load_site(path)


def test_the_example_is_good(tmp_path: Path) -> None:
    site = load(tmp_path, GOOD)
    assert (len(site.nodes), len(site.switches), len(site.cables)) == (2, 1, 2)


def test_nodes_by_pods(tmp_path: Path) -> None:
    pods = load(tmp_path, GOOD.replace("{connection: c}", by_pods(PODS), 1)).nodes[0].reach.kubernetes
    assert pods is not None
    assert (pods.namespace, pods.host_paths, pods.privileged, pods.node_selector_key) == (
        "probes",
        ("/",),
        False,
        "metadata.name",
    )


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ("site: tiny", "site: Tiny Site", "site: ", "String should match pattern"),
        ("title: Tiny", "titel: Tiny", "titel: ", "did you mean 'title'?"),
        ("title: Tiny\n", "", "title: ", "required key is missing"),
        ("gpus: 8", "gpus: eight", "skus.one.gpus: ", "valid integer"),
        ("gpus: 8", "gpus: 65", "skus.one.gpus: ", "less than or equal to 64"),
        ("gpus: 8", "gpuz: 8", "skus.one.gpuz: ", "did you mean 'gpus'?"),
        ("link_layer: InfiniBand", "link_layer: Infiniband", "skus.one.link_layer: ", "'InfiniBand' or 'Ethernet'"),
        ("nic_rate_gbps: 400", "nic_rate_gbps: 0", "skus.one.nic_rate_gbps: ", "greater than 0"),
        ("nic_rate_gbps: 400", "nic_rate_gbps: .nan", "skus.one.nic_rate_gbps: ", "greater than 0"),
        ("rail: 0}", "rail: -1}", "skus.one.nics.0.rail: ", "greater than or equal to 0"),
        ("names: n[1-2]\n    sku", "names: n[1-\n    sku", "nodes.0.names: ", "expected a range such as"),
        ("names: n[1-2]\n    sku", "names: n[1-2],n1\n    sku", "nodes.0.names: ", "named twice"),
        ("names: s1", "names: n1", "switches.0.names: ", "named twice"),
        ("sku: one", "sku: won", "nodes.0.sku: ", "no SKU 'won'; expected one of: one"),
        ("rack: r1\n    reach: ssh", "rack: r1\n    reach: shh", "nodes.0.reach: ", "no reach profile 'shh'"),
        ("platform: eos", "platform: ios", "switches.0.platform: ", "Input should be"),
        (
            "platform: eos",
            "platform: eos\n    golden: none.cfg",
            "switches.0.golden: ",
            "expected a readable UTF-8 file",
        ),
        (
            "platform: eos",
            "platform: eos\n    address: 10.0.0.[1-2]",
            "switches.0.address: ",
            "gives 2 values, expected 1",
        ),
        ("mtu_bytes: 9216", "mtu_bytes: 9", "port_profiles.gpu.mtu_bytes: ", "greater than or equal to 576"),
        ("switch: s1", "switch: s2", "cabling.0.switch: ", "no switch 's2'; expected one of: s1"),
        ("ports: Ethernet[1-2]", "ports: Ethernet[1-3]", "cabling.0.ports: ", "3 ports for 2 nodes"),
        ("ports: Ethernet[1-2]", "ports: Ethernet1,Ethernet1", "cabling.0.ports: ", "cabled twice"),
        ("nodes: n[1-2]\n    nic", "nodes: n[2-3]\n    nic", "cabling.0.nodes: ", "no node 'n3'"),
        ("nic: mlx5_0", "nic: mlx5_9", "cabling.0.nic: ", "mlx5_0"),
        ("nic: mlx5_0", "peer: s1", "cabling.0: ", "expected either nodes and nic, or peer and peer_ports"),
        ("profile: gpu", "profile: cpu", "cabling.0.profile: ", "no port profile 'cpu'"),
        ("{connection: c}", "{kind: kubernets}", "reach.ssh.kind: ", "'ssh', 'local' or 'kubernetes'"),
        (
            "{connection: c}",
            "{kind: kubernetes}",
            "reach.ssh: ",
            "expected `kubernetes` with at least namespace and image",
        ),
        ("{connection: c}", f"{{kubernetes: {PODS}}}", "reach.ssh: ", "expected `kind: kubernetes`"),
        ("{connection: c}", by_pods(PODS, "port: 22"), "reach.ssh: ", "port beside kind kubernetes"),
        ("{connection: c}", by_pods(PODS, "jump: j"), "reach.ssh: ", "expected them with ssh only"),
        ("{connection: c}", by_pods("{namespace: p}"), "reach.ssh.kubernetes.image: ", "required key is missing"),
        ("{connection: c}", by_pods("{namespace: P, image: i}"), "reach.ssh.kubernetes.namespace: ", "match pattern"),
        (
            "{connection: c}",
            pod_with("privilegd: true"),
            "reach.ssh.kubernetes.privilegd: ",
            "did you mean 'privileged'",
        ),
        ("{connection: c}", pod_with("host_paths: [usr]"), "reach.ssh.kubernetes.host_paths: ", "absolute path"),
        ("{connection: c}", pod_with("host_paths: [/a/../b]"), "reach.ssh.kubernetes.host_paths: ", "without `..`"),
        ("{connection: c}", pod_with("host_paths: [/, /usr]"), "reach.ssh.kubernetes.host_paths: ", "`/` alone"),
        ("{connection: c}", pod_with("host_paths: []"), "reach.ssh.kubernetes.host_paths: ", "at least 1 item"),
        ("{connection: c}", pod_with("capabilities: [sys_admin]"), "reach.ssh.kubernetes.capabilities.0: ", "pattern"),
        ("{connection: c}", pod_with("capabilities: [ALL]"), "reach.ssh.kubernetes: ", "expected single ones"),
        (
            "{connection: c}",
            pod_with("privileged: true, capabilities: [SYSLOG]"),
            "reach.ssh.kubernetes: ",
            "privileged has them all",
        ),
        (
            "{connection: c}",
            pod_with("tolerations: [{key: a, efect: x}]"),
            "reach.ssh.kubernetes.tolerations.0.efect: ",
            "'effect'",
        ),
    ],
)
def test_a_fault_is_named_by_file_line_and_key(tmp_path: Path, old: str, new: str, at: str, message: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    with pytest.raises(SiteError) as caught:
        load(tmp_path, text)
    hits = [x for x in str(caught.value).splitlines() if f": {at}" in x and message in x]
    assert hits, caught.value
    file, line, _ = hits[0].removeprefix(str(tmp_path)).split(":", 2)
    assert file == "/site.yaml"
    shown = text.splitlines()[int(line) - 1]
    if "missing" not in message:
        key = [part for part in at.removesuffix(": ").split(".") if not part.isdigit()][-1]
        assert key in shown or shown.lstrip().startswith("- "), (line, shown)


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("gpus: 8", "gpus: x").replace("mtu_bytes: 9216", "mtu_bytes: y").replace("platform: eos", "")
    with pytest.raises(SiteError) as caught:
        load(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 3
    text = GOOD.replace("sku: one", "sku: x").replace("switch: s1", "switch: y")
    with pytest.raises(SiteError) as caught:
        load(tmp_path, text)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: the file is empty"),
        ("# only a comment\n", ":1: the file is empty"),
        ("just text", ":1: expected a mapping"),
        ("- a\n- b\n", ":1: expected a mapping"),
        ("a: [1\n", "expected valid YAML"),
        ("a: 1\n\tb: 2\n", ":2: "),
        ("site: a\nsite: b\n", ":2: site: the key is given twice"),
        ("a: &x [*x]\n", "unknown key"),
        ("title: x\nsite: !!python/object/apply:os.system [id]\n", ":2: could not determine a constructor"),
    ],
)
def test_what_is_no_site_file_at_all(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SiteError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="No such file"):
        load_site(tmp_path / "none.yaml")
    with pytest.raises(SiteError, match="Is a directory"):
        load_site(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"title: caf\xe9\n")
    with pytest.raises(SiteError, match="not UTF-8 at byte 10"):
        load_site(tmp_path / "latin.yaml")


def test_a_range_of_too_many_units_is_refused() -> None:
    with pytest.raises(UsageError, match=str(MAX_UNITS)):
        expand(f"n[1-{MAX_UNITS + 1}]")


def loads_or_is_refused(folder: Path, text: str) -> None:
    refusal = None
    try:
        assert isinstance(load(folder, text), Site)
    except SiteError as error:
        refusal = str(error)
    assert refusal is None or refusal.startswith(str(folder))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=300))
@example("a: 99999999-99-99\n")
@example("? [a]\n: b\n")
@example("1: 2\n~: 3\n")
@example("a: 0x" + "f" * 5000)
@example("a: " + "9" * 5000)
@example("[" * 5000)
@example("\x00")
@example("a: 2001-02-30\n")
@example("a: 1:99999:1\n")
@example("<<: 1\n")
@example("%YAML 9.9\n--- a\n")
def test_any_text_is_a_site_or_a_site_error(tmp_path: Path, text: str) -> None:
    loads_or_is_refused(tmp_path, text)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.dates()
VALUES = st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_value_in_any_place_is_a_site_or_a_site_error(tmp_path: Path, data: st.DataObject) -> None:
    tree = yaml.safe_load(GOOD)
    place, spot = tree, data.draw(st.sampled_from(sorted(tree)))
    while isinstance(place[spot], dict | list) and place[spot] and data.draw(st.booleans()):
        place = place[spot]
        spot = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[spot] = data.draw(VALUES)
    loads_or_is_refused(tmp_path, yaml.safe_dump(tree))
