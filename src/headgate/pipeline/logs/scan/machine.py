"""
Load the scan's machine code from a file, without Numba; make the file where it isn't there.

Importing Numba and loading functions from its cache takes 0.6 s of CPU in each process; linking one
object file takes a tenth of that. The file is for one processor and one state of the sources.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm  # type: ignore[import-untyped]

from headgate.embedded.cache import cache_dir

_NAME: Final = "headgate_scan"
_ROOM: Final = Path(__file__).parent
_SOURCES: Final = (
    _ROOM.parent / "charged_bytes.py",
    _ROOM.parent / "time_stamps.py",
    *sorted(_ROOM.glob("*.py")),
)
# All outside symbols that the code may use: the C library's.
_KNOWN: Final = ("memcpy", "memmove", "memset")
# Numba's runtime frees arrays that it has made with this. The scan makes none: it is never called.
_FREE: Final = "NRT_MemInfo_call_dtor"

Enter = Callable[[int], int]


@functools.cache
def load() -> Enter:
    """Return ``entry.enter`` as machine code; where none is kept it is made, in half a minute."""
    try:
        return _linked(_path().read_bytes())
    except OSError:  # not there, or there's no folder for it
        code = _made()
    if code is None:
        return _by_numba()
    _keep(code)
    return _linked(code)


def _path() -> Path:
    key = hashlib.sha256()
    for name in ("numba", "llvmlite"):
        key.update(version(name).encode())
    key.update(llvm.get_process_triple().encode())
    key.update(llvm.get_host_cpu_name().encode())
    key.update(llvm.get_host_cpu_features().flatten().encode())
    for source in _SOURCES:
        key.update(source.read_bytes())
    return cache_dir() / f"scan-{key.hexdigest()[:16]}.o"


def _keep(code: bytes) -> None:
    """Write the file whole or not at all; a folder that can't be written to is no mistake."""
    try:
        path = _path()
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)
    except OSError:
        return


def _made() -> bytes | None:
    """Compile; None where the code asks for more than can be linked without Numba."""
    from numba.core import compiler, types  # type: ignore[import-not-found,unused-ignore]
    from numba.core.registry import cpu_target

    from headgate.pipeline.logs.scan.entry import enter

    flags = compiler.Flags()
    flags.nrt = False
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.release_gil = True
    flags.error_model = "numpy"
    done = compiler.compile_extra(
        cpu_target.typing_context,
        cpu_target.target_context,
        enter.py_func,
        (types.int64,),
        types.int64,
        flags,
        {},
    )
    library = done.library
    module = llvm.parse_assembly(library.get_llvm_str())
    for declared in module.functions:
        if declared.is_declaration and declared.name == _FREE:
            head = str(declared).strip().removeprefix("declare ").split(" #")[0]
            module.link_in(llvm.parse_assembly(f"define {head} {{ ret void }}"))
            break
    asked = {f.name for f in module.functions if f.is_declaration and f.name[:5] != "llvm."}
    if not asked <= set(_KNOWN):
        return None
    module.get_function(done.fndesc.llvm_func_name).name = _NAME
    return _machine().emit_object(module)


def _machine() -> Any:
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, codemodel="jitdefault", jit=True
    )


def _linked(code: bytes) -> Enter:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(_NAME)
    # Numba's calling convention: an address for the result, one for errors, the argument.
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function = kind(address)

    def enter(arguments: int) -> int:
        result = ctypes.c_int64(0)
        error = ctypes.c_void_p(0)
        status = function(ctypes.addressof(result), ctypes.addressof(error), arguments)
        if status:
            msg = f"the scan failed with status {status}"
            raise RuntimeError(msg)
        return result.value

    enter.engine = engine  # type: ignore[attr-defined]  # it owns the code
    return enter


def _by_numba() -> Enter:
    from headgate.pipeline.logs.scan.entry import enter

    return enter
