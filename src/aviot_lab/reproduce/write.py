"""The report's files: JSON, Markdown with plots, and one self-contained page."""

import base64
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aviot.utils.files import check_folder, write_durably
from aviot_lab.reproduce.plots import draw_plots
from aviot_lab.reproduce.tables import Section, Table, preamble, sections

TITLE = "AVIOT: the paper's experiments in the demo model's world"
PLOTS = "plots"
ELSEWHERE = "name a folder for the run with -o"
REPORTS = ("report.json", "report.md", "report.html")
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
td { white-space: nowrap; }
th { border-bottom: 2px solid #8888; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
td.words { text-align: left; white-space: normal; font-family: ui-monospace, monospace; font-size: .8rem; }
img { display: block; max-width: 100%; background: #fff; }
.made { color: #777; font-size: .85rem; }
"""


def check_report(folder: Path) -> None:
    """Raise if the report cannot be written into this folder, before anything is measured."""
    check_folder(folder / PLOTS, ELSEWHERE)
    for name in REPORTS:
        if (folder / name).is_dir():
            raise ValueError(f"{folder / name} is a folder; {ELSEWHERE}")


@dataclass(frozen=True)
class Document:
    """The readable form of a report: sentences about the run, its sections, and the SVG of each section's plot."""

    title: str
    about: Sequence[str]
    sections: Sequence[Section]
    plots: Mapping[str, str]


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the report of the paper's experiments."""
    document = Document(TITLE, preamble(report), sections(report), draw_plots(report["figures"]))
    write_document(folder, report, document)


def write_document(folder: Path, report: Mapping[str, Any], document: Document) -> None:
    """Write report.json, report.md with its plots, and report.html; each file atomically."""
    (folder / PLOTS).mkdir(exist_ok=True)
    machine, markdown, page = REPORTS
    texts = {
        machine: json.dumps(report, indent=2, allow_nan=False) + "\n",
        **{f"{PLOTS}/{name}.svg": svg for name, svg in document.plots.items()},
        markdown: "\n".join(_markdown(document)) + "\n",
        page: "\n".join(_page(document)) + "\n",
    }
    for name, text in texts.items():
        write_durably(folder / name, text.encode())


def _markdown(document: Document) -> Iterator[str]:
    yield f"# {document.title}"
    for line in document.about:
        yield f"- {line}"
    for section in document.sections:
        yield f"\n## {section.title}\n{section.text}\n"
        if section.plot is not None:
            yield f"![{section.title}]({PLOTS}/{section.plot}.svg)\n"
        for table in section.tables:
            yield "| " + " | ".join(table.headings) + " |"
            yield "|" + " --- |" * len(table.headings)
            yield from ("| " + " | ".join(row) + " |" for row in table.rows)
            yield ""


def _page(document: Document) -> Iterator[str]:
    title = html.escape(document.title)
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    yield '<ul class="made">' + "".join(f"<li>{html.escape(line)}</li>" for line in document.about) + "</ul>"
    for section in document.sections:
        yield f"<h2>{html.escape(section.title)}</h2><p>{html.escape(section.text)}</p>"
        if section.plot is not None:
            data = base64.b64encode(document.plots[section.plot].encode()).decode()
            yield f'<img alt="{html.escape(section.title)}" src="data:image/svg+xml;base64,{data}">'
        yield from (_html_table(table) for table in section.tables)
    yield "</body></html>"


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in table.headings)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in table.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    kind = ' class="words"' if text.startswith("python ") else ""
    return f"<td{kind}>{html.escape(text)}</td>"
