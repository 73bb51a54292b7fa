"""How the functions that a kernel calls become a part of it.

numba optimises every function by itself, together with all that it calls, turns it into machine code, and does
the same again for each caller. But nobody calls a kernel's parts except the kernel. Here they only wait to be
linked, and the kernel is optimised once, with everything in it. This took two thirds off LLVM's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target


class Part(JITCodeLibrary):
    """The code of a function. It becomes machine code when somebody asks for its address."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _ensure_finalized(self) -> None:
        """A part can be linked as it is."""

    def add_linking_library(self, library: Any) -> None:
        """Link a library into this one, and after it all that it needs: LLVM takes only what is missing."""
        needed = [library] if library._finalized else [library, *library._linking_libraries]
        self._linking_libraries = [one for one in self._linking_libraries if one not in needed] + needed

    def get_pointer_to_function(self, name: str) -> int:
        """The address of a function, or 0 if it is not defined here."""
        if not self._finalized and any(function.name == name for function in self.get_defined_functions()):
            self.finalize()  # type: ignore[no-untyped-call]
            for variable in self._final_module.global_variables:
                self._codegen.set_env(variable.name, lookup_environment(variable.name))
        address: int = super().get_pointer_to_function(name)  # type: ignore[no-untyped-call]
        return address


@contextmanager
def as_parts() -> Iterator[None]:
    """Whatever numba compiles meanwhile is a `Part`."""
    codegen = cpu_target.target_context.codegen()  # type: ignore[no-untyped-call]
    set_env = codegen.set_env

    def set_known(name: str, env: Any) -> None:
        """Tell the code where its environment is, unless it is no machine code yet."""
        if env is not None and codegen._engine.is_symbol_defined(name):
            set_env(name, env)

    with global_compiler_lock:
        codegen._library_class, codegen.set_env = Part, set_known
        try:
            yield
        finally:
            del codegen._library_class, codegen.set_env
