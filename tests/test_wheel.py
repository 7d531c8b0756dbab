"""The wheel, installed elsewhere, works without the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def call(*command: str | Path, cwd: Path) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    call(sys.executable, *build, cwd=REPOSITORY)
    return next(folder.glob("*.whl"))


def site_packages(prefix: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(prefix), "platbase": str(prefix)}))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment that holds the wheel, and sees our dependencies by a .pth file.

    A .pth file in a directory that was itself added by one is not read, so the editable
    installation of the checkout stays out of sight.
    """
    folder = tmp_path_factory.mktemp("wheel")
    prefix = folder / "environment"
    venv.create(prefix, with_pip=False, symlinks=True)
    python = prefix / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(build_wheel(folder))]
    call(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *install, cwd=folder)
    (site_packages(prefix) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_installed(python: Path, program: str, folder: Path) -> list[str]:
    """Lines that `program` prints, run in `folder` with the installed package."""
    return call(python, "-I", "-W", "error", "-c", program, cwd=folder).splitlines()


def test_resources_resolve_inside_the_installed_package(installed: Path, tmp_path: Path) -> None:
    program = """
import teeny_embed
from pathlib import Path
from teeny_embed import resources
package = Path(teeny_embed.__file__).parent
for name in ("templates", "targets"):
    folder = resources.directory(name)
    print(name, folder.is_dir() and folder.is_relative_to(package), any(folder.rglob("*.*")))
print("typed", (package / "py.typed").is_file(), REPOSITORY not in package.parents)
""".replace("REPOSITORY", f"Path({str(REPOSITORY)!r})")
    assert run_installed(installed, program, tmp_path) == [
        "templates True True",
        "targets True True",
        "typed True True",
    ]


def test_wheel_holds_the_package_and_nothing_else(installed: Path) -> None:
    packages = site_packages(installed.parent.parent)
    names = {path.name for path in packages.iterdir() if not path.name.startswith(("_", "dependencies"))}
    assert names == {"teeny_embed", "teeny_embed-0.1.0.dist-info"}
