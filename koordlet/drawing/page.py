"""An HTML page that is one file: no scripts, nothing loaded from elsewhere, light and dark, fit to
print. Whoever makes parts of it escapes what others have named."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from koordlet.drawing.charts import CHART_STYLE
from koordlet.drawing.palette import DARK, LIGHT, variables

_STYLE = f"""
:root {{ color-scheme: light dark; {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 1200px; margin: 1.5rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.45rem; line-height: 1.3; max-width: 60rem; margin: .5rem 0 1rem; }}
h2 {{ font-size: 1.1rem; margin: 1.6rem 0 .3rem; }}
p {{ margin: .4rem 0; }}
.muted {{ color: var(--muted); }} .good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.grid3 {{ display: grid; gap: .7rem; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); }}
.card, svg {{ background: var(--soft); border-radius: 6px; }}
.card {{ padding: .6rem .9rem; }}
.card b.figure {{ display: block; font-size: 2rem; line-height: 1.2; }}
svg {{ width: 100%; height: auto; display: block; }}
.key {{ display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; font-size: .9rem;
  margin: .2rem 0 .5rem; }}
.key svg {{ display: inline-block; width: 1.6rem; height: .9rem; margin-right: .4rem;
  vertical-align: -1px; background: none; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: right;
  vertical-align: top; }}
th:first-child, td:first-child, .decisions th, .decisions td {{ text-align: left; }}
.decisions td:first-child {{ white-space: nowrap; }}
.decisions td:nth-child(2) {{ min-width: 17rem; }}
.decisions code {{ overflow-wrap: anywhere; }}
code {{ background: var(--soft); padding: .05em .3em; border-radius: 3px; }}
@media (max-width: 640px) {{
  h1 {{ font-size: 1.2rem; }}
  .decisions thead {{ display: none; }}
  .decisions td:nth-child(2) {{ min-width: 0; }}
  .decisions tr, .decisions td {{ display: block; border: 0; padding: .1rem .5rem; }}
  .decisions tr {{ border-bottom: 1px solid var(--line); padding: .5rem 0; }}
}}
@media print {{
  :root {{ color-scheme: only light; {variables(LIGHT)} }}
  body {{ font-size: 10pt; max-width: none; margin: 0; print-color-adjust: exact; }}
  h2 {{ break-after: avoid; }}
  svg, tr, .card {{ break-inside: avoid; }}
}}
{CHART_STYLE}
""".strip()


def document(title: str, style: str, parts: Iterable[str]) -> str:
    """The whole of it. ``style``: CSS of this page beside what all pages have."""
    return "\n".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>{escape(title)}</title><style>{_STYLE}\n{style}</style></head><body>",
            *parts,
            "</body></html>\n",
        )
    )


def key(*entries: tuple[str, str]) -> str:
    """Words with the shape that stands for them."""
    return (
        "<div class='key'>"
        + "".join(
            f"<span><svg viewBox='0 0 24 14' aria-hidden='true'>{shape}</svg>{escape(words)}</span>"
            for words, shape in entries
        )
        + "</div>"
    )


def stroke(style: str) -> str:
    """A line, for a key."""
    return f"<polyline class='{style}' points='1,7 23,7'/>"


def fill(style: str) -> str:
    """An area, for a key."""
    return f"<polygon class='area {style}' points='2,1 22,1 22,13 2,13'/>"


def row(cells: Iterable[str]) -> str:
    """Of a table; the cells are texts, not HTML."""
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def table(header: Iterable[str], rows: Iterable[str], style: str) -> str:
    """``rows`` are HTML, as ``row`` makes it; ``style`` is a CSS class."""
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join(rows)
    return f"<table class='{style}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
