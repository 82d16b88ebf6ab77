"""Make pages of Great Expectations readable without the internet, and silent with it.

The pages load their style and scripts from seven hosts. Where those cannot be reached the pages are bare text, and the
index has no table, since a script draws it; where they can, each host learns that the page was looked at, and runs its
script on it. What the pages need is little, and is put into them instead.
"""

from __future__ import annotations

import re

_REMOTE = re.compile(
    rb"<script\b[^>]*\bsrc=[\"'](?:https?:)?//[^>]*>\s*</script>|<link\b[^>]*\bhref=[\"'](?:https?:)?//[^>]*>"
)

# Only the classes that the pages use, of the ones Bootstrap has.
_STYLE = b"""
*{box-sizing:border-box}
body{margin:0;font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;color:#212529}
a{color:#0b5ed7;text-decoration:none}a:hover{text-decoration:underline}
h1,h2,h3,h4,h5,h6,.h6{margin:0 0 .4rem;font-weight:600;line-height:1.2}h4{font-size:1.3rem}h5{font-size:1.15rem}
h6,.h6{font-size:1rem}
.navbar.sticky-top{position:sticky;top:0;z-index:2;display:flex;align-items:center;padding:0 1.5rem;background:#fff}
.border-bottom{border-bottom:1px solid #dee2e6}
.navbar-brand img{display:none}.navbar-brand a:before{content:"Data Docs";font-weight:600}
.d-flex{display:flex}.align-items-center{align-items:center}.justify-content-center{justify-content:center}
.container-fluid{width:100%;padding:1rem 1.5rem}.ge-section.container-fluid{padding:0;margin-bottom:1rem}
.row{display:flex;flex-wrap:wrap;gap:0 1rem}.row .row{gap:0}
.col-lg-2{flex:0 0 15rem}.col-lg-10{flex:1 1 0;min-width:0}.col-12{flex:0 0 100%;max-width:100%}
.col-6{flex:0 0 50%;max-width:50%}.table-responsive{overflow-x:auto}
.breadcrumb{display:flex;flex-wrap:wrap;list-style:none;padding:0 1rem}
.breadcrumb-item+.breadcrumb-item:before{content:"/";padding:0 .5rem;color:#6c757d}
.alert{padding:.6rem 1rem;margin:.3rem 0;border:1px solid #d6d8db;border-radius:4px;background:#e9ecef}
.alert-danger{background:#f8d7da;border-color:#f1aeb5}.alert-warning{background:#fff3cd;border-color:#ffe69c}
.alert-success{background:#d1e7dd;border-color:#a3cfbb}
.badge{display:inline-block;padding:.1em .45em;border-radius:4px;font-size:.85em;font-family:monospace;color:#fff}
.badge{background:#495057}.badge-info{background:#087990}.badge-warning{background:#997404}
table{border-collapse:collapse;width:100%;margin:.4rem 0}td,th{padding:.3rem .6rem;border-top:1px solid #dee2e6}
td,th{text-align:left;vertical-align:top}thead th{border-bottom:2px solid #dee2e6}
.table-bordered td{border:1px solid #dee2e6}
tr[data-href]{cursor:pointer}tr[data-href]:hover{background:#f1f3f5}
.card{border:1px solid #dee2e6;border-radius:4px;margin-bottom:1rem}.card-header{padding:.4rem .7rem;background:#f1f3f5}
.card-body{padding:.7rem}.nav{display:flex;flex-wrap:wrap;list-style:none;margin:0;padding:0}
.nav-tabs{gap:1rem;margin:.5rem 0}.nav-link{display:block;padding:.2rem .5rem}
.btn{display:inline-block;padding:.25rem .6rem;border:1px solid #6c757d;border-radius:4px;background:#fff}
.btn{cursor:pointer}.btn input{display:none}[onclick^=clearTableFilters],footer{display:none!important}
.text-success{color:#146c43}.text-danger{color:#b02a37}.text-warning{color:#997404}.fas{font-style:normal;font-weight:700}
.fa-check-circle:before{content:"\\2714"}.fa-times:before{content:"\\2718"}
.fa-exclamation-triangle:before{content:"\\26a0"}.tab-pane{margin-bottom:1.5rem}.show-scrollbars{overflow:auto}
"""

# As much of jQuery and bootstrap-table as the pages call.
_SCRIPT = b"""
window.$=function(what){
  var found=typeof what==='string'?Array.from(document.querySelectorAll(what)):[].concat(what);
  var self={
    each:function(f){found.forEach(function(e,i){f(i,e)});return self},
    parent:function(){
      return $(Array.from(new Set(found.map(function(e){return e.parentElement}).filter(Boolean))))},
    fadeIn:function(){return shown('')},fadeOut:function(){return shown('none')},
    ready:function(f){document.addEventListener('DOMContentLoaded',f);return self},
    on:function(){return self},prepend:function(){return self},modal:function(){return self},
    tooltip:function(){return self},popover:function(){return self},
    bootstrapTable:function(o){if(typeof o==='object')found.forEach(function(t){draw(t,o)});return self}};
  function shown(v){found.forEach(function(e){e.style.display=v});return self}
  function draw(table,o){
    var columns=o.columns.filter(function(c){return c.visible!==false&&c.visible!=='false'});
    var head=table.createTHead().insertRow(),body=table.createTBody();
    columns.forEach(function(c){var th=document.createElement('th');th.textContent=c.title||'';head.appendChild(th)});
    o.data.forEach(function(row){
      var tr=body.insertRow(),to=row._table_row_link_path;
      columns.forEach(function(c){tr.insertCell().innerHTML=row[c.field]==null?'':row[c.field]});
      if(!to)return;
      tr.dataset.href=to;
      tr.onclick=function(){location=to};
      var cell=tr.cells[Math.min(1,tr.cells.length-1)],a=document.createElement('a');
      if(cell.querySelector('a'))return;
      a.href=to;while(cell.firstChild)a.appendChild(cell.firstChild);cell.appendChild(a)})}
  return self};
"""
_OWN = b"<style>" + _STYLE + b"</style><script>" + _SCRIPT + b"</script></head>"


def offline(page: bytes) -> bytes:
    """Return a page of Great Expectations that loads nothing from elsewhere, with a style and scripts of its own."""
    return _REMOTE.sub(b"", page).replace(b"</head>", _OWN, 1)
