"""Convolution by PyTorch, that is by cuDNN. Channels last are PyTorch's memory format of that name."""
import torch


def arrays(request, tensors, names):
    """The request's arrays as PyTorch has images: channels first, in memory as they lie."""
    size, last = request["size"], "nhwc" in request["variant"].split(" ")
    given = {word.split("=")[0]: int(float(word.split("=")[1])) for word in request["variant"].split(" ") if "=" in word}
    stride, padding, dilation = given.get("stride", 1), given.get("padding", 0), given.get("dilation", 1)

    def behind(extent, taps):
        return (extent + 2 * padding - (taps - 1) * dilation - 1) // stride + 1

    x = (size["n"], size["c"], size["h"], size["w"])
    y = (size["n"], size["o"], behind(size["h"], size["r"]), behind(size["w"], size["s"]))
    weight = (size["o"], size["c"] // size["groups"], size["r"], size["s"])
    shapes = {"x": x, "dx": x, "y": y, "dy": y, "weight": weight, "dweight": weight}

    def image(name):
        a, b, c, d = shapes[name]
        return tensors[name].view(a, c, d, b).permute(0, 3, 1, 2) if last else tensors[name].view(a, b, c, d)

    return [image(name) for name in names], dict(stride=stride, padding=padding, dilation=dilation, groups=size["groups"])


def conv2d(request, tensors):
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    (x, weight, y), numbers = arrays(request, tensors, ["x", "weight", "y"])
    if x.dtype != y.dtype:
        raise NotImplementedError("results of another type")
    bias = tensors["bias"].view(-1) if "bias" in tensors else None

    def work():
        return torch.nn.functional.conv2d(x, weight, bias, **numbers)

    work.into = y
    return work


def conv2d_backward(request, tensors):
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    (x, weight, dy, dx, dweight), numbers = arrays(request, tensors, ["x", "weight", "dy", "dx", "dweight"])
    if x.dtype != dx.dtype:
        raise NotImplementedError("results of another type")
    biased = "dbias" in tensors
    pair = {name: [value, value] for name, value in numbers.items() if name != "groups"}

    def work():
        results = torch.ops.aten.convolution_backward(
            dy, x, weight, [weight.shape[0]] if biased else None, **pair, transposed=False, output_padding=[0, 0],
            groups=numbers["groups"], output_mask=[True, True, biased])
        return [result for result in results if result is not None]

    work.into = [dx, dweight] + ([tensors["dbias"].view(-1)] if biased else [])
    return work


OPERATORS = {"conv2d": conv2d, "conv2d_backward": conv2d_backward}
