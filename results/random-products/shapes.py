"""Random extents of products, m n k of a line for `--sizes @FILE`: shapes.py COUNT SEED. Extents are drawn log-uniformly from 32 to 16384; a third of them are
taken as they are, a third is rounded to multiples of 8, a third to multiples of 64, and a product has 2^38 operations at most."""
import math, random, sys

count, seed = map(int, sys.argv[1:])
draw = random.Random(seed)
while count:
    step = draw.choice([1, 8, 64])
    extents = [max(step, round(math.exp(draw.uniform(math.log(32), math.log(16384))) / step) * step) for _ in range(3)]
    if 2 * math.prod(extents) <= 2**38:
        print(f"batch=1,m={extents[0]},n={extents[1]},k={extents[2]},variant=nn")
        count -= 1
