"""The page that documents the routes, made from the OpenAPI description; it loads nothing."""

import html
import json
from typing import Any

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre { background: #f4f4f4; padding: 1rem; overflow: auto }
"""


def document_page(description: dict[str, Any]) -> str:
    """Return the page of an OpenAPI description."""
    title = html.escape(f"{description['info']['title']} {description['info']['version']}")
    parts = [f"<h1>{title}</h1><p>The same for programs: <a href='/openapi.json'>/openapi.json</a></p>"]
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(route.get('description', ''))}</p>")
            for kind, content in route.get("requestBody", {}).get("content", {}).items():
                schema = html.escape(json.dumps(content["schema"], indent=2))
                parts.append(f"<p>Body: <code>{html.escape(kind)}</code></p><pre>{schema}</pre>")
    head = f"<meta charset='utf-8'><title>{title}</title><link rel='icon' href='data:,'><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body><main>{''.join(parts)}</main></body></html>"
