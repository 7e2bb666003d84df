"""How the page looks: colours for light and dark; text has a contrast of 4.5 with what it stands on."""

from __future__ import annotations

_LIGHT = """
color-scheme:light;
--ground:#ffffff;--panel:#f5f7f9;--line:#d5dbe1;--text:#1c2127;--muted:#56606b;--accent:#0a5cad;
--h0:#d9e0e7;--h1:#b5cfe6;--h2:#7fb0dc;--h3:#efbf5f;--h4:#e28a33;--h5:#c43f27;
--undo:#7a4fd0;--redo:#2f7fc4;--exact:#2f7fc4;--spread:#9cc3e6;--readable:#3f9d5f;--gone:#c9cfd6;
--p0:#2f7fc4;--p1:#e28a33;--p2:#3f9d5f;--p3:#7a4fd0;--p4:#c43f27;--p5:#5b7083;
--mark:#1c2127;--outline:#0f7a3a;
"""

_DARK = """
color-scheme:dark;
--ground:#14181d;--panel:#1c2229;--line:#343d47;--text:#e6eaee;--muted:#a0abb6;--accent:#73b4f2;
--h0:#39434e;--h1:#3c5f80;--h2:#4b8cc4;--h3:#b8923a;--h4:#d07a2c;--h5:#e05a41;
--undo:#a98aec;--redo:#4f9be0;--exact:#4f9be0;--spread:#33597c;--readable:#58b67a;--gone:#46505b;
--p0:#4f9be0;--p1:#d9893e;--p2:#58b67a;--p3:#a98aec;--p4:#e05a41;--p5:#8a9aab;
--mark:#e6eaee;--outline:#6fd694;
"""

