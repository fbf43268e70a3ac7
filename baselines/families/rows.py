"""PyTorch's counterparts of operators over rows: reductions, losses, norms and their gradients.

What PyTorch rounds more often than once, or gives in another type, is put into the harness's arrays by a copy that is not timed (`into`).
"""
import torch

F = torch.nn.functional
EPS = 1e-5


def with_results(into, work):
    work.into = into
    return work


def softmax_backward(request, t):
    if request["variant"] == "causal":
        raise NotImplementedError("the causal variant")
    y, dy = t["y"], t["dy"]
    return with_results(t["dx"], lambda: torch._softmax_backward_data(dy, y, -1, y.dtype))


def log_softmax(request, t):
    x = t["x"]
    return with_results(t["y"], lambda: torch.log_softmax(x, -1))


def log_softmax_backward(request, t):
    y, dy = t["y"], t["dy"]
    return with_results(t["dx"], lambda: torch._log_softmax_backward_data(dy, y, -1, y.dtype))


def log_sum_exp(request, t):
    x = t["x"]
    return with_results(t["y"], lambda: torch.logsumexp(x, -1))


def log_sum_exp_backward(request, t):
    x, y, dy = t["x"], t["y"], t["dy"]
    return with_results(t["dx"], lambda: torch.exp(x - y[..., None]) * dy[..., None])


def ignored(request):
    words = [word for word in request["variant"].split(" ") if word.startswith("ignore_index=")]
    return int(float(words[0].split("=")[1])) if words else -100


def cross_entropy(request, t):
    """PyTorch gives no sum's logarithm beside the loss: two reductions."""
    x, labels, ignore = t["x"], t["labels"].long(), ignored(request)

    def work():
        return F.cross_entropy(x, labels, ignore_index=ignore, reduction="none"), torch.logsumexp(x, -1)
    return with_results([t["loss"], t["lse"]], work)


def linear_cross_entropy(request, t):
    """PyTorch writes all logits."""
    x, weight, labels, ignore = t["x"], t["weight"], t["labels"].long(), ignored(request)

    def work():
        logits = F.linear(x, weight).float() if x.dtype != torch.float64 else F.linear(x, weight)
        return F.cross_entropy(logits, labels, ignore_index=ignore, reduction="none"), torch.logsumexp(logits, -1)
    return with_results([t["loss"], t["lse"]], work)


def linear_cross_entropy_backward(request, t):
    """From the `lse` that is given, as the operator: logits again, their gradients, and two products."""
    x, weight, labels, ignore = t["x"].detach(), t["weight"].detach(), t["labels"].long(), ignored(request)
    lse, dloss, dlse = t["lse"], t["dloss"], t["dlse"]
    kept = labels != ignore
    rows = torch.arange(labels.numel(), device=x.device)[kept]

    def work():
        ds = torch.exp(F.linear(x, weight).to(lse.dtype) - lse[:, None])
        d = torch.where(kept, dloss, 0.0)
        ds *= (d + dlse)[:, None]
        ds[rows, labels[kept]] -= d[kept]
        ds = ds.to(x.dtype)
        return ds @ weight, ds.t() @ x
    return with_results([t["dx"], t["dweight"]], work)


def reduce_over(axis):
    names = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}

    def reduce(request, t):
        x, word = t["x"], request["variant"].split(" ")[0]
        if word in names:
            return with_results(t["y"], lambda: names[word](x, axis))
        if word == "norm":
            return with_results(t["y"], lambda: torch.linalg.vector_norm(x, dim=axis, dtype=t["y"].dtype))
        if word == "sum_squares":
            return with_results(t["y"], lambda: torch.linalg.vecdot(x, x, dim=axis))
        raise NotImplementedError(f"the variant {word}")
    return reduce


def arg_rows(request, t):
    x = t["x"]
    of = torch.argmin if request["variant"] == "min" else torch.argmax
    return with_results(t["y"], lambda: of(x, -1))


