"""Types of C for arguments of kernels."""

from __future__ import annotations

import typing

T = typing.TypeVar("T", bound="Scalar")


class Scalar:
    """A number with its type in C."""

    __slots__ = ("value",)
    et_dtype = ""
    c_type = ""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"et.{type(self).__name__}({self.value!r})"


def _scalar(name, dtype, c_type):
    text = f"A number of the type {c_type} of C."
    members = {"__slots__": (), "__doc__": text, "et_dtype": dtype, "c_type": c_type}
    return type(name, (Scalar,), members | {"__module__": "et"})


i8 = _scalar("i8", "int8", "int8_t")
i16 = _scalar("i16", "int16", "int16_t")
i32 = _scalar("i32", "int32", "int32_t")
i64 = _scalar("i64", "int64", "int64_t")
u8 = _scalar("u8", "uint8", "uint8_t")
u16 = _scalar("u16", "uint16", "uint16_t")
u32 = _scalar("u32", "uint32", "uint32_t")
u64 = _scalar("u64", "uint64", "uint64_t")
f32 = _scalar("f32", "float32", "float")
f64 = _scalar("f64", "float64", "double")


class In(typing.Generic[T]):
    """A parameter: the address of memory that the kernel reads."""


class Out(typing.Generic[T]):
    """A parameter: the address of memory that the kernel writes."""


class InOut(typing.Generic[T]):
    """A parameter: the address of memory that the kernel reads and writes."""


_ACCESS = {In: "in", Out: "out", InOut: "inout"}


def parameter(annotation):
    """What an annotation means: kind, and name of the data type or None."""
    access = typing.get_origin(annotation) or annotation
    if access in _ACCESS:
        arguments = typing.get_args(annotation)
        return _ACCESS[access], arguments[0].et_dtype if arguments else None
    if isinstance(annotation, type) and issubclass(annotation, Scalar) and annotation.et_dtype:
        return "scalar", annotation.et_dtype
    raise TypeError(f"{annotation!r} is no parameter of a kernel: write et.In[et.f32], et.Out, "
                    "et.InOut, or a type such as et.u64")


def parameters(signature):
    """The parameters of a signature, each as name, kind and data type: of a function with
    annotations, of pairs of name and annotation, or of annotations.

    >>> import et
    >>> parameters([et.In[et.f32], ("n", et.u64)])
    [(None, 'in', 'float32'), ('n', 'scalar', 'uint64')]
    """
    if callable(signature) and not isinstance(signature, type):
        signature = of_function(signature)
    pairs = (one if isinstance(one, tuple) else (None, one) for one in signature)
    return [(name, *parameter(annotation)) for name, annotation in pairs]


def of_function(function):
    """Names and annotations of the parameters of a function."""
    # Takes longer than the rest of the package, and only who writes kernels needs it.
    import inspect

    hints = typing.get_type_hints(function)
    names = inspect.signature(function).parameters
    missing = [name for name in names if name not in hints]
    if missing:
        raise TypeError(f"parameter {missing[0]} of {function.__name__} has no type")
    return [(name, hints[name]) for name in names]


def c_parameter(name, annotation):
    """The declaration of a parameter as a member of a struct of C."""
    kind, dtype = parameter(annotation)
    if kind == "scalar":
        return f"{annotation.c_type} {name};"
    c_type = typing.get_args(annotation)[0].c_type if dtype else "void"
    return f"{'const ' if kind == 'in' else ''}{c_type} *{name};"