_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);font:14px/1.5 system-ui,"Segoe UI",Roboto,
"DejaVu Sans",sans-serif}
header,main,footer{max-width:1240px;margin:0 auto;padding:0 20px}
header{padding-top:18px}
h1{font-size:20px;margin:0;overflow-wrap:anywhere}
h2{font-size:17px;margin:0 0 8px}
h3{font-size:14px;margin:18px 0 6px}
a{color:var(--accent)}
nav{position:sticky;top:0;z-index:3;background:var(--ground);border-bottom:1px solid var(--line);
margin-top:10px}
nav ul{max-width:1240px;margin:0 auto;padding:6px 20px;display:flex;flex-wrap:wrap;gap:2px 16px;
list-style:none}
nav a{text-decoration:none;padding:2px 0}
nav a:hover{text-decoration:underline}
section{border-top:1px solid var(--line);padding:18px 0;scroll-margin-top:44px}
main>section:first-child{border-top:0}
details,tr[id]{scroll-margin-top:80px}
.top{display:flex;justify-content:space-between;gap:16px;align-items:flex-start}
.top>div{min-width:0}
.lead{max-width:82ch}
.muted,.note{color:var(--muted)}
.badge{display:inline-block;border:1px solid var(--line);border-radius:9px;padding:0 8px;font-size:12px;
color:var(--muted);background:var(--panel)}
.badge.now{color:var(--ground);background:var(--accent);border-color:var(--accent)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(170px,1fr));gap:10px;margin:10px 0}
.card{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:8px 12px;min-width:0}
.card dt{color:var(--muted);font-size:12px}
.card dd{margin:0;font-size:16px;font-weight:600;overflow-wrap:anywhere}
.card .note{font-size:12px;font-weight:400}
button,input{font:inherit;color:var(--text);background:var(--panel);border:1px solid var(--line);
border-radius:6px;padding:2px 10px}
input[type=search]{width:250px;max-width:100%}
button{cursor:pointer}
button[aria-pressed=true]{border-color:var(--accent);box-shadow:inset 0 0 0 1px var(--accent)}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
.tools{display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin:10px 0}
.scroll{overflow:auto;max-height:420px;border:1px solid var(--line);border-radius:8px;margin:10px 0}
table{border-collapse:separate;border-spacing:0;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--muted);padding:6px 10px}
th{position:sticky;top:0;z-index:1;background:var(--panel);text-align:left;
border-bottom:1px solid var(--line);padding:2px;white-space:nowrap}
th .sort{background:none;border:0;padding:2px 8px;font-weight:600;font-size:13px}
th[aria-sort=ascending] .sort::after{content:" \\25b4"}
th[aria-sort=descending] .sort::after{content:" \\25be"}
td{padding:3px 10px;border-bottom:1px solid var(--line);white-space:nowrap;font-size:13px;vertical-align:top;
max-width:360px;overflow:hidden;text-overflow:ellipsis}
td.text{white-space:normal;min-width:220px}
tbody tr:hover td{background:var(--panel)}
tbody tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right}
td.wide{min-width:190px}
tr:target td{background:var(--panel);box-shadow:inset 0 2px 0 var(--accent)}
.bar{display:inline-block;width:100px;height:9px;background:var(--h0);border-radius:2px;overflow:hidden;
margin-right:8px}
.bar i{display:block;height:100%;background:var(--redo)}
.stack{display:flex;height:18px;border-radius:4px;overflow:hidden;margin:10px 0;background:var(--h0)}
.part{display:block;height:100%;border-right:1px solid var(--ground)}
.p0{background:var(--p0)}.p1{background:var(--p1)}.p2{background:var(--p2)}.p3{background:var(--p3)}
.p4{background:var(--p4)}.p5{background:var(--p5)}
details{border:1px solid var(--line);border-radius:8px;margin:8px 0;padding:0 12px}
details>summary{cursor:pointer;padding:8px 0;overflow-wrap:anywhere}
details[open]{padding-bottom:8px}
details details{border:0;padding:0}
.figures{float:right;color:var(--muted);padding-left:12px}
svg{display:block;border-bottom:1px solid var(--line)}
.ends{display:flex;justify-content:space-between;gap:16px;color:var(--muted);font-size:12px}
.ends span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.bars g:hover rect{stroke:var(--text);stroke-width:1}
.s0 .base,.h0{fill:var(--h0);background:var(--h0)}.s1 .base,.h1{fill:var(--h1);background:var(--h1)}
.s2 .base,.h2{fill:var(--h2);background:var(--h2)}.s3 .base,.h3{fill:var(--h3);background:var(--h3)}
.s4 .base,.h4{fill:var(--h4);background:var(--h4)}.h5{background:var(--h5)}
.undo{fill:var(--undo);background:var(--undo)}
rect.u1{opacity:.4}rect.u2{opacity:.6}rect.u3{opacity:.8}
.chosen .base{stroke:var(--outline);stroke-width:2}
.busy .base{stroke:var(--h5);stroke-width:2;stroke-dasharray:4 3}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;list-style:none;padding:0;margin:8px 0;font-size:12px;
color:var(--muted)}
.legend i{display:inline-block;width:14px;height:11px;margin-right:5px;border-radius:2px;vertical-align:-1px}
.tools .legend{gap:2px 6px;margin:0}
i.outline{background:none;box-shadow:inset 0 0 0 2px var(--outline)}
i.busy{border:2px dashed var(--h5);border-radius:0}
.exact{fill:var(--exact);background:var(--exact)}.spread{fill:var(--spread);background:var(--spread)}
.redo{fill:var(--redo);background:var(--redo)}
.readable{fill:var(--readable);background:var(--readable)}.gone{fill:var(--gone);background:var(--gone)}
.mark line{stroke:var(--mark);stroke-width:1.5;stroke-dasharray:2 2}
.nothing{fill:var(--muted);font-size:12px}
.grid{display:flex;flex-wrap:wrap;gap:3px;margin:10px 0}
.cell{width:22px;height:22px;border-radius:3px;background:var(--h0)}
.grid.many .cell{width:13px;height:13px;border-radius:2px}
.cell:hover{outline:2px solid var(--text)}
.cell.gone{opacity:.45}
.next{background:var(--panel);border-left:3px solid var(--accent);padding:6px 12px;margin:8px 0}
.findings li{margin:4px 0}
.alarm{background:var(--h5);color:#fff;padding:6px 20px}
footer{color:var(--muted);padding-bottom:30px;font-size:12px}
.hidden{display:none}
@media (max-width:700px){.figures{float:none;display:block;padding:0}.top{flex-direction:column}}
@media print{nav,.tools,.theme{display:none}.scroll{max-height:none}}
"""


def _measures() -> str:
    """The colours of a grid's cells, by the measure that is chosen."""
    return "".join(
        f'.grid[data-measure={m}] .cell[data-{m}="{n}"]{{background:var(--h{n})}}'
        for m in ("height", "deltas", "bytes", "memory")
        for n in range(6)
    )


STYLE = (
    f":root{{{_LIGHT}}}@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{_DARK}}}}}"
    f":root[data-theme=dark]{{{_DARK}}}{_RULES}{_measures()}"
).replace("\n", "")

__all__ = ["STYLE"]
