"""PyTorch's elementwise operators, fused ones, casts, dropout and rotary embedding, on the harness's tensors."""
import torch
import torch.nn.functional as F


def numbers(request):
    words = (word.split("=") for word in request["variant"].split(" ") if "=" in word)
    return {name: float(value) for name, value in words}


def into(work, target):
    """Work whose result the harness copies, outside of what is timed."""
    work.into = target
    return work


def unary(function):
    def operator(request, t):
        x = t["x"]
        return into(lambda: function(x), t["y"])
    return operator


def gradient(name):
    """One of PyTorch's own kernels for a gradient."""
    function = getattr(torch.ops.aten, name)

    def operator(request, t):
        x, dy, dx = t.get("x", t.get("y")), t["dy"], t["dx"]
        arguments = {"threshold_backward": (0,), "leaky_relu_backward": (numbers(request).get("slope", 0.01), False)}.get(name, ())
        if name == "gelu_backward":
            approximate = "tanh" if request["operator"] == "gelu_tanh_backward" else "none"
            return into(lambda: function(dy, x, approximate=approximate), dx)
        return into(lambda: function(dy, x, *arguments), dx)
    return operator


def gate(function):
    def operator(request, t):
        a, b = t["gate"], t["up"]
        return into(lambda: function(a) * b, t["y"])
    return operator


def gate_gradient(function):
    """By autograd, so that the forward pass is timed with it."""
    def operator(request, t):
        a, b = (t[name].detach().requires_grad_() for name in ("gate", "up"))
        dy = t["dy"]
        return into(lambda: torch.autograd.grad(function(a) * b, (a, b), dy), [t["dgate"], t["dup"]])
    return operator


def biased(function):
    def operator(request, t):
        x, bias = t["x"], t["bias"]
        return into(lambda: function(x + bias), t["y"])
    return operator


def biased_gradient(function):
    """By autograd, so that the forward pass is timed with it."""
    def operator(request, t):
        x, bias = (t[name].detach().requires_grad_() for name in ("x", "bias"))
        dy = t["dy"]
        return into(lambda: torch.autograd.grad(function(x + bias), (x, bias), dy), [t["dx"], t["dbias"]])
    return operator


def add_rms_norm(request, t):
    x, residual, weight = t["x"], t["residual"], t["weight"]

    def work():
        total = x + residual
        return total, F.rms_norm(total, (total.shape[-1],), weight, 1e-5)
    return into(work, [t["sum"], t["y"]])


def add_layer_norm(request, t):
    x, residual, weight, bias = t["x"], t["residual"], t["weight"], t["bias"]

    def work():
        total = x + residual
        return total, F.layer_norm(total, (total.shape[-1],), weight, bias, 1e-5)
    return into(work, [t["sum"], t["y"]])


def add_norm_backward(results, norm):
    """By autograd, from a forward pass that is not timed: of the norm, whose gradient the sum's own cotangent is added to."""
    def operator(request, t):
        total, weight = t["sum"].detach().requires_grad_(), t["weight"].detach().requires_grad_()
        parameters = [weight] if norm is F.rms_norm else [weight, torch.zeros_like(weight).requires_grad_()]
        y = norm(total, (total.shape[-1],), *parameters, eps=1e-5)
        dsum, dy = t["dsum"], t["dy"]

        def work():
            of_norm, *rest = torch.autograd.grad(y, (total, *parameters), dy, retain_graph=True)
            return of_norm + dsum, *rest
        return into(work, [t[name] for name in results])
    return operator


def cast(request, t):
    x, y = t["x"], t["y"]
    return lambda: y.copy_(x)


def dequantise(request, t):
    codes, scales, y = t["codes"], t["scales"], t["y"]
    kind = request["variant"]
    if kind == "blocks":
        if codes.shape[1] % 128:
            raise NotImplementedError("columns that are no whole blocks")
        shape = (codes.shape[0], -1, 128)
        return into(lambda: (codes.view(shape).to(torch.float32) * scales.unsqueeze(-1)).view(codes.shape).to(y.dtype), y)
    factor = scales.unsqueeze(-1) if kind == "rows" else scales
    return into(lambda: (codes.to(torch.float32) * factor).to(y.dtype), y)


