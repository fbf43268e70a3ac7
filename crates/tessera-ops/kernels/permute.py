"""y = x with its axes in another order: axis i of y is axis P_i of x.

A block moves a tile of TILE_0 x TILE_1 x TILE_2 x TILE_3 elements of x, which is long along the last axis of x and along that of y, so that
both are read and written by whole lines.
"""
import cuda.tile as ct
import tessera


@tessera.kernel
def permute(x, y, P_0: ct.Constant[int], P_1: ct.Constant[int], P_2: ct.Constant[int], P_3: ct.Constant[int],
            TILE_0: ct.Constant[int], TILE_1: ct.Constant[int], TILE_2: ct.Constant[int], TILE_3: ct.Constant[int]):
    tiles_1, tiles_2, tiles_3 = ct.cdiv(x.shape[1], TILE_1), ct.cdiv(x.shape[2], TILE_2), ct.cdiv(x.shape[3], TILE_3)
    planes = ct.bid(0) // tiles_3
    volumes = planes // tiles_2
    at = (volumes // tiles_1, volumes % tiles_1, planes % tiles_2, ct.bid(0) % tiles_3)
    tile = ct.load(x, at, (TILE_0, TILE_1, TILE_2, TILE_3), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (at[P_0], at[P_1], at[P_2], at[P_3]), ct.permute(tile, (P_0, P_1, P_2, P_3)))
