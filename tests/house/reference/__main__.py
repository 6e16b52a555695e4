"""Writes docs/reference/ again: `make docs`."""

from __future__ import annotations

from house.reference.pages import FOLDER, pages


def main() -> None:
    """Write each page whose text has changed."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
