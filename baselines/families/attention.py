"""Attention for training, decoding, mixtures of experts and embeddings, by PyTorch and FlashAttention."""
import torch


def attention_backward(request, t):
    """The backward passes of cuDNN's attention, else of FlashAttention-2's, by ATen, from the same O and logarithms."""
    causal = request["variant"] == "causal"
    q, k, v, o, lse, cotangent = (t[name] for name in ("Q", "K", "V", "O", "lse", "dO"))
    if q.shape[1] != k.shape[1] or q.shape[2] != k.shape[2]:
        raise NotImplementedError("heads in groups, or other numbers of queries than of keys")
    length = q.shape[2]
    nothing = torch.zeros((), dtype=torch.int64, device=q.device)
    aten = torch.ops.aten

    def cudnn():
        return aten._scaled_dot_product_cudnn_attention_backward(
            cotangent, q, k, v, o, lse.unsqueeze(-1), nothing, nothing, None, None, None, length, length, 0.0, causal)

    def flash():
        return aten._scaled_dot_product_flash_attention_backward(
            cotangent, q, k, v, o, lse, None, None, length, length, 0.0, causal, nothing, nothing)
    for work in (cudnn, flash):
        try:
            work()
        except (RuntimeError, TypeError):
            continue
        work.into = [t["dQ"], t["dK"], t["dV"]]
        return work
    raise NotImplementedError("neither cuDNN nor FlashAttention takes these arrays")


def attention_lse(request, t):
    """FlashAttention's forward pass by ATen, which gives the logarithms, too."""
    causal = request["variant"] == "causal"
    q, k, v = t["Q"], t["K"], t["V"]
    if q.shape[1] != k.shape[1] or causal and q.shape[2] != k.shape[2]:
        raise NotImplementedError("heads in groups, or a causal mask that ends with the last key")

    def work():
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
    work.into = [t["O"], t["lse"]]
    return work


def numbers(request):
    words = (word.split("=") for word in request["variant"].split(" ") if "=" in word)
    return {name: float(value) for name, value in words}


def flash_window(request, t, arrays, lengths):
    """FlashAttention-2 to a window of keys, with slopes, by ATen: arrays as tokens x heads x dim, behind an axis of sequences where they are not packed."""
    given = numbers(request)
    if given.get("softcap", 0.0) > 0.0:
        raise NotImplementedError("ATen's FlashAttention has no cap of scores")
    left, right = (int(given.get(name, -1.0)) for name in ("left", "right"))
    causal = left < 0 and right == 0

    def work():
        o, lse = torch.ops.aten._flash_attention_forward(
            *arrays, *lengths, 0.0, causal, False, window_size_left=left, window_size_right=right, alibi_slopes=t.get("slopes"))[:2]
        # A row without keys has +inf there.
        return o, lse.masked_fill(lse == float("inf"), -float("inf"))
    return work


def attention_window(request, t):
    """FlashAttention-2; of biases for each pair the memory-efficient attention of ATen, which takes one for all sequences."""
    q, k, v, o, lse = (t[name] for name in ("Q", "K", "V", "O", "lse"))
    if "bias" in t:
        if numbers(request) or q.shape[1] != k.shape[1]:
            raise NotImplementedError("biases beside a window, a cap, or heads in groups")
        bias = t["bias"].expand(q.shape[0], q.shape[1], -1, -1)

        def work():
            return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True)[:2]
    else:
        arrays = [x.transpose(1, 2) for x in (q, k, v)]
        flash = flash_window(request, t, arrays, (None, None, q.shape[2], k.shape[2]))

        def work():
            result, logarithms = flash()
            return result.transpose(1, 2), logarithms
    work.into = [o, lse]
    return work


def attention_varlen(request, t):
    of_q, of_k = t["cu_seqlens_q"], t["cu_seqlens_k"]
    longest = [int((bounds[1:] - bounds[:-1]).max()) for bounds in (of_q, of_k)]
    work = flash_window(request, t, [t["Q"], t["K"], t["V"]], (of_q, of_k, *longest))
    work.into = [t["O"], t["lse"]]
    return work


def embedding(request, t):
    table, ids, y = t["table"], t["ids"], t["y"]
    return lambda: torch.index_select(table, 0, ids, out=y)


def embedding_backward(request, t):
    dy, ids, dtable = t["dy"], t["ids"], t["dtable"]

    def work():
        return torch.ops.aten.embedding_dense_backward(dy, ids, dtable.shape[0], -1, False)
    work.into = dtable
    return work


def kv_append(request, t):
    slots = t["slots"].long()

    def work():
        t["k_cache"].index_copy_(0, slots, t["k"])
        t["v_cache"].index_copy_(0, slots, t["v"])
    return work


def moe_gate(request, t):
    logits, k = t["logits"], t["weights"].shape[1]
    renormalised = request["variant"] == "renormalised"

    def work():
        weights, ids = torch.topk(torch.softmax(logits.float(), -1), k)
        if renormalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, ids.int()
    work.into = [t["weights"], t["ids"]]
    return work


def moe_sort(request, t):
    ids, experts = t["ids"], t["offsets"].shape[0] - 1

    def work():
        order = torch.argsort(ids, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(order.shape[0], device=order.device)
        bounds = torch.nn.functional.pad(torch.bincount(ids, minlength=experts).cumsum(0), (1, 0))
        return bounds.int(), place.int()
    work.into = [t["offsets"], t["place"]]
    return work


def moe_permute(request, t):
    x, y, place = t["x"], t["y"], t["place"].long()
    tokens = torch.arange(x.shape[0], device=x.device).repeat_interleave(y.shape[0] // x.shape[0])
    return lambda: y.index_copy_(0, place, x[tokens])


def moe_combine(request, t):
    y, out, place = t["y"], t["out"], t["place"].long()
    weights = t["weights"].view(out.shape[0], -1, 1)
    return lambda: out.copy_((y[place].view(out.shape[0], -1, out.shape[1]) * weights).sum(1))


OPERATORS = {
    "attention_backward": attention_backward, "attention_lse": attention_lse, "attention_varlen": attention_varlen,
    "attention_window": attention_window, "embedding": embedding, "embedding_backward": embedding_backward,
    "kv_append": kv_append, "moe_gate": moe_gate, "moe_sort": moe_sort, "moe_permute": moe_permute, "moe_combine": moe_combine,
}
