"""The options of `certwright get` that say how objects are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from certwright.cli import lazy

if TYPE_CHECKING:
    from certwright.cli.jsonpath_template import Column, Render
    from certwright.kube.util.jsonpath import Find

_FORMS = ("wide", "yaml", "json", "name")


class Output(msgspec.Struct, frozen=True):
    """The value of `-o`: a form, with a template or columns for two of them."""

    form: str = ""
    render: Render | None = None
    columns: tuple[Column, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether the server makes the table."""
        return self.form in ("", "wide")


class OutputType(click.ParamType[Output]):
    """The type of `-o`."""

    name = "output"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Output:
        """See `click.ParamType`."""
        form, _, text = str(value).partition("=")
        try:
            match form:
                case "jsonpath" if text:
                    return Output(form, render=lazy.jsonpath_template.template(text))
                case "custom-columns" if text:
                    return Output(form, columns=lazy.jsonpath_template.columns(text))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if value not in ("", *_FORMS):
            known = ", ".join(_FORMS)
            self.fail(f"{value!r} is not one of {known}, jsonpath=TEMPLATE, custom-columns=…", param, ctx)
        return Output(form)


class PathType(click.ParamType["Find"]):
    """The type of `--sort-by`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Find:
        """See `click.ParamType`."""
        try:
            return lazy.jsonpath.compile_path(lazy.jsonpath_template.bare_path(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)
