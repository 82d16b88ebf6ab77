"""Connection ids through Airflow: what is defined comes whole, what is not is our error, which is not tried again."""

import json

ASK = """
import json
from fabric_health.airflow.connections import airflow_connection
from fabric_health.errors import ConnectionSettingError
c = airflow_connection("lab_ssh")
print("RESULT", json.dumps([c.id, c.host, c.port, c.login, c.password, c.extra]))
for name in ("no_such_connection", "broken"):
    try:
        airflow_connection(name)
    except ConnectionSettingError as error:
        print("RESULT", json.dumps([str(error), repr(error.__cause__)]))
"""
ENTRY = {
    "conn_type": "ssh",
    "host": "h",
    "port": 2222,
    "login": "u",
    "password": "p:/@%",
    "extra": {"known_hosts": "/k", "agent": True},
}


def test_connections(python_in, migrated):
    out = python_in(ASK, AIRFLOW_CONN_LAB_SSH=json.dumps(ENTRY), AIRFLOW_CONN_BROKEN="{not json")
    defined, missing, broken = (
        json.loads(line.removeprefix("RESULT ")) for line in out.splitlines() if line.startswith("RESULT ")
    )
    assert defined == ["lab_ssh", "h", 2222, "u", "p:/@%", {"known_hosts": "/k", "agent": True}]
    assert missing[0].startswith("Airflow has no connection 'no_such_connection'")
    assert "docs/connections.md" in missing[0]
    assert broken[0].startswith("Airflow has no connection 'broken'")
