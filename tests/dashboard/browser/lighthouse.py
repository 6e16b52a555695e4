"""`make lighthouse`: what Lighthouse says of the dashboard's pages. The argument is its program."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import yaml

from dashboard.browser import scene
from dashboard.browser.looks import FLAGS, PAGES
from support.real import require

_LEAST = 95
_SETTLES_S = 10.0


async def main(program: str) -> int:
    """Print the four figures of each page, and what was found wrong; 1 if a figure is too low."""
    worst = 100
    with tempfile.TemporaryDirectory() as folder:
        async with scene.shop(Path(folder)) as shop:
            await asyncio.sleep(_SETTLES_S)
            config = yaml.safe_load(shop.folder.joinpath("kubeconfig").read_text())
            bearer = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
            headers = Path(folder) / "headers.json"
            headers.write_text(json.dumps(bearer))
            flags = " ".join(("--headless=new", "--ignore-certificate-errors", *FLAGS))
            # The first request loads the dashboard, which is not what is measured.
            for _ in range(2):
                await shop.client.raw("GET", "/ui/")
            for name in ("overview", "certificate", "issuers", "stream", "login"):
                process = await asyncio.create_subprocess_exec(
                    program,
                    f"{shop.url}/ui/{PAGES[name]}",
                    f"--chrome-flags={flags}",
                    f"--extra-headers={headers}",
                    "--output=json",
                    "--quiet",
                    "--only-categories=performance,accessibility,best-practices,seo",
                    env={**os.environ, "CHROME_PATH": require("chromium")},
                    stdout=asyncio.subprocess.PIPE,
                )
                printed = (await process.communicate())[0]
                if process.returncode:
                    print(f"{name}: Lighthouse failed; run this again on a quiet machine")
                    return 1
                report = json.loads(printed)
                figures = {key: round(100 * each["score"]) for key, each in report["categories"].items()}
                worst = min(worst, *figures.values())
                print(f"{name}: " + ", ".join(f"{key} {figure}" for key, figure in figures.items()))
                for each in report["audits"].values():
                    if each["score"] is not None and each["score"] < 0.9:
                        print(f"  {each['id']}: {each['title']} {each.get('displayValue', '')}")
    return int(worst < _LEAST)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
