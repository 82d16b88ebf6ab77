"""Data Docs without the internet: nothing is loaded from elsewhere, and what a page says stays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fabric_health.quality.offline import offline

PAGE = b"""<!DOCTYPE html><html><head><meta charset="UTF-8">
<link rel="stylesheet" href="https://unpkg.com/x.css"><link rel="icon" href="static/favicon.ico"/>
<link rel='stylesheet' type="text/css" href='//cdn/y.css' />
<script src="https://code.jquery.com/jquery.js" integrity="sha384-x" crossorigin="anonymous"></script>
</head><body><script>var kept=1</script><a href="https://greatexpectations.io">kept</a>
<table id="t"></table>
<script>$('#t').bootstrapTable(Object.assign({columns:[{field:'a',title:'Status'},{field:'b',title:'Run'},
{field:'c',title:'Hidden',visible:'false'}],data:[{a:'<b>ok</b>',b:'weekly',c:'x',_table_row_link_path:'v.html'}]},{}));
$(document).ready(function(){$('#t').on('click-row.bs.table',function(){})});</script>
<div id="p"><i class="gone"></i></div><script>$('.gone').parent().fadeOut().each((i,e)=>{e.title='seen'})</script>
</body></html>"""


def test_what_is_remote_is_gone_and_the_rest_is_kept() -> None:
    page = offline(PAGE)
    assert [word for word in (b"unpkg", b"cdn/", b"jquery.com") if word in page] == []
    for kept in (b"static/favicon.ico", b"var kept=1", b"https://greatexpectations.io", b'<table id="t">'):
        assert kept in page
    assert page.index(b"window.$=") < page.index(b"</head>") < page.index(b"bootstrapTable(Object.assign")
    assert page.count(b"window.$=") == 1


def test_a_page_without_a_head_is_left_alone() -> None:
    assert offline(b"<p>text</p>") == b"<p>text</p>"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_its_scripts_draw_the_table_and_filter(tmp_path: Path) -> None:
    file = tmp_path / "index.html"
    file.write_bytes(offline(PAGE))
    argv = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom",
        f"file://{file}",
    ]  # fmt: skip
    shown = subprocess.run(argv, capture_output=True, text=True, timeout=120).stdout
    assert "<th>Status</th><th>Run</th></tr>" in shown
    assert '<tr data-href="v.html"><td><b>ok</b></td><td><a href="v.html">weekly</a></td></tr>' in shown
    assert '<div id="p" title="seen" style="display: none;">' in shown or 'style="display: none;" title="seen"' in shown