def cumsum(given, result):
    def run(request, t):
        x, back = t[given], (request["variant"] == "reverse") != (given == "dy")
        if back:
            return with_results(t[result], lambda: torch.flip(torch.cumsum(torch.flip(x, [-1]), -1), [-1]))
        return with_results(t[result], lambda: torch.cumsum(x, -1))
    return run


def top_k(request, t):
    """Which of equal elements it takes is not said, so results in few bits differ."""
    x, k = t["x"], t["values"].shape[-1]
    return with_results([t["values"], t["indices"]], lambda: torch.topk(x, k, largest=request["variant"] != "smallest"))


def sort(request, t):
    x, down = t["x"], request["variant"] == "descending"
    return with_results([t["values"], t["indices"]], lambda: torch.sort(x, dim=-1, stable=True, descending=down))


def put_back(request, t):
    indices, dvalues, dx = t["indices"].long(), t["dvalues"], t["dx"]
    return lambda: dx.zero_().scatter_(-1, indices, dvalues)


def layer_norm_backward(request, t):
    x, weight, dy = t["x"], t["weight"], t["dy"]
    shape = list(x.shape[-1:])
    _, mean, rstd = torch.native_layer_norm(x, shape, weight, torch.zeros_like(weight), EPS)

    def work():
        return torch.ops.aten.native_layer_norm_backward(dy, x, shape, mean, rstd, weight, weight, [True, True, True])
    return with_results([t["dx"], t["dweight"], t["dbias"]], work)


def rms_norm_backward(request, t):
    x, weight, dy = t["x"].detach().requires_grad_(), t["weight"].detach().requires_grad_(), t["dy"]
    y = F.rms_norm(x, x.shape[-1:], weight, EPS)
    return with_results([t["dx"], t["dweight"]], lambda: torch.autograd.grad(y, (x, weight), dy, retain_graph=True))


def images(request, array):
    """An array as PyTorch has images; kernels see other axes."""
    return array.view(*(request["size"][axis] for axis in ("batch", "channels", "pixels")))


def group_norm(request, t):
    words = [word for word in request["variant"].split(" ") if word.startswith("groups=")]
    groups = int(float(words[0].split("=")[1])) if words else 32
    x, y = images(request, t["x"]), images(request, t["y"])
    return with_results(y, lambda: F.group_norm(x, groups, t["weight"], t["bias"], EPS))


def batch_norm(request, t):
    x, y = images(request, t["x"]), images(request, t["y"])
    return with_results(
        [y, t["mean"], t["rstd"]],
        lambda: torch.native_batch_norm(x, t["weight"], t["bias"], None, None, True, 0.0, EPS),
    )


def batch_norm_inference(request, t):
    x, y, mean, variance = images(request, t["x"]), images(request, t["y"]), t["mean"], t["variance"]
    return with_results(y, lambda: F.batch_norm(x, mean, variance, t["weight"], t["bias"], False, 0.0, EPS))


OPERATORS = {
    "softmax_backward": softmax_backward, "log_softmax": log_softmax, "log_softmax_backward": log_softmax_backward,
    "log_sum_exp": log_sum_exp, "log_sum_exp_backward": log_sum_exp_backward, "cross_entropy": cross_entropy,
    "linear_cross_entropy": linear_cross_entropy, "linear_cross_entropy_backward": linear_cross_entropy_backward,
    "reduce_rows": reduce_over(-1), "reduce_columns": reduce_over(0), "arg_rows": arg_rows, "cumsum": cumsum("x", "y"),
    "cumsum_backward": cumsum("dy", "dx"), "top_k": top_k, "sort_rows": sort, "top_k_backward": put_back, "sort_rows_backward": put_back,
    "layer_norm_backward": layer_norm_backward,
    "rms_norm_backward": rms_norm_backward, "group_norm": group_norm, "batch_norm": batch_norm,
    "batch_norm_inference": batch_norm_inference,
}
