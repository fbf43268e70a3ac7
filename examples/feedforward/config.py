# What the kernels of the package share.
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import cuda.tile as ct


class Activation(Enum):
    RELU = 1
    GELU = 2
    SILU = 3


class Shape(NamedTuple):
    rows: int
    columns: int


@dataclass(frozen=True)
class Layer:
    tile: Shape
    activation: Activation = Activation.GELU
    scale: float = 1.0

    @property
    def elements(self):
        return self.tile.rows * self.tile.columns


SQRT_2_OVER_PI = 0.7978845608028654
GELU_CUBIC = 0.044715
DEFAULT = Layer(Shape(4, 256), activation=Activation.GELU)
