"""Triangles R of features, R^T R = A^T A, and the primal solution from them (K.39).

T_phi, T_psi   (p, p)    triangles of Phi and of Psi (R of a QR decomposition; here R are scores)

T comes from the Gram matrix where that is safe: with cond = |Phi| |Psi| / sigma_s it loses cond^2
of the precision, a QR decomposition only cond. The limit is cond = 100 in float64 and 10 in
float32, relative errors of 1e-12 and 1e-5; above it T comes from QR, for three to twelve times the
cost. primal.solve needs both sides at once; what does not fit in memory goes by blocks (large.py).

No equation: K.39 is in primal.solve, this is how.
"""
import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp_argnums, primitive

from .backend import like, namespace, on_gpu
from .inputs import as_array, check_finite
from .linalg import TIE, reciprocal, refuse_twice, spectral_norm, svd, svd_core


def exact(Phi, Psi, s):
    """W_e, sigma, W_r of all min(N, M, p) components, s of them trusted, and |Phi| |Psi|.

    >>> exact(np.diag([2.0, 1.0]), np.eye(2), 2)[1]
    array([2., 1.])
    """
    k = min(Phi.shape[0], Psi.shape[0], Phi.shape[1])
    for root in (gram_root, qr_root):               # T = A serves where A has fewer rows than p
        T_phi, T_psi = (as_array(A, name) if A.shape[0] < A.shape[1] else root(A, name)
                        for A, name in ((Phi, "Phi"), (Psi, "Psi")))
        W_e, sigma, W_r, norm = core(T_phi, T_psi, k)
        if norm <= gram_limit(Phi) * float(sigma[s - 1]):
            break
    return W_e, sigma, W_r, norm


def core(T_phi, T_psi, k):
    """W_e = T_psi^T V, sigma, W_r = T_phi^T U of the k leading components, and |Phi| |Psi|.

    >>> core(np.array([[5.0]]), np.array([[2.0]]), 1)[1:3]
    (array([10.]), array([[5.]]))
    """
    xp = namespace(T_phi, T_psi)
    a, b = spectral_norm(T_phi), spectral_norm(T_psi)                      # = |Phi|, |Psi|
    if not a * b <= float(xp.finfo(T_phi.dtype).max):
        raise ValueError("Phi Psi^T overflows: scale Phi or Psi down")
    T_phi, T_psi = T_phi / (a or 1.0), T_psi / (b or 1.0)                  # 1e-200 squared is 0
    U, sigma, V = svd(T_phi @ T_psi.T)
    return b * (T_psi.T @ V[:, :k]), a * (b * sigma[:k]), a * (T_phi.T @ U[:, :k]), a * b


def gram_limit(A):
    """The largest |Phi| |Psi| / sigma_s at which the Gram matrix is safe.

    >>> gram_limit(np.ones(1, dtype="float32"))
    10.0
    """
    return 100.0 if A.dtype == namespace(A).float64 else 10.0


def gram_root(A, name):
    """T with T^T T = A^T A, (p, p), by the Gram matrix: one product.

    >>> gram_root(np.array([[3.0], [4.0]]), "A")
    array([[5.]])
    """
    xp = namespace(A)
    G = A.T @ A
    # The largest entry is a squared length. NaN and infinity in A show in it, and so does whatever
    # over- or underflows when it is squared; as_array would look at all of A for the first alone.
    limits = xp.finfo(A.dtype)
    low, high = float(limits.smallest_normal) / float(limits.eps) ** 2, float(limits.max)
    if not low < float(xp.max(G)) < float(limits.eps) * high:
        return qr_root(as_array(A, name), name)
    w, V = xp.linalg.eigh(G)
    return xp.sqrt(xp.maximum(w, 0.0))[:, None] * V.T


def qr_root(A, name):
    """T of A = Q T, (p, p), with the signs of its rows such that the diagonal is ≥ 0.

    >>> qr_root(np.array([[3.0], [4.0]]), "A")
    array([[5.]])
    """
    xp = namespace(A)
    if xp is anp:
        raise TypeError("features in blocks cannot be differentiated: primal.solve can")
    T = check_finite(_triangle(A), f"the norm of {name}")
    diagonal = xp.sum(T * xp.eye(T.shape[0], **like(T)), axis=1, keepdims=True)
    return xp.where(diagonal < 0.0, -T, T)


def _triangle(A):
    """T of A = Q T by a tree of small QR decompositions: up to four times as fast as by one.

    A GPU would decompose them one after the other: there it is one.
    """
    xp = namespace(A)
    (N, p), rows = A.shape, 8 * A.shape[1]
    if N < 2 * rows or on_gpu(xp):
        T = xp.zeros((p, p), **like(A))
        T[:min(N, p), :] = _r(A, xp)
        return T
    m = N // rows
    T = _r(xp.reshape(A[:m * rows, :], (m, rows, p)), xp)                   # m triangles
    T = _triangle(xp.reshape(T, (m * p, p)))
    return T if N == m * rows else _triangle(below(T, _triangle(A[m * rows:, :])))


def _r(A, xp):
    # NumPy and CuPy can leave Q out, at half the cost; the array standard has no word for it.
    return xp.linalg.qr(A, mode="r") if xp is np or on_gpu(xp) else xp.linalg.qr(A)[1]


def below(T, S):
    """One triangle below the other.

    >>> below(np.array([[1.0]]), np.array([[2.0]]))
    array([[1.],
           [2.]])
    """
    xp = namespace(T, S)
    return xp.reshape(xp.stack([T, S]), (-1, T.shape[1]))


@primitive
def traced(Phi, Psi, s):
    """`exact`, for autograd."""
    return exact(Phi, Psi, s)


def _traced_vjp(argnums, answer, args, kwargs):
    # The derivative of linalg.svd at K = Phi Psi^T, pulled back through W_e = Psi^T V and
    # W_r = Phi^T U. K does not occur: U = Phi W_e / sigma leaves Phi times a p x p matrix.
    (W_e, sigma, W_r, norm), (Phi, Psi, _) = answer, args
    size = max(Phi.shape[0], Psi.shape[0])
    eps = np.finfo(sigma.dtype).eps
    inverse = reciprocal(sigma, norm * size * eps)
    tie = TIE * norm * max(size, gram_limit(sigma)) * eps    # the Gram matrix costs more

    def side(A, B, W_a, W_b, g_a, g_b, turn):
        outside = (g_a.T @ B.T) @ B - (g_a.T @ W_a) @ W_a.T                # (s, p)
        middle = turn @ W_a.T + g_b.T + inverse[:, None] * outside
        middle = W_a * inverse @ (middle - W_b.T @ g_b * inverse @ W_a.T)  # (p, p)
        return A @ (middle + g_b * inverse @ W_a.T)

    def vjp(g):
        refuse_twice(sigma, tie, norm * size * eps)
        g_e, g_sigma, g_r, _ = g
        P, Q = W_r.T @ g_r, W_e.T @ g_e
        turn = svd_core(sigma, P - P.T, Q - Q.T, g_sigma, tie)
        both = (side(Phi, Psi, W_e, W_r, g_e, g_r, turn),
                side(Psi, Phi, W_r, W_e, g_r, g_e, turn.T))
        return tuple(both[n] for n in argnums)
    return vjp


defvjp_argnums(traced, _traced_vjp)
