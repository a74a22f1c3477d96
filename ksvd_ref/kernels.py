"""Dual side: kernel matrices K from row data X and column data Z, and their centring.

X, Z    (N, d), (M, d)    row (query, source) and column (key, target) data
K       (N, M)            kernel matrix, K_ij = kappa(x_i, z_j); K != K^T in general, N != M allowed

A kernel of two arguments needs no symmetry and no definiteness: every real matrix is a kernel
matrix. Feature maps do not occur here: linear has (X, Z) themselves, cosine and polynomial have
those of features.py, exponential an approximation there; rbf, softmax and sne have no finite ones.
"""
import math

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f

from .backend import (as_matrix, as_pair, check_finite, check_integer, check_number, namespace,
                      silent, unit_rows)


def linear(X, Z):
    r"""Linear kernel, ⟨x, z⟩ (Eq. S.7), the scores Q K^T of attention.

    .. math:: \kappa(x, z) = \langle x, z \rangle

    Source: Tsai et al. 2019, by name.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array

    Returns
    -------
    (N, M) array

    Raises
    ------
    TypeError, ValueError
        If `X` or `Z` is not a real, finite matrix, their numbers of columns differ, or a product
        overflows.

    Examples
    --------
    >>> linear([[1, 2]], [[3, 4], [0, 1]])
    array([[11.,  2.]])
    """
    X, Z = as_pair(X, Z)
    with silent():
        return check_finite(X @ Z.T)


def polynomial(X, Z, *, degree=2, gamma=1.0, coef0=1.0):
    r"""Polynomial kernel, (γ⟨x, z⟩ + c)^degree (Eq. S.8 for c = coef0 = 0, the homogeneous one).

    .. math:: \kappa(x, z) = (\gamma \langle x, z \rangle + c_0)^{\mathrm{degree}}

    Source: Tsai et al. 2019, by name.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array
    degree : int
        ≥ 1.
    gamma, coef0 : float

    Returns
    -------
    (N, M) array

    Raises
    ------
    TypeError, ValueError
        As `linear`, and if `degree` is no integer ≥ 1.

    Examples
    --------
    >>> polynomial([[1, 2]], [[3, 4]])                          # (11 + 1)^2
    array([[144.]])
    """
    X, Z = as_pair(X, Z)
    degree = check_integer(degree, "degree", 1)
    gamma, coef0 = check_number(gamma, "gamma"), check_number(coef0, "coef0")
    with silent():
        return check_finite((gamma * (X @ Z.T) + coef0) ** degree)


def rbf(X, Z, *, gamma=1.0):
    r"""Gaussian kernel, e^{−γ‖x − z‖²} (Eq. S.9 for γ = 1/√d).

    .. math:: \kappa(x, z) = \exp(-\gamma \|x - z\|^2)

    Source: Tsai et al. 2019, by name.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array
    gamma : float
        > 0.

    Returns
    -------
    (N, M) array
        Between 0 and 1, and exactly 1 where x = z.

    Raises
    ------
    TypeError, ValueError
        As `linear`, and if `gamma` is not positive.

    Examples
    --------
    >>> rbf([[0, 0]], [[1, 1], [0, 0]], gamma=0.5)              # exp(-1), exp(0)
    array([[0.368, 1.   ]])
    """
    X, Z = as_pair(X, Z)
    xp = namespace(X, Z)
    return xp.exp(-check_number(gamma, "gamma", above=0.0) * squared_distances(X, Z))


def exponential(X, Z, *, scale=None):
    r"""Exponential kernel, e^{⟨x, z⟩/√d} (Eq. S.6), what softmax attention normalises row by row.

    .. math:: \kappa(x, z) = \exp(\langle x, z \rangle / \mathrm{scale})

    Source: Tsai et al. 2019.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array
    scale : float, optional
        > 0; sqrt(d) unless told.

    Returns
    -------
    (N, M) array

    Raises
    ------
    TypeError, ValueError
        As `linear`, and if `scale` is not positive.

    Examples
    --------
    >>> exponential([[0, 2]], [[1, 0], [0, 1]], scale=2)        # exp(0), exp(1)
    array([[1.   , 2.718]])
    """
    X, Z = as_pair(X, Z)
    xp = namespace(X, Z)
    logits = _logits(X, Z, scale)
    limit = math.log(float(xp.finfo(logits.dtype).max))
    if xp.max(logits) >= limit:
        raise ValueError(f"exp overflows, a score is not below {limit:.4g}: use kernels.softmax, "
                         "which takes out the row maximum, or a larger scale")
    return xp.exp(logits)


def cosine(X, Z):
    r"""Cosine kernel, ⟨x, z⟩/(‖x‖‖z‖) (Eq. K.25), the one Primal-Attention uses.

    .. math:: \kappa(x, z) = \langle x, z \rangle / (\|x\| \|z\|)

    Source: Chen et al. 2023.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array

    Returns
    -------
    (N, M) array
        Between -1 and 1; 0 where x or z is zero. Rank ≤ d.

    Raises
    ------
    TypeError, ValueError
        As `linear`.

    Examples
    --------
    >>> cosine([[3, 4]], [[1, 0], [0, 2], [0, 0]])
    array([[0.6, 0.8, 0. ]])
    """
    X, Z = as_pair(X, Z)
    return unit_rows(X) @ unit_rows(Z).T


