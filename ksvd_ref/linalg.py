"""Decompositions, rank and sign, softmax, distances and lengths: what both wings share.

A library's own svd and eigh do the work. Added here are derivatives that stay right where values
repeat (autograd divides by their difference), the rank rule, and the sign convention. Nothing is
checked here: the public function that calls has done it.

No equation: below K.6 it holds what floating point needs, ties, rank and sign.
"""
import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f
from autograd.tracer import getval, isbox

from .backend import like, namespace, on_gpu, silent
from .inputs import integer

TIE = 10.0      # values equal on paper come out up to a few roundings apart, not one


def svd(K):
    """Thin singular value decomposition, K = U Σ Vᵀ (Eq. K.6), differentiable at repeated σ, once.

    U (N, k), sigma (k,) descending, V (M, k), k = min(N, M); the vectors are columns.

    No rule for (U, sigma, V) can serve every loss where a sigma repeats: at K = I, with C = [[0,
    1], [1, 0]], the losses <C, U diag(sigma) V^T> and <C, U V^T> hand it the same (C, 0, C), yet
    their gradients are C and 0. This one is right where the tied columns enter as a whole, through
    U U^T, V V^T, U V^T and symmetric functions of their sigma. Write losses weighted by sigma with
    K instead: K V and K V V^T are right at ties too.

    Source: textbook.

    >>> svd(np.diag([2.0, 1.0]))[1]
    array([2., 1.])
    """
    xp = namespace(K)
    if xp is anp:
        return _svd(K)
    if on_gpu(xp) and (max(K.shape) ** 2 >= 2 ** 31 or K.shape[0] * K.shape[1] > 2 ** 28):
        # 50000 x 10 is an error there, 19000 x 19000 wrong without a word
        raise ValueError(f"CuPy's SVD counts in 32 bits, too few for {tuple(K.shape)}: "
                         "large.golub_kahan takes some components, primal.solve features")
    U, sigma, Vt = xp.linalg.svd(K, full_matrices=False)
    return U, sigma, Vt.T


def _svd_vjp(answer, K):
    U, sigma, V = answer
    noise = sigma[0] * max(K.shape) * np.finfo(sigma.dtype).eps
    inverse = reciprocal(sigma, noise)

    def vjp(g):
        refuse_twice(sigma, TIE * noise, noise)
        gU, g_sigma, gV = g
        P, Q = U.T @ gU, V.T @ gV
        inner = svd_core(sigma, P - P.T, Q - Q.T, g_sigma, TIE * noise)
        left = (gU - U @ P) * inverse @ V.T         # what lies outside the span of U, of V
        right = U * inverse @ (gV - V @ Q).T
        return U @ inner @ V.T + left + right
    return vjp


_svd = primitive(svd)                               # svd itself, of NumPy values
defvjp(_svd, _svd_vjp)


def svd_core(sigma, P, Q, g_sigma, noise):
    """Middle factor of the derivative of an SVD, U (...) Vᵀ, (k, k).

    P = U^T gU - gU^T U and Q = V^T gV - gV^T V say how the loss turns the left and the right
    vectors, g_sigma is its derivative by sigma. Sigma that are closer than `noise` count as equal.
    """
    gap, total = sigma[None, :] - sigma[:, None], sigma[None, :] + sigma[:, None]
    # P + Q turns both sides together, P - Q one against the other. Where sigma_i = sigma_j only the
    # first is undetermined: setting 1 / (sigma_j^2 - sigma_i^2) to 0 loses the second too, and with
    # it the derivative of U V^T.
    return (0.5 * reciprocal(gap, noise) * (P + Q) + 0.5 * reciprocal(total, noise) * (P - Q)
            + anp.diag(g_sigma))


