"""Attention for training, decoding, mixtures of experts and embeddings, by PyTorch and FlashAttention."""
import torch


def attention_backward(request, t):
    """FlashAttention-3's backward pass where its wheel has one, else PyTorch's choice (cuDNN's or FlashAttention-2's)."""
    causal = request["variant"] == "causal"
    q, k, v = (t[name].detach().requires_grad_() for name in ("Q", "K", "V"))
    if causal and q.shape[2] != k.shape[2]:
        raise NotImplementedError("a causal mask that ends with the last key")
    # The gate fills O and lse at random, and a library computes them itself: only the time can be compared, and the work of the forward pass is not in it.
    attend = torch.nn.functional.scaled_dot_product_attention
    o = attend(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    cotangent = t["dO"]
    return lambda: torch.autograd.grad(o, (q, k, v), cotangent, retain_graph=True)


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


OPERATORS = {"attention_backward": attention_backward, "attention_lse": attention_lse}
