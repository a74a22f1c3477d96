"""Dual side: kernel matrices K from row data X and column data Z, and their centring.

X, Z    (N, d), (M, d)    row (query, source) and column (key, target) data
K       (N, M)            kernel matrix, K_ij = κ(x_i, z_j); K ≠ Kᵀ in general, N ≠ M allowed

A kernel of two arguments needs no symmetry and no definiteness: every real matrix is a kernel
matrix. Feature maps do not occur here: linear has (X, Z) themselves, cosine and polynomial have
those of features.py, exponential an approximation there; rbf, softmax and sne have no finite ones.
gamma, scale > 0; degree an integer ≥ 1. What is refused: inputs.py.
"""
import sys

from .backend import namespace
from .inputs import TOO_LARGE, arrays, as_array, call_back, integer, number
from .linalg import squared_distances, unit_rows
from .linalg import softmax as row_softmax


@arrays(X="N d", Z="M d")
def linear(X, Z):
    """Linear kernel, ⟨x, z⟩ (Eq. S.7), the scores Q Kᵀ of attention.

    Source: Tsai et al. 2019, by name.

    >>> linear([[1, 2]], [[3, 4], [0, 1]])
    array([[11.,  2.]])
    """
    return X @ Z.T


@arrays(X="N d", Z="M d", degree=integer(1), gamma=number(), coef0=number())
def polynomial(X, Z, *, degree=2, gamma=1.0, coef0=1.0):
    """Polynomial kernel, (γ⟨x, z⟩ + c)^degree (Eq. S.8 for c = coef0 = 0, the homogeneous one).

    Source: Tsai et al. 2019, by name.

    >>> polynomial([[1, 2]], [[3, 4]])                          # (11 + 1)^2
    array([[144.]])
    """
    return (gamma * (X @ Z.T) + coef0) ** degree


@arrays(X="N d", Z="M d", gamma=number(above=0))
def rbf(X, Z, *, gamma=1.0):
    """Gaussian kernel, e^{−γ‖x − z‖²} (Eq. S.9 for γ = 1/√d); exactly 1 where x = z.

    Source: Tsai et al. 2019, by name.

    >>> rbf([[0, 0]], [[1, 1], [0, 0]], gamma=0.5)              # exp(-1), exp(0)
    array([[0.368, 1.   ]])
    """
    return namespace(X, Z).exp(-gamma * squared_distances(X, Z))


@arrays(X="N d", Z="M d", scale=number(above=0), cure=TOO_LARGE + ": use kernels.softmax, which "
        "takes out the row maximum, or a larger scale")
def exponential(X, Z, *, scale=None):
    """Exponential kernel, e^{⟨x, z⟩/√d} (Eq. S.6): what softmax normalises by row. scale for √d.

    Source: Tsai et al. 2019.

    >>> exponential([[0, 2]], [[1, 0], [0, 1]], scale=2)        # exp(0), exp(1)
    array([[1.   , 2.718]])
    """
    return namespace(X, Z).exp(X @ Z.T / (scale or X.shape[1] ** 0.5))


@arrays(X="N d", Z="M d")
def cosine(X, Z):
    """Cosine kernel, ⟨x, z⟩/(‖x‖‖z‖) (Eq. K.25), the one Primal-Attention uses; 0 where x or z is.

    Source: Chen et al. 2023.

    >>> cosine([[3, 4]], [[1, 0], [0, 2], [0, 0]])
    array([[0.6, 0.8, 0. ]])
    """
    return unit_rows(X) @ unit_rows(Z).T


@arrays(X="N d", Z="M d", scale=number(above=0))
def softmax(X, Z, *, scale=None):
    """Row-normalised exponential kernel (Eq. K.3): the attention matrix of queries X and keys Z.

    Any finite score is safe: the row maximum is taken out. scale = √d unless told.

    Source: Chen et al. 2023.

    >>> import math
    >>> softmax([[1.0]], [[math.log(3)], [0.0]])                # weights 3 : 1
    array([[0.75, 0.25]])
    """
    return row_softmax(X @ Z.T / (scale or X.shape[1] ** 0.5))


@arrays(X="N d", Z="M d", gamma=number(above=0))
def sne(X, Z, *, gamma=1.0):
    """Row-normalised Gaussian kernel, the asymmetric kernel of stochastic neighbour embedding.

    No equation: an example, as any function of two points would be.

    >>> import math
    >>> sne([[0.0]], [[0.0], [math.log(3) ** 0.5]])             # weights 1 : 1/3
    array([[0.75, 0.25]])
    """
    return row_softmax(-gamma * squared_distances(X, Z))


@arrays(X="N d", Z="M d")
def gram(kernel, X, Z):
    """Kernel matrix of any Python function of two points, K_ij = kernel(x_i, z_j), one number.

    No equation: any kernel there is.

    >>> gram(lambda x, z: x[0] - z[0], [[1], [2]], [[1], [2]])  # both triangles are evaluated
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    xp = namespace(X, Z)
    if not callable(kernel):
        raise TypeError(f"kernel must be a function of two points, got {type(kernel).__name__}")

    def value(i, j):
        k = call_back(kernel, X[i, :], Z[j, :])
        if getattr(k, "shape", ()) != () or isinstance(k, (str, bytes, list, tuple, complex)) \
                or k is None:
            raise ValueError("kernel(x, z) must return one real number, got "
                             f"{type(k).__name__} for row {i} and column {j}")
        if isinstance(k, (int, float)):             # NumPy's float64 would promote float32
            k = float(k) if abs(k) <= sys.float_info.max else float("nan")
        return 0.0 * X[i, 0] + k                    # an array of the right library and dtype
    return as_array(xp.stack([xp.stack([value(i, j) for j in range(Z.shape[0])])
                              for i in range(X.shape[0])]), "kernel(x, z)")


@arrays(K="N M")
def center(K):
    """Kernel matrix of centred feature maps from K alone, P_N K P_M, P_n = I − 1 1ᵀ/n (claim V23).

    Rows lose the mean of psi over the columns and columns the mean of phi over the rows: two
    means, so K may be rectangular. Afterwards sum e^2 over the rows is N times a variance, not
    only a second moment.

    Source: derived.

    >>> center([[0, 2, 7], [0, 6, 21]])                         # (1, 3)^T (0, 2, 7)
    array([[ 3.,  1., -4.],
           [-3., -1.,  4.]])
    """
    return center_rows(K, K)


@arrays(K_new="n M", K="N M")
def center_rows(K_new, K):
    """New rows κ(x, z_j), centred with the means of the training matrix (claim V23).

    >>> center_rows([[0, 4, 14]], [[0, 2, 7], [0, 6, 21]])      # x = 2 is the mean of 1 and 3
    array([[0., 0., 0.]])
    """
    xp = namespace(K_new, K)
    return K_new - xp.mean(K, axis=0, keepdims=True) - xp.mean(K_new, axis=1, keepdims=True) \
        + xp.mean(K)


@arrays(K_new="N n", K="N M")
def center_columns(K_new, K):
    """New columns κ(x_i, z), centred with the means of the training matrix (claim V23).

    >>> center_columns([[3], [9]], [[0, 2, 7], [0, 6, 21]])     # z = 3 is the mean of 0, 2 and 7
    array([[0.],
           [0.]])
    """
    return center_rows(K_new.T, K.T).T