def refuse_twice(values, tie, zero=-np.inf):
    """Refuse a second derivative, which traces the values, where they repeat or vanish.

    The rules would give the Hessian of sum sigma^2 at I a block [[1, -1], [-1, 1]] in place of 2 I.
    """
    found = np.sort(getval(values))
    if isbox(values) and (np.any(np.diff(found) <= getval(tie)) or found[0] <= getval(zero)):
        raise ValueError("a second derivative where singular values or eigenvalues repeat or "
                         "vanish is not to be had here: differentiate once, or move off the tie")


def reciprocal(x, noise):
    """1 / x where |x| > noise, else 0: what lies below it is rounding error."""
    xp = namespace(x)
    kept = xp.abs(x) > noise
    return xp.where(kept, 1.0 / xp.where(kept, x, 1.0), 0.0)


def eigh(S):
    """Eigenvalues, ascending, and eigenvectors of a symmetric matrix, tie-safe as `svd` is."""
    xp = namespace(S)
    return _eigh(S) if xp is anp else tuple(xp.linalg.eigh(S))


def _eigh_vjp(answer, S):
    w, V = answer
    noise = max(abs(w)) * S.shape[0] * np.finfo(w.dtype).eps
    split = reciprocal(w[None, :] - w[:, None], TIE * noise)

    def vjp(g):
        refuse_twice(w, TIE * noise)
        inner = split * (V.T @ g[1]) + anp.diag(g[0])
        return V @ (0.5 * (inner + inner.T)) @ V.T  # S and S^T are the same variable
    return vjp


_eigh = primitive(eigh)
defvjp(_eigh, _eigh_vjp)


def spectral_norm(A):
    """Largest singular value, ‖A‖₂, from the Gram matrix of the shorter side, as a float."""
    xp = namespace(A)
    top = float(xp.max(xp.abs(A)))
    if top == 0.0:
        return 0.0
    A = A / top                                     # or the squares of 1e200 and 1e-200 are lost
    gram = A.T @ A if A.shape[0] > A.shape[1] else A @ A.T
    return top * float(xp.linalg.eigh(gram)[0][-1]) ** 0.5


def numerical_rank(sigma, N, M, norm=None):
    """How many singular values lie above rounding, σ > norm max(N, M) ε; norm is σ₁ unless told."""
    xp = namespace(sigma)
    if 0 in sigma.shape:
        return 0
    if not xp.isfinite(sigma[0]):
        raise ValueError("the largest singular value overflows: scale the matrix down")
    norm = sigma[0] if norm is None else norm
    return int(xp.count_nonzero(sigma > norm * (max(N, M) * float(xp.finfo(sigma.dtype).eps))))


def rank_rule(rank, N, M, p=None):
    """How many singular values are kept, as a function of them; a bad `rank` is refused at once.

    None keeps the numerical rank; an integer from 1 to min(N, M, p) is honoured as asked, zero
    sigma included. p is the number of features, if K comes from some.

    >>> rank_rule(None, 3, 3)(np.array([2.0, 1.0, 1e-16]))
    2
    """
    limit = min(n for n in (N, M, p) if n is not None)
    shape = f"K of shape {(N, M)}" + (f" from {p} features" if p else "")
    rank = check_rank(rank, limit, shape)

    def kept(sigma, size=max(N, M), norm=None):
        return numerical_rank(sigma, size, size, norm) if rank is None else rank
    return kept


def check_rank(rank, limit, shape, optional=True):
    """The rank asked for, None or an integer from 1 to `limit`; `shape` says whose limit it is."""
    if optional and rank is None:
        return None
    try:
        return integer(1, limit)(rank, "rank")
    except ValueError:
        raise ValueError(f"rank must be {'None or ' * optional}an integer from 1 to {limit} for "
                         f"{shape}, got {rank!r}") from None


def one_sign(solution, by):
    """Both sides flipped together, so that the largest entry of each column of `by` is positive.

    Each side by its own largest entry would break K h_r = sigma h_e for about half of all pairs.
    """
    left, sigma, right = solution
    if sigma.shape[0]:
        flip = signs(by)
        left, right = left * flip, right * flip
    return type(solution)(left, sigma, right)


