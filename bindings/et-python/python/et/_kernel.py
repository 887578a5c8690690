"""Kernels in C beside their signature in Python."""

from __future__ import annotations

import functools
import itertools
import typing

from . import _et, _types

_numbers = itertools.count()


class KernelFunction:
    """A kernel that is compiled and loaded when it is first used on a device.

    `add(x, y, n)` launches it on all shires of the device on which `x` is, `add[4](x, y, n)` on four
    of them, and `add.on(device)` is the loaded `Kernel`.
    """

    def __init__(self, source, function, options, libc):
        functools.update_wrapper(self, function)
        self._options, self._libc = options, libc
        self.signature = _types.of_function(function)
        # An error here is one of the line at which the function is.
        _types.parameters(self.signature)
        members = " ".join(_types.c_parameter(*one) for one in self.signature)
        struct = f"struct args {{ {members} }};"
        self.source = f"#include <et/device.h>\n{struct}\n#line 1 \"{function.__name__}.c\"\n{source}"
        # Devices keep what they have loaded by it.
        self._number = next(_numbers)

    def compile(self):
        """The compiled kernel."""
        from . import _compile

        return _compile.compile(self.source, name=self.__name__, options=self._options,
                                libc=self._libc)

    def on(self, device):
        """The kernel, loaded on a device."""
        kept = device._kept(self._number)
        if kept is not None:
            return kept
        return device.load(self.compile(), signature=self.signature, _keep=self._number)

    def _of(self, args):
        for value in args:
            if isinstance(value, _et.Buffer):
                return self.on(value.device)
        raise TypeError(f"{self.__name__}() has no buffer among its arguments: which device?")

    def launch(self, *args, **options):
        """Launches the kernel, as `Kernel.launch`, on the device of its buffers."""
        return self._of(args).launch(*args, **options)

    def __call__(self, *args):
        return self.launch(*args)

    def __getitem__(self, grid):
        return lambda *args: self._of(args)[grid](*args)


def kernel(source: str, *, options: typing.Sequence[str] = ("-O2",),
           libc: typing.Optional[str] = None):
    """Makes a kernel of C source and the signature of a function without a body.

    The source has `et/device.h` and `struct args` with the parameters of the signature.
    """
    return lambda function: KernelFunction(source, function, options, libc)
