"""Losses of Primal-Attention: the objective of the KSVD, in two forms, and one whose minimum it is.

E, R       (..., H, N, s)       scores of the layer
Φ, Ψ, F    as in layer.py       K = Φ FᵀF Ψᵀ is the kernel of a sequence and head
W_e, W_r   (H, D, s)            primal weights
Λ          (H, s)               weights of the loss: 1/σ in K.28, √(N/σ) in K.31
J          (..., H) or (...)    objective, for each head or its mean over the heads

A mask, (N,) or (..., N), is False for padding, which may hold anything. What is refused: inputs.py.
"""
import math

from autograd.extend import defvjp, primitive

from ..backend import like, namespace
from ..inputs import arrays, integer
from .filters import shown, steps, visible
from .layer import LAYER, WEIGHTS, _feature_map, _width

SCORES = {"E": "~... H N s", "R": "~... H N s"}
KERNEL = {name: LAYER[name] for name in ("Q", "K", "F", "features")}


@arrays(scores=SCORES, weights=WEIGHTS)
def paper_loss(scores, weights, *, mask=None):
    """Objective J of each sequence and head, ½ Σᵢ eᵢᵀΛeᵢ + ½ Σⱼ rⱼᵀΛrⱼ − tr WₑᵀWᵣ (Eq. K.28).

    (..., H), of any sign; Λ is 1/σ at a solution. J of primal.objective, at the features Φ Fᵀ. The
    trace is that of the stored weights, not of Fᵀ W_e, or F of rank p would drop out of the
    stationary kernel (V29). The penalty of the paper squares the mean over the heads:
    mean_of_squares(mean(J, -1)).
    Source: Chen et al. 2023.

    >>> one = [[[1.0], [1.0]]]                      # lesson 04: K = diag(2, 1), J = 5/2 + 2/2 - 2
    >>> paper_loss(([[[2.0], [1.0]]], one), (one, one, [[1.0]], [[1.0], [1.0]], [0.0]))
    array([1.5])
    """
    (E, R, _), (W_e, W_r, Lambda, _, _) = _counted(scores, mask), weights
    xp = namespace(E, R, W_e, W_r, Lambda)
    squares = (_squares(E) + _squares(R)) * Lambda
    return 0.5 * xp.sum(squares, axis=-1) - xp.sum(W_e * W_r, axis=(1, 2))


@arrays(scores=SCORES, weights=WEIGHTS)
def published_loss(scores, weights, *, mask=None):
    """Objective of the published code, ½ mean ‖Λe‖² + ½ mean ‖Λr‖² − mean tr WₑᵀWᵣ (Eq. K.31).

    (...), one number for each sequence. Differs from the paper (K.28) in three things: the scores
    are weighted by the square of Λ (V39), √(N/σ) at a solution, of any sign; they are averaged over
    the steps while the trace is not divided by N (V35); and the heads are averaged, trace and all,
    where K.27 does it later: their signs may cancel (V7). It is the mean over the heads of
    `paper_loss` with `paper_lambda`. N counts the True of the mask; that code counts padding too.
    Source: code of Chen et al. 2023.

    >>> one = [[[1.0], [1.0]]]                      # 5/2 / 2 + 2/2 / 2 - 2
    >>> published_loss(([[[2.0], [1.0]]], one), (one, one, [[1.0]], [[1.0], [1.0]], [0.0]))
    np.float64(-0.25)
    """
    (E, R, N), (W_e, W_r, Lambda, _, _) = _counted(scores, mask), weights
    xp = namespace(E, R, W_e, W_r, Lambda)
    squares = (_squares(E) + _squares(R)) * (Lambda * Lambda) / N
    return (0.5 * xp.sum(squares, axis=(-2, -1)) - xp.sum(W_e * W_r)) / Lambda.shape[0]


def _counted(scores, mask):
    """E and R, with zeros at padded steps, and N, how many are not, (..., 1, 1)."""
    mask, (E, R) = steps(mask, scores[0], 3), scores
    xp = namespace(E, R)
    N = float(E.shape[-2]) if mask is None else xp.maximum(
        xp.sum(xp.astype(mask, E.dtype), axis=-2), 1.0)
    return shown(mask, E, "E"), shown(mask, R, "R"), N


