"""Configurations of admission webhooks, and APIServices: defaults and rules.

Source: Kubernetes documentation, "Dynamic Admission Control"; Kubernetes
`pkg/apis/admissionregistration/validation`, kube-aggregator `pkg/apis/apiregistration/validation`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from certwright.kube.api.errors import FieldError, duplicate, invalid, not_supported, required, too_many
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.core_services import port_number_errors
from certwright.kube.apiserver.model.definitions import Strategy
from certwright.kube.apiserver.policies import expressions
from certwright.kube.apiserver.requests.selectors import selector_errors
from certwright.kube.util.clock import Clock

# --- webhooks ---------------------------------------------------------------------------------------------

_HTTPS_PORT = 443
_FAILURE = ("Fail", "Ignore")
_MATCH = ("Equivalent", "Exact")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REINVOCATION = ("IfNeeded", "Never")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_REVIEWS = ("v1", "v1beta1")
_MAX_TIMEOUT_S = 30
_MAX_WEBHOOKS = 1_000
"""Webhooks of one configuration. Kubernetes takes as many as fit in a request; every write matches all of
them."""


def default_match(match: Json, *rules: str) -> None:
    """Fill in which requests a webhook or a policy matches; `rules` names its lists of rules."""
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    for rule in (rule for name in rules for rule in match.get(name) or ()):
        rule.setdefault("scope", "*")


def _default_webhooks(obj: Json) -> None:
    for hook in obj.get("webhooks", ()):
        default_match(hook, "rules")
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("timeoutSeconds", 10)
        if obj["kind"].startswith("Mutating"):
            hook.setdefault("reinvocationPolicy", "Never")
        if service := hook["clientConfig"].get("service"):
            service.setdefault("port", _HTTPS_PORT)


def _validate_webhooks(new: Json, old: Json | None) -> list[FieldError]:
    errors: list[FieldError] = []
    # Conditions that are not changed may be older than these rules.
    stored = [hook.get("matchConditions") for hook in (old or {}).get("webhooks", ())]
    seen: set[str] = set()
    hooks = new.get("webhooks", ())
    if len(hooks) > _MAX_WEBHOOKS:
        return [too_many("webhooks", len(hooks), _MAX_WEBHOOKS)]
    for index, hook in enumerate(hooks):
        path = f"webhooks[{index}]"
        errors += _name_errors(hook["name"], f"{path}.name")
        for at, rule in enumerate(hook.get("rules", ())):
            errors += rule_errors(rule, f"{path}.rules[{at}]")
        errors += _policy_errors(hook, path)
        errors += client_errors(hook["clientConfig"], f"{path}.clientConfig")
        errors += _review_errors(hook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions")
        for name in ("namespaceSelector", "objectSelector"):
            errors += selector_errors(hook[name], f"{path}.{name}")
        if (conditions := hook.get("matchConditions")) and conditions not in stored:
            where = f"{path}.matchConditions"
            errors += expressions.condition_errors(conditions, where, has_params=False)
        if hook["name"] in seen:
            errors.append(duplicate(f"{path}.name", hook["name"]))
        seen.add(hook["name"])
    return errors


def _name_errors(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    if text := object_names.dns_subdomain(name):
        return [invalid(path, name, text)]
    if name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        return [invalid(path, name, text)]
    return []


def rule_errors(rule: Json, path: str) -> list[FieldError]:
    """The errors of a rule of a webhook, or of a policy."""
    errors: list[FieldError] = []
    for name in ("apiGroups", "apiVersions", "resources", "operations"):
        if not rule.get(name):
            errors.append(required(f"{path}.{name}"))
    for name, what in (
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
        ("operations", "operations"),
    ):
        given = rule.get(name) or ()
        if len(given) > 1 and "*" in given:
            errors.append(
                invalid(f"{path}.{name}", given, f"if '*' is present, must not specify other {what}")
            )
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    if rule["scope"] not in _SCOPES:
        errors.append(not_supported(f"{path}.scope", rule["scope"], _SCOPES))
    return errors


def _policy_errors(hook: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    choices = (("failurePolicy", _FAILURE), ("matchPolicy", _MATCH), ("reinvocationPolicy", _REINVOCATION))
    for name, allowed in choices:
        if name in hook and hook[name] not in allowed:
            errors.append(not_supported(f"{path}.{name}", hook[name], allowed))
    effects = hook.get("sideEffects")
    if effects is None:
        errors.append(required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}"))
    elif effects not in _SIDE_EFFECTS:
        errors.append(not_supported(f"{path}.sideEffects", effects, _SIDE_EFFECTS))
    if not 1 <= hook["timeoutSeconds"] <= _MAX_TIMEOUT_S:
        text = f"the timeout value must be between 1 and {_MAX_TIMEOUT_S} seconds"
        errors.append(invalid(f"{path}.timeoutSeconds", hook["timeoutSeconds"], text))
    return errors


def client_errors(client: Json, path: str) -> list[FieldError]:
    """The errors of a webhook's address."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if service is None:
        return _url_errors(str(url), f"{path}.url")
    errors: list[FieldError] = []
    for name in ("name", "namespace"):
        if not service[name]:
            errors.append(required(f"{path}.service.{name}", f"service {name} is required"))
    where = service.get("path") or ""
    if where and not where.startswith("/"):
        errors.append(invalid(f"{path}.service.path", where, "must start with a '/'"))
    return errors + port_number_errors(f"{path}.service.port", service["port"])


