r"""Positions as a second kernel: what `smoother.attention` takes as its log_factor.

Additive positions need nothing here: they go into the content, Q = (f + t) W_q (S.13). The others
multiply the kernel, so their logarithm is added to the scores: a kernel of two absolute positions
(S.18), or one of the offset i - j with coefficients from the query (S.14, S.17).

t         (N, d)          rows are positions, sinusoids or learned
R         (N+M-1, d)      rows are offsets r = i - j, descending from M-1 to -(N-1)
Q         (..., N, d)     queries, the coefficients of an offset kernel

N and M are aligned at the end, as in the filters: query i stands at position i + M - N.
"""
import autograd.numpy as anp
from autograd.extend import defvjp, primitive

from ..backend import as_array, check_integer, check_number, like, namespace, silent


def sinusoids(N, d, *, first=0, beside=None):
    r"""Fixed positions of N rows, d/2 pairs of sine and cosine (Eq. S.12).

    .. math:: t_i = (\sin \omega_p i, \cos \omega_p i)_{p < d/2}, \qquad
              \omega_p = 10000^{-2p/d}

    The pairs stand side by side.

    Source: Vaswani et al. 2017.

    Parameters
    ----------
    N : int
    d : int
        Even.
    first : int
        Position of the first row; negative for offsets.
    beside : array, optional
        Gives its library, dtype and device; NumPy and float64 unless told.

    Returns
    -------
    (N, d) array

    Raises
    ------
    ValueError
        If N is no integer ≥ 1, d no even integer ≥ 2, or `first` no finite number.

    Examples
    --------
    >>> sinusoids(2, 2)
    array([[0.   , 1.   ],
           [0.841, 0.540]])
    """
    N, d = check_integer(N, "N", 1), check_integer(d, "d", 1)
    if d % 2:
        raise ValueError(f"d must be an even integer, a sine and a cosine for each pair, got {d}")
    host = namespace()                              # NumPy's numbers serve every library
    position = check_number(first, "first") + host.arange(N)
    angle = position[:, None] * _frequencies(d)[None, :]
    t = host.reshape(host.stack([host.sin(angle), host.cos(angle)], axis=-1), (N, d))
    if beside is None:
        return t
    beside = as_array(beside, "beside", finite=False)   # integers would round every sine to 0
    return namespace(beside).asarray(t, **like(beside))