@primitive          # or autograd would make four arrays of the size of E
def _squares(E):
    """‖e_l‖² over the steps, (..., H, s)."""
    return namespace(E).sum(E * E, axis=-2)


defvjp(_squares, lambda ans, E: lambda g: 2.0 * g[..., None, :] * E)


@arrays(scores=SCORES, **KERNEL,
        cure="the kernel of a sequence is zero, or an argument is too large or too small")
def approximation_loss(scores, Q, K, *, F=None, features="cosine", mask=None):
    """The share of each kernel that its scores miss, ‖K − ERᵀ‖²/‖K‖² = 1 + 2L/‖K‖² (Eq. K.41).

    (..., H), from 0 up; above 1 the scores are worse than none. L is primal.approximation_loss of
    E and R: 1 + (⟨EᵀE, RᵀR⟩ − 2 ⟨F ΦᵀE, F ΨᵀR⟩)/‖K‖² in O(N p (s + p)), without K. Relative, or
    long sequences would outweigh short ones. J can be zero anywhere (V5); here E and R at a minimum
    span the s leading components, up to a mixture (K.42), and primal.from_factors has the vectors.
    Q, K, F, features, mask: of the layer; causal scores belong to the kernel of the running means,
    which then are the Q and K here. 1 for a sequence of padding alone.

    >>> Q, K = [[[3.0, 0.0], [0.0, 1.0]]], [[[1.0, 0.0], [0.0, 1.0]]]      # K = I, found: a half
    >>> approximation_loss(([[[1.0], [0.0]]], [[[1.0], [0.0]]]), Q, K)
    array([0.5])
    """
    E, R, Phi, Psi, FF, some = _factors(scores, Q, K, F, features, mask)
    G_e, G_r = _T(Phi) @ Phi, _T(Psi) @ Psi
    missed = _inner(_T(E) @ E, _T(R) @ R) - 2.0 * _inner(FF @ (_T(Phi) @ E), _T(Psi) @ R)
    return 1.0 + missed / visible(some, _inner(FF @ G_e @ FF, G_r), 1.0)


def _factors(scores, Q, K, F, features, mask):
    """E, R, Φ, Ψ with zeros at padded steps, FᵀF, and which sequences have a step."""
    (E, R, _), p = _counted(scores, mask), _width(Q, F, features)
    mask = steps(mask, Q, 3)
    Phi, Psi = (visible(mask, _feature_map(shown(mask, X, name), features))
                for X, name in ((Q, "Q"), (K, "K")))
    FF = namespace(Q).eye(p, **like(Q)) if F is None else _T(F) @ F
    return E, R, Phi, Psi, FF, None if mask is None else namespace(mask).any(mask, axis=(-2, -1))


def _inner(A, B):
    return namespace(A, B).sum(A * B, axis=(-2, -1))


def _T(A):
    return namespace(A).moveaxis(A, -1, -2)


@arrays(Lambda="...", N=integer(1))
def paper_lambda(Lambda, N):
    """Λ of the paper that the published code's stands for, Λ²/N (claim V39).

    With it both losses agree, so σ = 1/Λ of K.28 is read off as N/Λ², not as 1/Λ (V35, V39).
    Source: derived.

    >>> paper_lambda([[4.0]], 8)                    # sigma = 1/2
    array([[2.]])
    """
    return Lambda * Lambda / float(N)


@arrays(J="...")
def mean_of_squares(J):
    """The loss of the task and η Σₗ Jₗ² of the layers (Eq. K.27): one layer's part, mean(J²).

    Each sequence for itself, as in the paper, and in its code for time series, reinforcement
    learning and text. Times η, and added up over the layers, it joins the loss of the task.
    Source: Chen et al. 2023.

    >>> mean_of_squares([3.0, -3.0])
    np.float64(9.0)
    """
    return _mean(J * J)


@arrays(J="...")
def square_of_mean(J):
    """Penalty of the batch as a whole, in which parts cancel: mean(J)² ≤ mean(J²) (claim V7).

    What the published code does for the Long-Range Arena and for images; the paper has K.27.
    Source: derived; code of Chen et al. 2023.

    >>> square_of_mean([3.0, -3.0])
    np.float64(0.0)
    """
    return _mean(J) * _mean(J)


def _mean(J):               # autograd's own makes float64 of float32
    return namespace(J).sum(J) / float(math.prod(J.shape))
