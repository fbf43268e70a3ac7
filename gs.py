
@tessera.kernel(sharing=0)
def body0(A, B, SA, SB, C, K: int, TM: ct.Constant[int], TN: ct.Constant[int]):
    body(A, B, SA, SB, C, K, TM, TN)


@tessera.kernel(sharing=0)
def ahead0(A, B, SA, SB, C, K: int, TM: ct.Constant[int], TN: ct.Constant[int]):
    ahead(A, B, SA, SB, C, K, TM, TN)


@tessera.kernel(sharing=0)
def plain0(A, B, SA, SB, C, K: int, TM: ct.Constant[int], TN: ct.Constant[int]):
    plain(A, B, SA, SB, C, K, TM, TN)


@tessera.kernel(sharing=1)
def body1(A, B, SA, SB, C, K: int, TM: ct.Constant[int], TN: ct.Constant[int]):
    body(A, B, SA, SB, C, K, TM, TN)


@tessera.kernel(sharing=1)
def ahead1(A, B, SA, SB, C, K: int, TM: ct.Constant[int], TN: ct.Constant[int]):
    ahead(A, B, SA, SB, C, K, TM, TN)


@tessera.kernel(sharing=1)
def plain1(A, B, SA, SB, C, K: int, TM: ct.Constant[int], TN: ct.Constant[int]):
    plain(A, B, SA, SB, C, K, TM, TN)

