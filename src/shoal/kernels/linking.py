"""How the functions that a kernel calls become part of it.

numba optimises every function by itself, together with everything it calls, turns it into machine code, and
does so again for each caller. But only the kernel calls its own parts. Here the parts are merely kept for
linking, and the kernel is optimised once, with everything in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numba
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment as lookup
from numba.core.registry import cpu_target

KNOWN = "0.68."  # the numba versions whose internals this module relies on


class Part(JITCodeLibrary):
    """The code of a function. It becomes machine code only when its address is requested."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _ensure_finalized(self) -> None:
        """Until it is linked, a part needs nothing but the functions it calls directly."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._linking_libraries = []

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function, or 0 if it is not defined here."""
        if not self._finalized and name in {one.name for one in self.get_defined_functions()}:  # type: ignore[no-untyped-call]
            self.finalize()  # type: ignore[no-untyped-call]
            for variable in self._final_module.global_variables:
                _set_env(self._codegen, variable.name, lookup(variable.name))  # type: ignore[no-untyped-call]
        address: int = super().get_pointer_to_function(name)  # type: ignore[no-untyped-call]
        return address


def _set_env(codegen: Any, name: str, env: Any) -> None:
    """Tell a function where its environment is, if it has one and is already machine code."""
    if env is not None and codegen._engine.is_symbol_defined(name):
        type(codegen).set_env(codegen, name, env)


@contextmanager
def as_parts() -> Iterator[None]:
    """In this context everything numba compiles is a `Part`; unknown numba versions compile as usual."""
    if not numba.__version__.startswith(KNOWN):
        yield
        return
    codegen: Any = cpu_target.target_context.codegen()
    with global_compiler_lock:
        codegen._library_class, codegen.set_env = Part, partial(_set_env, codegen)
        try:
            yield
        finally:
            del codegen._library_class, codegen.set_env
