# Copyright (c) 2026 The storage_ops.runbooks contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Build the programs that tests start: Kubernetes 1.20.2 from Debian's source package, and by one
`go build` what `current/` names as Go modules: a current Kubernetes, CSI-Addons and crictl.

Nothing is installed: Debian packages are unpacked, Go's caches live in the working folder and go with it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..common import LabError, cache_dir, locked, run, say, step
from ..image import debian_mirrors

OLD, CURRENT = "1.20.2", "current"
VERSIONS = (OLD, CURRENT)
MODULES = Path(__file__).resolve().parent / "current"
DRIVER = Path(__file__).resolve().parent / "addons/driver"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BUILD_DEADLINE = 3600.0
FETCH_DEADLINE = 900.0
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# What Go says when nobody serves a module, as opposed to a mistake of ours such as a sum that is missing here.
NOT_SERVED = re.compile(
    r"dial tcp|no such host|i/o timeout|deadline exceeded|connection re|TLS handshake|unexpected EOF|unreachable|proxyconnect"
    r"|: (?:4\d\d|5\d\d) |lookup disabled|toolchain not available|unknown revision"
)
# Nobody debugs these programs: that is a part of the compiler's work.
COMPILE = "-gcflags=all=-dwarf=false"
# What a build that was ended half-way leaves to the next one of the same recipe. Go checks what it
# reads from there, so nothing half-written is used.
KEPT = ("modules", "gocache")
# All that changes what CSI-Addons' sidecar does outside a cluster: it takes a kubeconfig, and it
# listens on loopback only.
SIDECAR_CHANGES = (
    ("rest.InClusterConfig()", "ctrl.GetConfig()"),
    ('\t"k8s.io/client-go/rest"\n', ""),
    ("server.NewSidecarServer(*controllerIP,", 'server.NewSidecarServer("127.0.0.1",'),
)


class Unavailable(LabError):
    """This cannot be had on this machine, whatever the lab does: its sources are out of reach."""


@dataclass(frozen=True)
class Binaries:
    """Programs in their folder. Kubernetes has its etcd there, CSI-Addons its definitions (`crd`)."""

    version: str
    path: Path

    def __getitem__(self, program: str) -> str:
        return str(self.path / program)


@dataclass(frozen=True, eq=False)
class Part:
    """What comes from one Go module: it has a folder of its own, and may be out of reach alone.

    ``programs``: name -> package.
    """

    name: str
    module: str
    programs: Mapping[str, str]


KUBERNETES = Part(
    "kubernetes",
    "k8s.io/kubernetes",
    {
        **{program: f"k8s.io/kubernetes/cmd/{program}" for program in PROGRAMS},
        "etcd": "go.etcd.io/etcd/server/v3",
    },
)
ADDONS = Part(
    "csi-addons",
    "github.com/csi-addons/kubernetes-csi-addons",
    {
        "manager": "github.com/csi-addons/kubernetes-csi-addons/cmd/manager",
        "sidecar": "github.com/csi-addons/kubernetes-csi-addons/sidecar",
        "driver": "./driver",
    },
)
CRICTL = Part("crictl", "sigs.k8s.io/cri-tools", {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"})
PARTS = (KUBERNETES, ADDONS, CRICTL)


def locate(version: str) -> Binaries:
    """Where the programs of this version of Kubernetes are, or will be."""
    if version == OLD:
        return Binaries(OLD, cache_dir() / "kubernetes" / f"{OLD}-{_key(OLD)}")
    if version != CURRENT:
        raise LabError(f"unknown version {version!r}: the lab knows {', '.join(VERSIONS)}")
    return _located(KUBERNETES)


def binaries(version: str) -> Binaries:
    """The programs of this version, built first when the cache has none made by this very recipe."""
    found = locate(version)
    if version == CURRENT:
        return current(KUBERNETES)
    if not found.path.exists():
        with _building(OLD) as work:
            if not found.path.exists():
                with step(f"kubernetes {OLD}: building all of it"):
                    _build_old(work, OLD)
                (work / "bin").rename(found.path)
    return found


def current(part: Part) -> Binaries:
    """A part, built first when the cache has none made by this very recipe.

    All other parts that the cache lacks are built with it, since most packages are the same.
    Raises Unavailable when this part's modules are out of reach.
    """
    found = _located(part)
    if found.path.exists():
        return found
    refused: dict[Part, Unavailable] = {}
    with _building(CURRENT) as work:
        missing = [other for other in PARTS if not _located(other).path.exists()]
        if part in missing:
            with step(f"{', '.join(other.name for other in missing)}: building all of it"):
                refused = _build_current(work, missing)
    if part in refused:
        raise refused[part]
    return found


def _located(part: Part) -> Binaries:
    version = _required(part.module)
    return Binaries(version, cache_dir() / "kubernetes" / f"{part.name}-{version}-{_key(CURRENT)}")


@functools.cache
def _key(version: str) -> str:
    """Of the recipe: all files that the programs are made by."""
    made_by = [Path(__file__)]
    if version == CURRENT:
        made_by += sorted([*MODULES.glob("go.*"), *DRIVER.glob("*.go")])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in made_by)).hexdigest()[:12]


