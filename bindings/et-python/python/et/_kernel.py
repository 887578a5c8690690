"""Kernels in C beside their signature in Python."""

from __future__ import annotations

import functools
import itertools
import typing

from . import _et, _types

_numbers = itertools.count()
# What launches take besides the arguments of the kernel.
_OPTIONS = {"shires", "stream", "stack", "flush_l3", "core_dump", "trace"}


class KernelFunction:
    """A kernel that is compiled and loaded when it is first used on a device.

    `add(x, y, n)` launches it on all shires of the device on which `x` is, `add[4](x, y, n)` on four
    of them, and `add.on(device)` is the loaded `Kernel`. Arguments may be given by their names, as
    `add(x, y, n=8)`.

    >>> import et
    >>> @et.kernel('''
    ... int64_t entry_point(const struct args *args, const struct kernel_environment *env)
    ... {
    ...     if (et_index(env) == 0)
    ...         *args->x += args->n;
    ...     return 0;
    ... }
    ... ''')
    ... def add(x: et.InOut[et.i64], n: et.i64):
    ...     pass
    >>> with et.open("sim:shires=1,dram=128MiB") as device:
    ...     x = device.zeros(1, "i8")
    ...     add(x, n=5).wait(timeout=60)
    ...     x.to_numpy().tolist()
    [5]
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

    def _bind(self, args, named):
        """The arguments in the order of the signature."""
        if not named:
            return args
        name, names = self.__name__, [name for name, _ in self.signature]
        unknown = next((one for one in named if one not in names), None)
        if unknown is not None:
            raise TypeError(f"{name}() has no parameter {unknown!r}: it takes {', '.join(names)}")
        if len(args) > len(names):
            raise TypeError(f"{name}() takes {len(names)} arguments, not {len(args) + len(named)}")
        twice = next((one for one in names[:len(args)] if one in named), None)
        if twice is not None:
            raise TypeError(f"{name}() was given {twice!r} twice: by its place and by its name")
        missing = [one for one in names[len(args):] if one not in named]
        if missing:
            raise TypeError(f"{name}() was not given {', '.join(map(repr, missing))}")
        return (*args, *(named[one] for one in names[len(args):]))

    def launch(self, *args, **named):
        """Launches the kernel on the device of its buffers. Names are those of parameters, and of
        the options of `Kernel.launch`; a parameter with the name of an option is given by its
        place."""
        options = {name: named.pop(name) for name in _OPTIONS & named.keys()}
        args = self._bind(args, named)
        return self._of(args).launch(*args, **options)

    def __call__(self, *args, **named):
        args = self._bind(args, named)
        return self._of(args).launch(*args)

    def __getitem__(self, grid):
        def launch(*args, **named):
            args = self._bind(args, named)
            return self._of(args)[grid](*args)

        return launch


def kernel(source: str, *, options: typing.Sequence[str] = ("-O2",),
           libc: typing.Optional[str] = None):
    """Makes a kernel of C source and the signature of a function without a body.

    The source has `et/device.h` and `struct args` with the parameters of the signature.
    """
    return lambda function: KernelFunction(source, function, options, libc)
