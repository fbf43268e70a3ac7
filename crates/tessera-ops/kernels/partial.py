"""Partial results of a row, of which each thread of a block has one: what it has of a tile is combined before anything is kept."""
import cuda.tile as ct

# Of the kernels that take a row in pieces: eight warps.
THREADS = 256


def partial_shape(SIZE, VECTOR):
    """The shape of the partial results of tiles of SIZE elements, which threads read as vectors, or one by one where VECTOR is 1."""
    return (SIZE // VECTOR if VECTOR > 1 else THREADS, 1)


def of_threads(v, VECTOR):
    """A tile of one row with what a thread has of it along the second axis: neighbours, or where they are read one by one those that lie THREADS apart."""
    if VECTOR > 1:
        return ct.reshape(v, (v.shape[1] // VECTOR, VECTOR))
    return ct.permute(ct.reshape(v, (v.shape[1] // THREADS, THREADS)), (1, 0))


def whole_pieces(part, TILES, PARTS, CHUNK, N):
    """The whole pieces that a block takes of a row: of one that has the row alone it is known that they lie in it."""
    first = 0 if PARTS == 1 else part * TILES
    return range(first, min(first + TILES, N // CHUNK))
