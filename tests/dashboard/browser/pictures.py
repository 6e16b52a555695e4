"""`make screenshots`: the pages of the dashboard as pictures in docs/img/."""

from __future__ import annotations

import asyncio
import io
import tempfile
from pathlib import Path

from PIL import Image

from dashboard.browser import scene
from dashboard.browser.looks import LOOKS, PAGES, launched, visiting

IMAGES = Path(__file__).parents[3] / "docs" / "img"
_COLOURS = 48
_SETTLES_S = 10.0
_TALLEST = 1600
_NAMES = ("overview", "certificate", "expired", "deny", "issuers", "root", "elsewhere", "stream", "login")


async def main() -> None:
    """Write them, and say how large they are."""
    with tempfile.TemporaryDirectory() as folder:
        async with scene.shop(Path(folder)) as shop, launched() as browser:
            await asyncio.sleep(_SETTLES_S)
            for look in LOOKS.keys() - {"wide"}:
                async with visiting(browser, shop, look) as visitor:
                    for name in _NAMES:
                        await visitor.open(PAGES[name])
                        tall = await visitor.page.evaluate("document.documentElement.scrollHeight")
                        wide = LOOKS[look]["viewport"]["width"]
                        shot = await visitor.page.screenshot(
                            full_page=True,
                            clip={"x": 0, "y": 0, "width": wide, "height": min(tall, _TALLEST)},
                        )
                        _save(shot, f"dashboard-{name}-{look}")
                        if (name, look) == ("overview", "light"):
                            # What is seen without scrolling, for README.
                            _save(await visitor.page.screenshot(), "dashboard")
    written = sorted(IMAGES.glob("dashboard*.png"))
    print(f"{len(written)} pictures, {sum(path.stat().st_size for path in written) // 1000} kB")


def _save(shot: bytes, name: str) -> None:
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    # The other methods lose the colours of the smallest shapes.
    picture = picture.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    asyncio.run(main())