@contextlib.contextmanager
def _building(version: str) -> Iterator[Path]:
    """A working folder, under the lock; after success it is gone.

    What an earlier build left that was ended half-way is deleted, but for what this one can use.
    """
    folder = cache_dir() / "kubernetes"
    # One lock for all: two compilers on two processors only take each other's memory.
    with locked(folder / "build.lock", BUILD_DEADLINE):
        work = folder / f".{version}-{_key(version)}"
        # Who holds the lock is the only one at work: the programs of a build end with it.
        for left in (*folder.glob(".*"), *work.glob("*")):
            if not left.is_dir():
                left.unlink()
            elif left != work and left.name not in KEPT:
                shutil.rmtree(left, ignore_errors=True)
        work.mkdir(exist_ok=True)
        (work / "bin").mkdir()
        yield work
        shutil.rmtree(work, ignore_errors=True)


def _build_old(work: Path, version: str) -> None:
    """With the Go of its time. Whatever is changed here makes it compile or start; the controllers stay as they were."""
    packages = ("golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev", "etcd-server")
    root = debian(work, packages, source="kubernetes")
    shutil.copy(root / "usr/bin/etcd", work / "bin")
    tree = work / "gopath/src/k8s.io/kubernetes"
    tree.mkdir(parents=True)
    (archive,) = (work / "debs").glob("kubernetes_*.orig.tar.*")
    run(["tar", "-xf", str(archive), "--strip-components=1", "-C", str(tree)], 120, tied=True)
    # reflect2 1.0.1 crashes with Go >= 1.18 as soon as there is a custom resource.
    reflect2 = tree / "vendor/github.com/modern-go/reflect2"
    shutil.rmtree(reflect2)
    shutil.copytree(root / "usr/share/gocode/src/github.com/modern-go/reflect2", reflect2)
    hollow = tree / "pkg/kubemark/hollow_kubelet.go"
    hollow.write_text(_with_attach_controller(hollow.read_text()))

    goroot = root / "usr/lib/go-1.19"
    env = _go_environment(work, GOROOT=str(goroot), GOPATH=str(work / "gopath"), GO111MODULE="off", GOFLAGS="")
    go = str(goroot / "bin/go")
    with step(f"kubernetes {version}: generating openapi"):
        generator = work / "openapi-gen"
        package = "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"
        command = [go, "build", COMPILE, "-o", str(generator), package]
        run(command, BUILD_DEADLINE, cwd=tree, env=env, tied=True)
        command = [str(generator), "--logtostderr", "-i", ",".join(_openapi_inputs(tree)), "-p", "k8s.io/kubernetes/pkg/generated/openapi"]
        command += ["-O", "zz_generated.openapi", "-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"]
        command += ["-r", str(work / "violations")]
        path = f"{goroot / 'bin'}:{env['PATH']}"
        run(command, 300, cwd=tree, env={**env, "PATH": path}, tied=True)
    flags = ["-tags", "providerless dockerless", "-ldflags", _linker_flags(version, "", "k8s.io/kubernetes/vendor/")]
    wanted = [f"./cmd/{program}" for program in (*PROGRAMS, "kubemark", "kubelet")]
    _compile(work, f"kubernetes {version}", [go, "build", *flags], wanted, tree, env)


def _build_current(work: Path, wanted: Sequence[Part]) -> dict[Part, Unavailable]:
    """Build these parts by one ``go build``, and put each where it belongs.

    Returns those that are out of reach, and why.
    """
    for path in MODULES.glob("go.*"):
        shutil.copy(path, work)
    shutil.copytree(DRIVER, work / "driver")
    env = _go_environment(
        work, GOMODCACHE=str(work / "modules"), GOFLAGS=f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(), GO111MODULE="on"
    )
    go = _new_go(work, env)
    refused: dict[Part, Unavailable] = {}
    for part in wanted:
        with step(f"{part.name}: fetching modules"):
            try:
                _fetch([go, "list", "-mod=readonly", "-deps", *part.programs.values()], work, env)
            except Unavailable as exc:
                say(f"{part.name} is out of reach: {exc}")
                refused[part] = exc
    parts = [part for part in wanted if part not in refused]
    if ADDONS in parts:
        _change_sidecar(work, go, env)
    flags = ["-mod=readonly", "-ldflags", _linker_flags(_required(KUBERNETES.module), "")]
    packages = [package for part in parts for package in part.programs.values()]
    if packages:
        label = ", ".join(part.name for part in parts)
        offline = {**env, "GOPROXY": "off"}
        _compile(work, label, [go, "build", *flags], packages, work, offline)
    for part in parts:
        made = work / "made" / part.name
        made.mkdir(parents=True)
        for program, package in part.programs.items():
            # A main package is named after its folder, and a folder called v3 after the one above.
            (work / "bin" / Path(re.sub(r"/v\d+$", "", package)).name).rename(made / program)
        if part is ADDONS:
            shutil.copytree(work / "csi-addons/config/crd/bases", made / "crd")
        made.rename(_located(part).path)
    return refused


