"""Trilinear interpolation. Kernels: csrc/cpu/trilinear_interpolate.cpp, csrc/cuda/trilinear_interpolate."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._vmap import fold

_C = load_extension()


def trilinear_interpolate(feats: Tensor, points: Tensor) -> Tensor:
    r"""Interpolate, for each point, the features at the eight corners of its cell.

    .. math::
        \text{out}_{n,f} = \sum_{x,y,z \in \{0,1\}} X_x\, Y_y\, Z_z\; \text{feats}_{n,\,4x+2y+z,\,f}

    The cell is [-1, 1]^3. With u = (p + 1) / 2 for the first coordinate p of a point, X_0 = 1 - u and
    X_1 = u; Y and Z likewise for the second and third coordinates. Points outside the cell are extrapolated.

    `feats` and `points` receive gradients of any order. Results are bitwise reproducible. On a GPU the call
    does not synchronize with the host and can be captured in a CUDA graph.

    Args:
        feats (Tensor[N, 8, F]): features of the corners; float64, float32, float16 or bfloat16 (half
            precision computes in float32), any strides. Fastest if the last dimension is contiguous and rows
            are aligned to 16 bytes.
        points (Tensor[N, 3]): coordinates in the cell, in the dtype of `feats`; with half precision features
            float32 is allowed too, and more accurate.

    Returns:
        Tensor[N, F]: in the dtype of `feats`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device.
    """
    needs_gradient = torch.is_grad_enabled() and (feats.requires_grad or points.requires_grad)
    if needs_gradient and points.dtype == feats.dtype and feats.dtype in (torch.float16, torch.bfloat16):
        points = points.float()  # the backward op takes float32 points
    return _forward(feats, points).to(feats.dtype)  # under autocast the op computes in float32


class TrilinearInterpolate(nn.Module):
    """See :func:`trilinear_interpolate`."""

    def forward(self, feats: Tensor, points: Tensor) -> Tensor:
        return trilinear_interpolate(feats, points)


def _setup_context(ctx, inputs: tuple, output: Tensor) -> None:
    feats, points = inputs
    # Only the gradient of points needs feats.
    ctx.save_for_backward(points, feats if ctx.needs_input_grad[1] else None)


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    needs_feats, needs_points = ctx.needs_input_grad
    gradients = _gradients(grad, *ctx.saved_tensors, needs_feats)
    return (gradients[0] if needs_feats else None), (gradients[1] if needs_points else None)


def _setup_backward_context(ctx, inputs: tuple, output: tuple) -> None:
    *tensors, ctx.needs_feats = inputs
    ctx.save_for_backward(*tensors)


def _double_backward(ctx, upstream_feats: Tensor, upstream_points: Tensor) -> tuple:
    with torch.autocast(upstream_points.device.type, enabled=False):  # it would round the products
        return _second_gradients(ctx, upstream_feats, upstream_points)


def _second_gradients(ctx, upstream_feats: Tensor, upstream_points: Tensor) -> tuple:
    """The gradients of the backward op.

    With W(c) the weight of corner c and W_k its derivative along axis k, the outputs of the backward op are
    grad_feats[n, c, f] = W(c) grad[n, f] and grad_points[n, k] = sum over c of W_k(c) along[n, c],
    where along[n, c] = sum over f of grad[n, f] feats[n, c, f].
    """
    saved_grad, points, saved_feats = ctx.saved_tensors
    grad = saved_grad.to(points.dtype)
    grad_grad, grad_points, grad_feats = torch.zeros_like(grad), torch.zeros_like(points), None
    if ctx.needs_feats:
        upstream = upstream_feats.to(points.dtype)
        along = torch.einsum("nf,ncf->nc", grad, upstream)
        grad_grad = grad_grad + torch.einsum("nc,ncf->nf", _weights(points), upstream)
        grad_points = grad_points + torch.stack([(_weights(points, k) * along).sum(1) for k in range(3)], 1)
    if saved_feats is not None:
        feats = saved_feats.to(points.dtype)
        along = torch.einsum("nf,ncf->nc", grad, feats)
        slopes = [_weights(points, k) for k in range(3)]
        slope = torch.einsum("nk,knc->nc", upstream_points, torch.stack(slopes))
        grad_grad = grad_grad + torch.einsum("nc,ncf->nf", slope, feats)
        grad_feats = (slope[:, :, None] * grad[:, None]).to(saved_feats.dtype)
        # W is linear in each coordinate, so only its mixed second derivatives are nonzero.
        xy, xz, yz = ((_weights(points, *axes) * along).sum(1) for axes in ((0, 1), (0, 2), (1, 2)))
        x, y, z = upstream_points.unbind(1)
        grad_points = grad_points + torch.stack([y * xy + z * xz, x * xy + z * yz, x * xz + y * yz], 1)
    return grad_grad.to(saved_grad.dtype), grad_points, grad_feats, None


def _derivative(call, arguments: tuple, tangents: tuple) -> Tensor:
    """In forward mode: the op is linear in the features, and in each coordinate of the points."""
    (feats, points), (feats_tangent, points_tangent) = arguments, tangents
    wide = torch.promote_types(points.dtype, torch.float32)
    slopes = torch.stack([_weights(points.to(wide), k) for k in range(3)])
    slope = torch.einsum("nk,knc->nc", points_tangent.to(wide), slopes)
    moved = torch.einsum("nc,ncf->nf", slope, feats.to(wide))
    return call(feats_tangent, points) + moved.to(feats.dtype)


def _gradients_derivative(call, arguments: tuple, tangents: tuple) -> tuple[Tensor, Tensor]:
    """Of the backward op, which is linear in the gradient, in the features, and in each coordinate."""
    (grad, points, feats, needs_feats), (grad_tangent, points_tangent, feats_tangent, _) = arguments, tangents
    of_feats, of_points = call(grad_tangent, points, feats, needs_feats)
    wide = points.dtype
    if needs_feats:
        slopes = torch.stack([_weights(points, k) for k in range(3)])
        slope = torch.einsum("nk,knc->nc", points_tangent, slopes)
        of_feats = of_feats + (slope[:, :, None] * grad.to(wide)[:, None]).to(of_feats.dtype)
    if feats is not None:
        along = torch.einsum("nf,ncf->nc", grad.to(wide), feats.to(wide))
        xy, xz, yz = ((_weights(points, *axes) * along).sum(1) for axes in ((0, 1), (0, 2), (1, 2)))
        x, y, z = points_tangent.unbind(1)
        of_points = of_points + torch.stack([y * xy + z * xz, x * xy + z * yz, x * xz + y * yz], 1)
        of_points = of_points + call(grad, points, feats_tangent, False)[1]
    return of_feats, of_points


def _weights(points: Tensor, *axes: int) -> Tensor:
    """The weights of the corners (N, 8), differentiated once along each axis in `axes`."""
    upper = (points + 1) / 2
    factors = torch.stack([1 - upper, upper], dim=-1)  # (N, 3, 2)
    slopes = torch.stack([torch.full_like(upper, -0.5), torch.full_like(upper, 0.5)], dim=-1)
    x, y, z = ((slopes if axis in axes else factors)[:, axis] for axis in range(3))
    return (x[:, :, None, None] * y[:, None, :, None] * z[:, None, None, :]).flatten(1)


@register_fake("trilinear_interpolate_forward")
def _fake_forward(feats, points):
    return feats.new_empty(feats.shape[0], feats.shape[2])


@register_fake("trilinear_interpolate_backward")
def _fake_backward(grad, points, feats, needs_feats):
    feats_shape = (grad.shape[0], 8, grad.shape[1]) if needs_feats else (0,)
    return grad.new_empty(feats_shape), points.new_empty((0,) if feats is None else points.shape)


_forward = differentiable(
    _C.trilinear_interpolate_forward,
    _backward,
    _setup_context,
    fold,
    autocast=torch.float32,
    jvp=_derivative,
)
_gradients = differentiable(
    _C.trilinear_interpolate_backward,
    _double_backward,
    _setup_backward_context,
    fold,
    jvp=_gradients_derivative,
)