def softmax(X, Z, *, scale=None):
    r"""Row-normalised exponential kernel (Eq. K.3): the attention matrix of queries X and keys Z.

    .. math:: \kappa(x_i, z_j) = \exp(\langle x_i, z_j \rangle / \mathrm{scale}) \big/
              \textstyle\sum_l \exp(\langle x_i, z_l \rangle / \mathrm{scale})

    Source: Chen et al. 2023.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array
    scale : float, optional
        > 0; sqrt(d) unless told.

    Returns
    -------
    (N, M) array
        Between 0 and 1, each row sums to 1. Any finite score is safe: the row maximum is taken out.

    Raises
    ------
    TypeError, ValueError
        As `linear`, and if `scale` is not positive.

    Examples
    --------
    >>> import math
    >>> softmax([[1.0]], [[math.log(3)], [0.0]])                # weights 3 : 1
    array([[0.75, 0.25]])
    """
    X, Z = as_pair(X, Z)
    return row_normalised_exp(_logits(X, Z, scale))


def sne(X, Z, *, gamma=1.0):
    r"""Row-normalised Gaussian kernel, the asymmetric kernel of stochastic neighbour embedding.

    .. math:: \kappa(x_i, z_j) = \exp(-\gamma \|x_i - z_j\|^2) \big/
              \textstyle\sum_l \exp(-\gamma \|x_i - z_l\|^2)

    No equation: an example, as any function of two points would be.

    Parameters
    ----------
    X : (N, d) array
    Z : (M, d) array
    gamma : float
        > 0.

    Returns
    -------
    (N, M) array
        Between 0 and 1, each row sums to 1.

    Raises
    ------
    TypeError, ValueError
        As `rbf`.

    Examples
    --------
    >>> import math
    >>> sne([[0.0]], [[0.0], [math.sqrt(math.log(3))]])         # weights 1 : 1/3
    array([[0.75, 0.25]])
    """
    X, Z = as_pair(X, Z)
    gamma = check_number(gamma, "gamma", above=0.0)
    with silent():
        return row_normalised_exp(-check_finite(gamma * squared_distances(X, Z)))   # inf - inf