def _change_sidecar(work: Path, go: str, env: Mapping[str, str]) -> None:
    # Go compiles a changed module only from outside its cache.
    source = work / "csi-addons"
    (work / "modules" / f"{ADDONS.module}@v{_required(ADDONS.module)}").rename(source)
    replace = f"-replace={ADDONS.module}=./csi-addons"
    run([go, "mod", "edit", replace], 60, cwd=work, env=env, tied=True)
    main = source / "sidecar/main.go"
    text = main.read_text()
    for old, new in SIDECAR_CHANGES:
        if old not in text:
            raise LabError(f"the sidecar's source has changed: it no longer has {old.strip()}")
        text = text.replace(old, new)
    main.write_text(text)


def _compile(
    work: Path,
    label: str,
    command: Sequence[str],
    wanted: Sequence[str],
    tree: Path,
    env: Mapping[str, str],
) -> None:
    with step(f"{label}: compiling (some minutes)"):
        argv = [*command, COMPILE, "-v", "-o", f"{work / 'bin'}/", *wanted]
        run(argv, BUILD_DEADLINE, label=label, cwd=tree, env=env, tied=True)


def _go_environment(work: Path, **settings: str) -> dict[str, str]:
    for name in ("gocache", "gotmp"):
        (work / name).mkdir(exist_ok=True)
    inherited = {name: value for name, value in os.environ.items() if name not in ("GOROOT", "GOBIN", "GOOS", "GOARCH")}
    folders = {"GOCACHE": str(work / "gocache"), "GOTMPDIR": str(work / "gotmp"), "GOPATH": str(work / "gopath")}
    # The compiler collects garbage less often: a twelfth of its work, for a quarter more memory.
    return {
        **inherited,
        **folders,
        **{"CGO_ENABLED": "0", "GOWORK": "off", "GOGC": "400"},
        **settings,
    }


def _linker_flags(version: str, *prefixes: str) -> str:
    major, minor, _patch = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    packages = [prefix + name for prefix in prefixes for name in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")]
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())])


def _with_attach_controller(source: str) -> str:
    """kubemark's kubelet attaches by itself; a real one waits for the controller, and that waiting is what tests look at."""
    changed = source.replace("c.EnableControllerAttachDetach = false", "c.EnableControllerAttachDetach = true")
    if changed == source:
        raise LabError("kubemark's source has changed: it no longer says EnableControllerAttachDetach = false")
    return changed


def _openapi_inputs(tree: Path) -> list[str]:
    """The packages that Kubernetes' own Makefile would generate openapi for."""
    skipped = ("vendor/k8s.io/code-generator/", "vendor/k8s.io/sample-apiserver/", "vendor/k8s.io/kube-openapi/", "vendor/k8s.io/gengo/")
    found = set()
    for top in (*(tree / "vendor/k8s.io").iterdir(), tree / "pkg", tree / "cmd", tree / "plugin"):
        # vendor/k8s.io holds links to staging, which rglob would not follow from above.
        for path in top.rglob("*.go"):
            name = str(path.relative_to(tree))
            if "/_examples/" in name or "zz_generated" in name or name.endswith("_test.go") or name.startswith(skipped):
                continue
            if b"+k8s:openapi-gen=" in path.read_bytes():
                found.add(f"k8s.io/kubernetes/{path.parent.relative_to(tree)}")
    return sorted(found)


