"""profiles: open tiers tiers+all power-interpreter
Classes with everything that classes have."""
from __future__ import annotations
import abc
import dataclasses
import functools
from typing import Generic, TypeVar

T = TypeVar("T")

class Shape(abc.ABC):
    count = 0

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        type(self).count += 1
        self.__class__.__doc__ = "shapes"

    @property
    def title(self) -> str:
        return self.__class__.__name__ + str(self.__dict__)

    @abc.abstractmethod
    def area(self) -> float: ...

    def __getattribute__(self, name):
        return super().__getattribute__(name)

    def __reduce__(self):
        return (type(self), (self.name,))

@dataclasses.dataclass(order=True)
class Square(Shape):
    side: float = 1.0

    @functools.lru_cache
    def area(self) -> float:
        return self.side ** 2

    def __eq__(self, other):
        return isinstance(other, Square) and vars(self) == vars(other)

class Box(Generic[T], metaclass=abc.ABCMeta):
    items: list[T] = []

print(getattr(Square(2), "side"), hasattr(Square, "area"), dir(Square))
