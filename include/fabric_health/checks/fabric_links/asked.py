"""Names of what is asked of a fabric: rows and findings refer to evidence by them."""

from __future__ import annotations

DISCOVERY, LINKS, ERRORS, TRAFFIC = "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "ibqueryerrors_counters"
MANAGER, MANAGERS, DIAGNET = "sminfo", "saquery_sminfo", "ibdiagnet_log"