def _new_go(work: Path, env: dict[str, str]) -> str:
    """A Go that is new enough: the one on PATH (which fetches a newer one itself if it knows how), else Go's own toolchain module."""
    needed = _required("go")
    on_path = shutil.which("go")
    if on_path:
        answer = subprocess.run(
            [on_path, "version"], cwd=work, env=env, capture_output=True, text=True, timeout=FETCH_DEADLINE, check=False
        )
        found = re.search(r"go(\d+)\.(\d+)", answer.stdout)
        if answer.returncode == 0 and found and tuple(map(int, found.groups())) >= tuple(map(int, needed.split(".")[:2])):
            return on_path
    with step(f"fetching Go {needed} with Debian's Go"):
        root = debian(work, ("golang-1.19-go", "golang-1.19-src"))
        old = root / "usr/lib/go-1.19"
        module = f"golang.org/toolchain@v0.0.1-go{needed}.linux-amd64"
        # That Go does not understand our go.mod, and would find it from any folder below.
        (work / "toolchain").mkdir()
        (work / "toolchain/go.mod").write_text("module toolchain\n")
        flags = {**env, "GOROOT": str(old), "GOFLAGS": "-modcacherw"}
        _fetch([str(old / "bin/go"), "mod", "download", module], work / "toolchain", flags)
    goroot = work / "modules" / module
    # A module's files are not executable.
    for pattern in ("bin/*", "pkg/tool/**/*"):
        for path in goroot.glob(pattern):
            path.chmod(0o755)
    env["GOROOT"], env["GOTOOLCHAIN"] = str(goroot), "local"
    return str(goroot / "bin/go")


def _fetch(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
    try:
        run(command, FETCH_DEADLINE, label="go", cwd=folder, env=env, tied=True)
    except LabError as exc:
        raise (Unavailable if NOT_SERVED.search(str(exc)) else LabError)(str(exc)) from exc


@functools.cache
def _required(name: str) -> str:
    """The version of a module, or of Go, in our go.mod."""
    found = re.search(rf"^\s*{re.escape(name)} v?([0-9.]+)$", (MODULES / "go.mod").read_text(), re.MULTILINE)
    if not found:
        raise LabError(f"{MODULES / 'go.mod'} does not name {name}")
    return found.group(1)


def debian(work: Path, packages: Sequence[str], source: str = "") -> Path:
    """Fetch packages (and a source package) of Debian 12 with lists of our own, and unpack the packages: the folder that is their root."""
    machine = os.uname().machine
    if machine != "x86_64":
        raise Unavailable(f"the lab builds Kubernetes on x86_64 only, not on {machine}")
    if not KEYRING.exists():
        raise Unavailable(f"{KEYRING} is missing: see tests/lab/apt-packages.txt")
    debs, root = work / "debs", work / "root"
    for folder in (debs, work / "apt/lists/partial", work / "apt/cache/archives/partial"):
        folder.mkdir(parents=True)
    lines = [line.removeprefix("deb ") for line in debian_mirrors("bookworm") or [_default_mirror(work)]]
    sources = work / "apt/sources.list"
    sources.write_text("".join(f"{kind} [signed-by={KEYRING}] {line}\n" for line in lines for kind in ("deb", "deb-src")))
    (work / "apt/status").touch()
    settings = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "apt/lists",
        "Dir::State::Status": work / "apt/status",
        "Dir::Cache": work / "apt/cache",
        # Not even by a hook of this machine's apt is anything outside the folder touched.
        "APT::Update::Post-Invoke": "",
        "APT::Sandbox::User": "",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Acquire::Check-Valid-Until": "false",
    }
    apt = ["apt-get", "-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    try:
        with step(f"fetching {', '.join([*packages, *([source] if source else [])])} from Debian"):
            run([*apt, "update"], FETCH_DEADLINE, tied=True)
            wanted = [["download", *packages]]
            wanted += [["source", "--download-only", source]] if source else []
            for words in wanted:
                run([*apt, *words], FETCH_DEADLINE, label="apt", cwd=debs, tied=True)
    except LabError as exc:
        raise Unavailable(
            f"{exc}\nset LAB_DEBIAN_MIRROR to the URI of a Debian mirror that has bookworm (what stands in front of /dists)"
        ) from exc
    for deb in debs.glob("*.deb"):
        run(["dpkg-deb", "-x", str(deb), str(root)], 120, tied=True)
    return root


def _default_mirror(work: Path) -> str:
    """On a machine whose own apt sources are not Debian's: the mirror that mmdebstrap takes by itself."""
    found = work / "mirror"
    # The hook runs when the sources are written and nothing has been fetched; its failure ends mmdebstrap there.
    hook = f"cat $1/etc/apt/sources.list $1/etc/apt/sources.list.d/*.list > {found} 2>/dev/null; false"
    command = ["mmdebstrap", "--variant=custom", "--mode=root", f"--setup-hook={hook}", "bookworm", str(work / "nothing")]
    try:
        subprocess.run(command, capture_output=True, timeout=120, check=False)
    except FileNotFoundError:
        raise Unavailable("mmdebstrap is not installed: see tests/lab/apt-packages.txt") from None
    for line in found.read_text().splitlines() if found.exists() else []:
        if line.startswith("deb ") and " bookworm main" in line:
            return re.sub(r"\[[^]]*\] ", "", line)
    raise Unavailable("no Debian mirror is known here: set LAB_DEBIAN_MIRROR to the URI of one (what stands in front of /dists)")