def other_numbers(request, t):
    raise NotImplementedError("PyTorch's generator gives other numbers")


def rope(back):
    sign = -1.0 if back else 1.0

    def operator(request, t):
        x, y = (t["dy"], t["dx"]) if back else (t["x"], t["y"])
        kind = request["variant"].split(" ")[0]
        if kind.endswith("_theta"):
            raise NotImplementedError("tables that are made in the kernel")
        start = int(numbers(request).get("start", 0))
        half = t["cos"].shape[1]
        cos, sin = (t[name][start : start + x.shape[1]].view(1, x.shape[1], 1, half) for name in ("cos", "sin"))
        return into(lambda: turned(x, cos, sin * sign, kind == "interleaved").to(y.dtype), y)
    return operator


def rope_inplace(request, t):
    """Into an array of its own, and back from there."""
    turns = rope(False)(request, {**t, "y": t["x"]})
    return lambda: t["x"].copy_(turns())


def turned(x, cos, sin, interleaved):
    half = cos.shape[-1]
    own, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        a, b = own[..., 0::2], own[..., 1::2]
        pairs = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    else:
        a, b = own[..., :half], own[..., half:]
        pairs = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((pairs, rest), -1) if rest.shape[-1] else pairs


def qk_norm_rope(request, t):
    kind = request["variant"].split(" ")[0]
    start = int(numbers(request).get("start", 0))
    tokens, half = t["q"].shape[1], t["cos"].shape[1]
    cos, sin = (t[name][start : start + tokens].view(1, tokens, 1, half) for name in ("cos", "sin"))

    def one(x, weight):
        return turned(F.rms_norm(x, (x.shape[-1],), weight, 1e-5), cos, sin, kind == "interleaved").to(x.dtype)
    return into(lambda: (one(t["q"], t["q_weight"]), one(t["k"], t["k_weight"])), [t["q_out"], t["k_out"]])


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


OPERATORS = {
    "relu": unary(F.relu),
    "sigmoid": unary(torch.sigmoid),
    "tanh": unary(torch.tanh),
    "silu": unary(F.silu),
    "gelu": unary(F.gelu),
    "gelu_tanh": unary(gelu_tanh),
    "leaky_relu": lambda request, t: into(lambda: F.leaky_relu(t["x"], numbers(request).get("slope", 0.01)), t["y"]),
    "elu": lambda request, t: into(lambda: F.elu(t["x"], numbers(request).get("alpha", 1.0)), t["y"]),
    "relu_backward": gradient("threshold_backward"),
    "leaky_relu_backward": gradient("leaky_relu_backward"),
    "sigmoid_backward": gradient("sigmoid_backward"),
    "tanh_backward": gradient("tanh_backward"),
    "silu_backward": gradient("silu_backward"),
    "gelu_backward": gradient("gelu_backward"),
    "gelu_tanh_backward": gradient("gelu_backward"),
    "swiglu": gate(F.silu),
    "geglu": gate(F.gelu),
    "geglu_tanh": gate(gelu_tanh),
    "swiglu_backward": gate_gradient(F.silu),
    "geglu_backward": gate_gradient(F.gelu),
    "geglu_tanh_backward": gate_gradient(gelu_tanh),
    "bias_relu": biased(F.relu),
    "bias_silu": biased(F.silu),
    "bias_gelu": biased(F.gelu),
    "bias_relu_backward": biased_gradient(F.relu),
    "bias_silu_backward": biased_gradient(F.silu),
    "bias_gelu_backward": biased_gradient(F.gelu),
    "add_rms_norm": add_rms_norm,
    "add_layer_norm": add_layer_norm,
    "add_rms_norm_backward": add_norm_backward(["dx", "dweight"], F.rms_norm),
    "add_layer_norm_backward": add_norm_backward(["dx", "dweight", "dbias"], F.layer_norm),
    "cast": cast,
    "dequantise": dequantise,
    "dropout": other_numbers,
    "random_uniform": other_numbers,
    "random_normal": other_numbers,
    "rope": rope(False),
    "rope_backward": rope(True),
    "rope_inplace": rope_inplace,
    "qk_norm_rope": qk_norm_rope,
}