def _frequencies(d):
    return 10000.0 ** (-2.0 * namespace().arange(d // 2) / d)


def absolute(t_q, t_k, *, scale=None):
    r"""Log factor of a kernel of two absolute positions, for κ_F(f, f′) κ_T(t, t′) (Eq. S.18).

    .. math:: \log \kappa_T(t_i, t_j) = \langle t_i W_{T,q}, t_j W_{T,k} \rangle / \sqrt{d}

    With the same map on both sides, and on both sides of the content, this is the product of
    symmetric kernels of Tsai et al.; with two maps it is the untied control
    (S.19). It equals one exponential kernel on the concatenation [content, position], at the scale
    sqrt(d) of one half, not sqrt(2d) (claim D15).

    Source: Tsai et al. 2019, equation (9).

    Parameters
    ----------
    t_q : (N, d) array
        Mapped positions of the queries, t W_T.
    t_k : (M, d) array
        Of the keys: the same array for a symmetric kernel.
    scale : float, optional
        > 0; sqrt(d) unless told.

    Returns
    -------
    (N, M) array

    Raises
    ------
    TypeError, ValueError
        If an argument is no array of real numbers, their numbers of columns differ, or leading
        axes do not broadcast.

    Notes
    -----
    Even with sinusoids it is a function of i - j only for special W_T (claim D17): W_T that keeps
    sin i alone gives sin(0) sin(1) = 0 for the pair (0, 1) and sin(1) sin(2) = 0.765 for (1, 2).

    Examples
    --------
    >>> absolute([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], scale=2.0)
    array([[0.5, 0. ]])
    """
    # Not checked for NaN: only the smoother knows what is visible.
    t_q, t_k = as_array(t_q, "t_q", finite=False), as_array(t_k, "t_k", finite=False)
    xp = namespace(t_q, t_k)
    if t_q.ndim < 2 or t_k.ndim < 2 or t_q.shape[-1] != t_k.shape[-1]:
        raise ValueError("t_q and t_k need 2 axes or more and the same number of columns, got "
                         f"shapes {tuple(t_q.shape)} and {tuple(t_k.shape)}")
    if any(n != m and 1 not in (n, m) for n, m in zip(t_q.shape[-3::-1], t_k.shape[-3::-1])):
        raise ValueError("leading axes of t_q and t_k must be equal or 1, got "
                         f"{tuple(t_q.shape)} and {tuple(t_k.shape)}")
    scale = t_q.shape[-1] ** 0.5 if scale is None else check_number(scale, "scale", above=0.0)
    with silent():
        return t_q @ xp.moveaxis(t_k, -1, -2) / scale


def relative(Q, R, *, scale=None):
    r"""Log factor of a kernel of offsets with coefficients from the query, q·R_{i−j}/√d (Eq. S.15).

    .. math:: \log \kappa_{q_i}(t_i, t_j) = \langle q_i, R_{i-j} \rangle / \sqrt{d}

    Transformer-XL (S.14) has R = sinusoids W_R; a look-up table (S.17: Shaw et al., Huang et al.,
    2018) has R = `offset_table`. The full Transformer-XL (S.16) is Q + u for the content and Q + v
    here.

    Source: derived; Dai et al. 2019.

    Parameters
    ----------
    Q : (..., N, d) array
    R : (..., N+M-1, d) array
        One row for each offset i - j, descending from M-1 to -(N-1).
    scale : float, optional
        > 0; sqrt(d) unless told.

    Returns
    -------
    (..., N, M) array

    Raises
    ------
    TypeError, ValueError
        If an argument is no array of real numbers, their numbers of columns differ, or R has fewer
        than N rows.

    Examples
    --------
    >>> relative([[1.0], [10.0]], [[1.0], [0.0], [-1.0]])       # q_i (i - j)
    array([[ 0., -1.],
           [10.,  0.]])
    """
    Q, R = as_array(Q, "Q", finite=False), as_array(R, "R", finite=False)
    namespace(Q, R)
    if Q.ndim < 2 or R.ndim < 2 or Q.shape[-1] != R.shape[-1] or R.shape[-2] < Q.shape[-2]:
        raise ValueError("R must have N + M - 1 rows, one for each offset, and the columns of Q, "
                         f"got shapes {tuple(Q.shape)} and {tuple(R.shape)} of Q and R")
    return rel_shift(absolute(Q, R, scale=scale))


def rel_shift(raw):
    """From one column for each offset to one column for each key: row i moves left by N - 1 - i.

    Dai et al., 2019, have this trick with M columns, the offsets M-1 to 0: what lies above the
    diagonal is then garbage, which only a mask makes harmless. With N - 1 columns more there is no
    garbage.

    No equation: the order of columns in memory (D23).

    Parameters
    ----------
    raw : (..., N, N+M-1) array
        Column c belongs to offset i - j = M - 1 - c.

    Returns
    -------
    (..., N, M) array
        Entry (i, j) is entry (i, N - 1 - i + j) of `raw`.

    Raises
    ------
    ValueError
        If there are fewer columns than rows.

    Examples
    --------
    >>> rel_shift([[1, 2, 3], [4, 5, 6]])
    array([[2., 3.],
           [4., 5.]])
    """
    raw = as_array(raw, "raw", finite=False)
    xp = namespace(raw)
    if raw.ndim < 2 or raw.shape[-1] < raw.shape[-2]:
        raise ValueError("one column for each of the N + M - 1 offsets expected, "
                         f"got shape {tuple(raw.shape)}")
    if raw.shape[-2] == 1:
        return raw
    return (_traced_shift if xp is anp else _shift)(raw)


def _shift(raw):
    xp = namespace(raw)
    N, W = raw.shape[-2:]
    # Rows of length W - 1 instead of W, read from entry N - 1 on: each starts one place earlier.
    flat = xp.reshape(raw, (*raw.shape[:-2], N * W))[..., N-1:N-1+N*(W-1)]
    return xp.reshape(flat, (*raw.shape[:-2], N, W - 1))[..., :W-N+1]


def _unshift(g, N, W):
    """The way back: zeros in the places that rel_shift leaves out."""
    lead, none = g.shape[:-2], [(0, 0)] * (g.ndim - 2)
    g = anp.pad(g, [*none, (0, 0), (0, N - 2)], "constant")                # rows of length W - 1
    g = anp.pad(anp.reshape(g, (*lead, N * (W - 1))), [*none, (N - 1, 1)], "constant")
    return anp.reshape(g, (*lead, N, W))


# One step for autograd: its derivative of a slice adds entry by entry.
_traced_shift = primitive(_shift)
defvjp(_traced_shift, lambda answer, raw: lambda g: _unshift(g, *raw.shape[-2:]))


def offset_table(table, N, M):
    r"""κ_exp(f, f′) e^{⟨q, a_{i−j}⟩} with a learned table a (Eq. S.17): its rows for all offsets.

    .. math:: R_r = a_{\mathrm{clip}(r, -L, L)}

    Beyond the ends of the table its last row counts. `relative` divides by sqrt(d), a factor that
    a learned table takes up.

    Source: Tsai et al. 2019; Shaw et al. 2018; Huang et al. 2018.

    Parameters
    ----------
    table : (2L + 1, d) array
        Row L + r belongs to the offset r = i - j.
    N, M : int
        Queries and keys.

    Returns
    -------
    (N+M-1, d) array
        Descending offsets, as `relative` takes them.

    Raises
    ------
    TypeError, ValueError
        If the table is no real, finite matrix with an odd number of rows, or N or M no integer ≥ 1.

    Examples
    --------
    >>> offset_table([[-1], [0], [1]], 2, 3)                    # offsets 2, 1, 0, -1
    array([[ 1.],
           [ 1.],
           [ 0.],
           [-1.]])
    """
    table = as_array(table, "table", ndim=2)
    N, M = check_integer(N, "N", 1), check_integer(M, "M", 1)
    xp = namespace(table)
    L, even = divmod(table.shape[0], 2)
    if not even:
        raise ValueError("table must have 2L + 1 rows, one for each offset from -L to L, "
                         f"got {table.shape[0]}")
    host = namespace()
    row = L + host.clip(host.arange(M - 1, -N, -1), -L, L)
    pick = row[:, None] == host.arange(2 * L + 1)[None, :]      # 0 and 1: autograd has no take
    return xp.asarray(host.astype(pick, host.float64), **like(table)) @ table


def turned(C, *, first=0):
    r"""κ_exp(f, f′) κ_f(t, t′), the product of Transformer-XL (Eq. S.14): coefficients, turned.

    .. math:: \langle c_i, t_{i-j} \rangle = \langle \psi_i, t_j \rangle, \quad
              \psi_{i,p} = (-c_{2p} \cos \omega_p i + c_{2p+1} \sin \omega_p i,\;
                            c_{2p} \sin \omega_p i + c_{2p+1} \cos \omega_p i)

    The coefficients c of the second factor come from the query and are turned by its position. So
    the product of a content and an offset kernel is one exponential kernel, of queries [q, psi]
    and keys [k, t].

    Source: Tsai et al. 2019; Dai et al. 2019.

    Parameters
    ----------
    C : (..., N, d) array
        Coefficients of the sinusoids, c = q W_R^T.
    first : int
        Position of the first query, M - N where keys are numbered from 0.

    Returns
    -------
    (..., N, d) array

    Raises
    ------
    TypeError, ValueError
        If `C` is no real, finite array of two axes or more with an even number of columns.

    Examples
    --------
    >>> import math
    >>> psi = turned([[1.0, 0.0]], first=2)
    >>> psi @ sinusoids(1, 2, first=1).T, math.sin(2 - 1)
    (array([[0.841]]), 0.841)
    """
    C = as_array(C, "C")
    if C.ndim < 2:
        raise ValueError(f"C must have 2 axes or more, got shape {tuple(C.shape)}")
    xp = namespace(C)
    t = sinusoids(C.shape[-2], C.shape[-1], first=first, beside=None)
    sin, cos = (xp.asarray(t[:, part::2], **like(C)) for part in (0, 1))
    a, b = C[..., 0::2], C[..., 1::2]
    return xp.reshape(xp.stack([b * sin - a * cos, a * sin + b * cos], axis=-1), C.shape)
