"""`--dns01-lexicon` and `--dns01-plugin`: the packages that they need."""

from __future__ import annotations

from certwright.acme.solvers.dns01.child import plugin
from certwright.resources.lexicon import FORBIDDEN_PROVIDERS


def lexicon_problem(names: tuple[str, ...]) -> str:
    """Why these providers of dns-lexicon cannot be allowed; empty: they can."""
    for name in names:
        if name in FORBIDDEN_PROVIDERS:
            return f"`{name}` cannot be used: {FORBIDDEN_PROVIDERS[name]}"
    known = plugin.lexicon_providers()
    if not known:
        return "dns-lexicon is not installed; run `pip install 'certwright[lexicon]'`"
    unknown = [name for name in names if name not in known]
    return f"dns-lexicon has no provider `{unknown[0]}`; `lexicon --help` lists them" if unknown else ""


def plugin_problem(names: tuple[str, ...]) -> str:
    """Why these plug-ins cannot be allowed; empty: they can."""
    known = plugin.plugins()
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    shown = f" (installed: {', '.join(sorted(known))})" if known else ""
    return f"no installed package provides the plug-in `{unknown[0]}`{shown}; install its package"
