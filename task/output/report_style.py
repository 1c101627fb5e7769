"""How the page of a report looks: light and dark as the reader's system is, narrow and wide, on paper too."""

STYLE = """\
:root{color-scheme:light dark;--ground:#fff;--raised:#f6f8fa;--line:#d8dee4;--text:#1f2328;--faint:#59636e;
--good:#116329;--good-ground:#dafbe1;--bad:#a40e26;--bad-ground:#ffebe9;--warn:#7d4e00;--warn-ground:#fff8c5;
--calm:#0550ae;--calm-ground:#ddf4ff;--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (prefers-color-scheme:dark){:root{--ground:#0d1117;--raised:#161b22;--line:#30363d;--text:#e6edf3;
--faint:#9198a1;--good:#56d364;--good-ground:#12261e;--bad:#ff7b72;--bad-ground:#2d1316;--warn:#e3b341;--warn-ground:#272115;
--calm:#79c0ff;--calm-ground:#121d2f}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem 1.25rem 3rem;background:var(--ground);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.3;margin:.25rem 0 1rem}
h1 .mark{vertical-align:.2em;margin-left:.4rem}
h2{font-size:1.1rem;margin:2rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:0 0 .5rem}
p{margin:.25rem 0}
code,pre,.mono{font-family:var(--mono);font-size:.875em}
a{color:var(--calm)}
.kicker{color:var(--faint);font-size:.875rem}
.images{list-style:none;padding:0;margin:0 0 1rem}
.images li{font-family:var(--mono);font-size:.95rem}
.counts{display:flex;flex-wrap:wrap;gap:.5rem;list-style:none;padding:0;margin:0}
.counts li{background:var(--raised);border:1px solid var(--line);border-radius:.5rem;padding:.3rem .75rem}
.counts b{font-variant-numeric:tabular-nums}
.mark{display:inline-block;border-radius:1rem;padding:.05rem .65rem;font-size:.85rem;font-weight:600;white-space:nowrap;
color:var(--faint);background:var(--raised);border:1px solid currentColor}
.update,.updated{color:var(--good);background:var(--good-ground)}
.refuse,.refused,.warning{color:var(--warn);background:var(--warn-ground)}
.defer,.deferred{color:var(--calm);background:var(--calm-ground)}
.error,.failed{color:var(--bad);background:var(--bad-ground)}
.card{border:1px solid var(--line);border-radius:.6rem;margin:0 0 1rem;overflow:hidden;break-inside:avoid}
.card>h3{margin:0;padding:.55rem .9rem;background:var(--raised);border-bottom:1px solid var(--line)}
.card>.body{padding:.6rem .9rem}
.row{display:grid;grid-template-columns:7rem minmax(10rem,1.1fr) minmax(9rem,1fr) minmax(16rem,2.2fr);
gap:.25rem 1.25rem;padding:.6rem .9rem;border-top:1px solid var(--line);align-items:baseline}
.card>h3+.row{border-top:0}
.change{font-family:var(--mono);font-size:.9em}
.change b{white-space:pre-wrap}
.was{color:var(--faint)}
.why p{margin:0}
.small{color:var(--faint);font-size:.875rem}
ul.files{margin:.35rem 0 0;padding-left:1.2rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0}
dt{color:var(--faint)}dd{margin:0}
pre.diff{margin:0;border-top:1px solid var(--line);padding:.6rem 0;overflow-x:auto;line-height:1.45;tab-size:8}
pre.diff span{display:block;padding:0 .9rem;min-width:max-content;white-space:pre}
.add{background:var(--good-ground);color:var(--good)}
.del{background:var(--bad-ground);color:var(--bad)}
.hunk{color:var(--calm)}.file{font-weight:600}
footer{margin-top:2.5rem;color:var(--faint);font-size:.875rem}
@media (max-width:52rem){body{padding:1rem .75rem 2rem}.row{grid-template-columns:1fr;gap:.3rem}
dl{grid-template-columns:1fr;gap:0}dd{margin:0 0 .4rem}}
@media print{body{max-width:none;padding:0;font-size:11pt}pre.diff span{white-space:pre-wrap;min-width:0}
.mark,.add,.del{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""