_URL_FORM = "; desired format: https://host[/path]"


def _url_errors(url: str, path: str) -> list[FieldError]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_URL_FORM}")]
    errors: list[FieldError] = []
    if parts.scheme != "https":
        text = f"'https' is the only allowed URL scheme{_URL_FORM}"
        errors.append(invalid(path, parts.scheme, text))
    if not parts.netloc:
        errors.append(invalid(path, parts.netloc, f"host must be specified{_URL_FORM}"))
    if parts.username or parts.password:
        # Without the value, because it contains a password.
        errors.append(invalid(path, "", "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return errors


def _review_errors(versions: list[str], path: str) -> list[FieldError]:
    known = ", ".join(_REVIEWS)
    if not versions:
        return [required(path, f"must specify one of {known}")]
    seen, errors = set[str](), list[FieldError]()
    for index, version in enumerate(versions):
        if version in seen:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        seen.add(version)
    if not set(versions) & set(_REVIEWS):
        errors.append(invalid(path, versions, f"must include at least one of {known}"))
    return errors


WEBHOOKS = Strategy(defaults=_default_webhooks, validate=_validate_webhooks)

# --- APIService -------------------------------------------------------------------------------------------

_MAX_GROUP_PRIORITY, _MAX_VERSION_PRIORITY = 20000, 1000


def api_service(clock: Clock) -> Strategy:
    """The strategy: the server proxies requests of the group to its Service (`apiserver.elsewhere`), or
    serves them itself."""

    def prepare_create(obj: Json) -> None:
        obj["status"] = {"conditions": [_available(obj, clock)]}

    def prepare_update(new: Json, old: Json) -> None:
        if bool(new["spec"].get("service")) != bool(old["spec"].get("service")):
            new["status"] = {"conditions": [_available(new, clock)]}

    return Strategy(prepare_create, prepare_update, defaults=_default_service, validate=_validate_service)


def _default_service(obj: Json) -> None:
    if service := obj["spec"].get("service"):
        service.setdefault("port", _HTTPS_PORT)


def _available(obj: Json, clock: Clock) -> Json:
    service = obj["spec"].get("service")
    made: Json = {"type": "Available", "lastTransitionTime": clock.now().isoformat()[:19] + "Z"}
    if service:
        where = f"{service.get('namespace', '')}/{service.get('name', '')}"
        text = f'requests are passed on to the Service "{where}", whose health is not checked'
        return {**made, "status": "Unknown", "reason": "NotProbed", "message": text}
    return {**made, "status": "True", "reason": "Local", "message": "Local APIServices are always available"}


def _validate_service(new: Json, _: Json | None) -> list[FieldError]:
    spec, name = new["spec"], new["metadata"]["name"]
    errors: list[FieldError] = []
    expected = f"{spec.get('version', '')}.{spec.get('group', '')}"
    if name != expected:
        text = f'must be `spec.version+"."+spec.group`: "{expected}"'
        errors.append(invalid("metadata.name", name, text))
    for field, most in (
        ("groupPriorityMinimum", _MAX_GROUP_PRIORITY),
        ("versionPriority", _MAX_VERSION_PRIORITY),
    ):
        if not 0 < spec[field] <= most:
            errors.append(invalid(f"spec.{field}", spec[field], f"must be positive and less than {most}"))
    if spec.get("service") is None:
        if spec.get("caBundle"):
            errors.append(invalid("spec.caBundle", "", "local APIServices may not have a caBundle"))
        if spec.get("insecureSkipTLSVerify"):
            text = "local APIServices may not have insecureSkipTLSVerify"
            errors.append(invalid("spec.insecureSkipTLSVerify", True, text))
    elif spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        text = "may not be true if caBundle is present"
        errors.append(invalid("spec.insecureSkipTLSVerify", True, text))
    return errors