def signs(H):
    """Sign of the largest entry of each column, (1, s), the first of equals; 1 for zeros."""
    xp, peak = namespace(H), peaks(H)
    return xp.where(peak < 0.0, -xp.ones_like(peak), xp.ones_like(peak))


def peaks(H):
    """Entry of largest magnitude of each column, (1, s), with its sign; the first of equals."""
    xp = namespace(H)
    # Entries that are equal on paper differ by rounding: without the margin a Hadamard matrix would
    # get one sign from the dual and the other from the primal.
    margin = 1.0 - float(xp.finfo(H.dtype).eps) ** 0.5
    top, bottom = (f(H, axis=0, keepdims=True) for f in (xp.max, xp.min))
    if not xp.any(xp.minimum(top, -bottom) >= margin * xp.maximum(top, -bottom)):
        return xp.where(top > -bottom, top, bottom)         # no tie: two looks at H are enough
    size = xp.abs(H)
    largest = xp.astype(size >= margin * xp.max(size, axis=0, keepdims=True), H.dtype)
    first = xp.argmax(largest, axis=0)
    row = xp.arange(H.shape[0], **like(first))
    return xp.sum(xp.where(row[:, None] == first[None, :], H, 0.0), axis=0, keepdims=True)


def softmax(logits):
    """exp(l) / sum exp(l) over the last axis, with the largest logit taken out.

    No equation: the normalisation in K.3 and S.3.

    >>> softmax(np.array([[1000.0, 1000.0]]))
    array([[0.5, 0.5]])
    """
    xp = namespace(logits)
    if xp is anp:
        return _softmax(logits)
    weight = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weight / xp.sum(weight, axis=-1, keepdims=True)


_softmax = primitive(softmax)
defvjp(_softmax, lambda A, logits: lambda g: A * (g - anp.sum(A * g, axis=-1, keepdims=True)))


def squared_distances(X, Z):
    """‖x_i − z_j‖², (..., N, M), exact also for points close together and far from 0.

    No equation: the exponent of S.9.

    >>> far = np.array([[1000.0], [1000.25]], dtype="float32")
    >>> squared_distances(far[:1, :], far)
    array([[0.    , 0.0625]], dtype=float32)
    """
    xp = namespace(X, Z)
    if xp is anp:
        return _squared_distances(X, Z)
    # |x|^2 + |z|^2 - 2<x, z> is one product, but in float32 it gives 0 for the two points above.
    Zt, total = xp.moveaxis(Z, -1, -2), 0.0
    with silent():                                  # infinite is right: a kernel of 0
        for f in range(X.shape[-1]):
            difference = X[..., :, f:f+1] - Zt[..., f:f+1, :]              # (..., N, M)
            total = total + difference * difference
    return total


_squared_distances = primitive(squared_distances)


def _pull(g, X, Z):
    # 2 sum_j g_ij (x_i - z_j), as one product.
    origin = X[..., :1, :]                          # keeps the digits of points far from 0
    return 2.0 * ((X - origin) * anp.sum(g, axis=-1, keepdims=True) - g @ (Z - origin))


defvjp(_squared_distances,
       lambda ans, X, Z: unbroadcast_f(X, lambda g: _pull(g, X, Z)),
       lambda ans, X, Z: unbroadcast_f(Z, lambda g: _pull(anp.moveaxis(g, -1, -2), Z, X)))


def in_range(A):
    """A divided by its largest entry, a constant, for what has no scale; zeros stay zeros."""
    return A / (float(namespace(A).max(namespace(A).abs(getval(A)))) or 1.0)


def unit_rows(X):
    """Rows scaled to length 1, (..., N, d); a row of zeros stays zero."""
    xp = namespace(X)
    top = xp.max(xp.abs(X), axis=-1, keepdims=True)
    X = X / xp.where(top > 0.0, top, 1.0)           # first, or squares of 1e-200 and 1e200 are lost
    square = xp.sum(X * X, axis=-1, keepdims=True)
    return X / xp.sqrt(xp.where(square > 0.0, square, 1.0))