def gram(kernel, X, Z):
    """Kernel matrix of any Python function of two points.

    Both triangles are evaluated: kappa(x, z) need not equal kappa(z, x). Differentiable if the
    function is.

    No equation: any kernel there is.

    Parameters
    ----------
    kernel : callable
        ``kernel(x, z)`` of two (d,) arrays gives one number.
    X : (N, d) array
    Z : (M, d) array

    Returns
    -------
    (N, M) array

    Raises
    ------
    TypeError, ValueError
        As `linear`, and if the function returns anything but one finite number.

    Examples
    --------
    >>> gram(lambda x, z: x[0] - z[0], [[1], [2]], [[1], [2]])
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    X, Z = as_pair(X, Z)
    xp = namespace(X, Z)

    def value(i, j):
        number = kernel(X[i, :], Z[j, :])
        if getattr(number, "shape", ()) != () or isinstance(number, (str, bytes, list, tuple)) \
                or number is None or isinstance(number, complex):
            raise ValueError("kernel(x, z) must return one real number, got "
                             f"{type(number).__name__} for row {i} and column {j}")
        if isinstance(number, float):               # NumPy's float64 would promote float32
            number = float(number)
        return 0.0 * X[i, 0] + number               # an array of the right library and dtype
    with silent():
        K = xp.stack([xp.stack([value(i, j) for j in range(Z.shape[0])])
                      for i in range(X.shape[0])])
    return as_matrix(K, "kernel(x, z)")


def center(K):
    r"""Kernel matrix of centred feature maps from K alone, P_N K P_M (claim V23).

    .. math:: P_N K P_M, \qquad P_n = I - 11^\top / n

    Rows lose the mean of psi over the columns and columns the mean of phi over the rows: two
    means, so K may be rectangular. Afterwards sum e^2 over the rows is N times a variance, not
    only a second moment.

    Source: derived.

    Parameters
    ----------
    K : (N, M) array

    Returns
    -------
    (N, M) array
        Every row and every column has mean 0.

    Raises
    ------
    TypeError, ValueError
        If `K` is not a real, finite matrix.

    Examples
    --------
    >>> center([[0, 2, 7], [0, 6, 21]])                         # (1, 3)^T (0, 2, 7)
    array([[ 3.,  1., -4.],
           [-3., -1.,  4.]])
    """
    K = as_matrix(K, "K")
    return center_rows(K, K)


def center_rows(K_new, K):
    r"""New rows centred with the means of the training matrix (claim V23).

    .. math:: \kappa(x, z_j) - \tfrac1N \textstyle\sum_i K_{ij} - \tfrac1M \sum_l \kappa(x, z_l)
              + \tfrac1{NM} \sum_{il} K_{il}

    Parameters
    ----------
    K_new : (n, M) array
        κ(x, z_j) of new rows x against the training columns, not centred.
    K : (N, M) array
        Training matrix, not centred.

    Returns
    -------
    (n, M) array

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, or their numbers of columns differ.

    Examples
    --------
    >>> center_rows([[0, 4, 14]], [[0, 2, 7], [0, 6, 21]])      # x = 2 is the mean of 1 and 3
    array([[0., 0., 0.]])
    """
    K_new, K = as_pair(K_new, K, ("K_new", "K"))
    xp = namespace(K_new, K)
    with silent():
        return check_finite(K_new - xp.mean(K, axis=0, keepdims=True)
                            - xp.mean(K_new, axis=1, keepdims=True) + xp.mean(K))


def center_columns(K_new, K):
    r"""New columns centred with the means of the training matrix (claim V23).

    .. math:: \kappa(x_i, z) - \tfrac1M \textstyle\sum_j K_{ij} - \tfrac1N \sum_l \kappa(x_l, z)
              + \tfrac1{NM} \sum_{lj} K_{lj}

    Parameters
    ----------
    K_new : (N, n) array
        κ(x_i, z) of the training rows against new columns z, not centred.
    K : (N, M) array
        Training matrix, not centred.

    Returns
    -------
    (N, n) array

    Raises
    ------
    TypeError, ValueError
        If an argument is not a real, finite matrix, or their numbers of rows differ.

    Examples
    --------
    >>> center_columns([[3], [9]], [[0, 2, 7], [0, 6, 21]])     # z = 3 is the mean of 0, 2 and 7
    array([[0.],
           [0.]])
    """
    K_new, K = as_matrix(K_new, "K_new"), as_matrix(K, "K")
    if K_new.shape[0] != K.shape[0]:
        raise ValueError("K_new and K need the same number of rows, "
                         f"got shapes {tuple(K_new.shape)} and {tuple(K.shape)}")
    return center_rows(K_new.T, K.T).T


def row_normalised_exp(logits):
    """Softmax over the last axis, exp(l) / sum exp(l), with the largest logit taken out.

    No equation: the normalisation in K.3 and S.3.

    Parameters
    ----------
    logits : (..., N, M) array

    Returns
    -------
    (..., N, M) array

    Examples
    --------
    >>> import numpy as np
    >>> row_normalised_exp(np.array([[1000.0, 1000.0]]))
    array([[0.5, 0.5]])
    """
    xp = namespace(logits)
    return _row_normalised_exp(logits) if xp is anp else _stable_ratio(logits, xp)


def _stable_ratio(logits, xp):
    weight = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return weight / xp.sum(weight, axis=-1, keepdims=True)


_row_normalised_exp = primitive(lambda logits: _stable_ratio(logits, np))
defvjp(_row_normalised_exp, lambda A, logits: lambda g: A * (
    g - anp.sum(A * g, axis=-1, keepdims=True)))    # one step for autograd instead of five


def squared_distances(X, Z):
    r"""Matrix of \|x_i - z_j\|^2, exact also for points that are close together and far from 0.

    No equation: the exponent of S.9.

    Parameters
    ----------
    X : (..., N, d) array
    Z : (..., M, d) array

    Returns
    -------
    (..., N, M) array

    Examples
    --------
    >>> import numpy as np
    >>> far = np.array([[1000.0], [1000.25]], dtype="float32")
    >>> squared_distances(far[:1, :], far)
    array([[0.    , 0.0625]], dtype=float32)
    """
    xp = namespace(X, Z)
    with silent():                                  # infinite is right: a kernel of 0
        return _squared_distances(X, Z) if xp is anp else _sum_of_squares(X, Z, xp)


def _sum_of_squares(X, Z, xp):
    # |x|^2 + |z|^2 - 2<x, z> is one product, but in float32 it gives 0 for the two points above.
    Zt, total = xp.moveaxis(Z, -1, -2), 0.0
    for f in range(X.shape[-1]):
        difference = X[..., :, f:f+1] - Zt[..., f:f+1, :]                  # (..., N, M)
        total = total + difference * difference
    return total


_squared_distances = primitive(lambda X, Z: _sum_of_squares(X, Z, np))


def _pull(g, X, Z):
    # 2 sum_j g_ij (x_i - z_j), as one product. Subtracting x_0 first keeps the digits of points
    # that are far from 0.
    origin = X[..., :1, :]
    return 2.0 * ((X - origin) * anp.sum(g, axis=-1, keepdims=True) - g @ (Z - origin))


defvjp(_squared_distances,
       lambda ans, X, Z: unbroadcast_f(X, lambda g: _pull(g, X, Z)),
       lambda ans, X, Z: unbroadcast_f(Z, lambda g: _pull(anp.moveaxis(g, -1, -2), Z, X)))


def _logits(X, Z, scale):
    scale = X.shape[1] ** 0.5 if scale is None else check_number(scale, "scale", above=0.0)
    with silent():
        return check_finite(X @ Z.T / scale)
