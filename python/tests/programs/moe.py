"""A mixture of experts: tokens sorted by expert, each block of them times its expert's weights, summed up by the router's weights."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]


@ct.kernel
def expert_product(tokens, weights, out, order, expert_of_block, scale, TOP_K: ConstInt, TM: ConstInt, TN: ConstInt, TK: ConstInt):
    block, j = ct.bid(0), ct.bid(1)
    places = ct.gather(order, block * TM + ct.arange(TM, dtype=ct.int32))
    expert = ct.load(expert_of_block, (block,), (1,)).item()
    acc = ct.zeros((TM, TN), dtype=ct.float32)
    for k in range(ct.cdiv(tokens.shape[1], TK)):
        columns = k * TK + ct.arange(TK, dtype=ct.int32)
        # Padding stands at places behind the last token, and reads zeros.
        a = ct.gather(tokens, (places[:, None] // TOP_K, columns[None, :]))
        b = ct.load(weights, (expert, k, j), (1, TK, TN), padding_mode=ct.PaddingMode.ZERO).reshape((TK, TN))
        acc = ct.mma(a, b, acc)
    acc = acc * ct.gather(scale, places)[:, None]
    ct.scatter(out, (places[:, None], (j * TN + ct.arange(TN, dtype=ct.int32))[None, :]), acc.astype(out.dtype))


def align(experts, number, block):
    """Places of tokens, those of one expert next to each other and padded to whole blocks; the expert of each block."""
    order, owners = [], []
    for expert in range(number):
        places = (experts.flatten() == expert).nonzero().flatten().tolist()
        places += [experts.numel()] * (-len(places) % block)
        order += places
        owners += [expert] * (len(places) // block)
    return (torch.tensor(values, dtype=torch.int32, device="cuda") for values in (order, owners))


def main():
    n, d, h, number, top = 40, 48, 64, 4, 2
    tokens = torch.randn(n, d, device="cuda", dtype=torch.float16)
    weights = torch.randn(number, d, h, device="cuda", dtype=torch.float16)
    scores, experts = torch.randn(n, number, device="cuda").softmax(-1).topk(top)
    order, owners = align(experts, number, 16)
    out = torch.zeros(n * top, h, device="cuda")
    grid = (owners.numel(), ct.cdiv(h, 32))
    ct.launch(torch.cuda.current_stream(), grid, expert_product, (tokens, weights, out, order, owners, scores.flatten(), top, 16, 32, 16))
    want = torch.einsum("nd,ntdh,nt->nh", tokens.double(), weights.double()[experts], scores.double())
    torch.testing.assert_close(out.reshape(n, top, h).sum(1).double(), want, atol=1e-3, rtol=1e-3)


if __name__ == "__main__":
    main()
