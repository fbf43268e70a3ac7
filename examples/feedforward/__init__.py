# Kernels of a feed-forward layer, in a package of several files. Files are found relative to each other and are never executed.
from .kernels import bias_gelu, bias_gelu_plain
