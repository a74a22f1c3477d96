"""Positions as a second kernel: what `smoother.attention` takes as its log_factor.

t    (N, d)          rows are positions, sinusoids or learned
R    (N+M-1, d)      rows are offsets r = i − j, descending from M−1 to −(N−1)
Q    (..., N, d)     queries, the coefficients of an offset kernel

Additive positions go into the content, Q = (f + t) W_q (S.13), or turn it (S.42). The others
multiply the kernel, so their logarithm is added to the scores: a kernel of two absolute positions
(S.18), one of the offset i − j with coefficients from the query (S.14, S.17), or of i − j alone
(S.43, S.44). NaN passes: only the smoother knows what is visible. As in the filters, query i stands
at position i + M − N. What is refused: inputs.py.
"""
import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive

from ..backend import like, namespace, silent
from ..inputs import arrays, as_array, integer, number


@arrays(N=integer(1), d=integer(1), first=number(), beside="~...")
def sinusoids(N, d, *, first=0, beside=None):
    """Fixed positions of N rows, d/2 pairs of sine and cosine (Eq. S.12).

    t_i = (sin ω_p i, cos ω_p i)_p, the pairs side by side, ω_p = 10000^(−2p/d): (N, d). first:
    position of the first row, negative for offsets. beside: array whose library and dtype it gets.
    Source: Vaswani et al. 2017.

    >>> sinusoids(2, 2)
    array([[0.   , 1.   ],
           [0.841, 0.540]])
    """
    if d % 2:
        raise ValueError(f"d must be an even integer, a sine and a cosine for each pair, got {d}")
    frequency = 10000.0 ** (-2.0 * np.arange(d // 2) / d)
    angle = (first + np.arange(N))[:, None] * frequency[None, :]
    t = np.reshape(np.stack([np.sin(angle), np.cos(angle)], axis=-1), (N, d))
    return t if beside is None else namespace(beside).asarray(t, **like(beside))


def absolute(t_q, t_k, *, scale=None):
    """Log factor of a kernel of two absolute positions, for κ_F(f, f′) κ_T(t, t′) (Eq. S.18).

    log κ_T = ⟨t_q, t_k⟩/√d of mapped positions t W, (N, M). One W for both is the symmetric product
    of Tsai et al., two are the untied control (S.19). It is one exponential kernel on [content,
    position], at the scale √d of one half (claim D15). No function of i − j, even with sinusoids,
    but for special W (claim D17): one that keeps sin i alone gives sin(0) sin(1) = 0 and sin(1)
    sin(2) = 0.765. Source: Tsai et al. 2019, equation (9).

    >>> absolute([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], scale=2.0)
    array([[0.5, 0. ]])
    """
    return _scores(t_q, t_k, ("t_q", "t_k"), scale)


def _scores(A, B, names, scale):
    A, B = (as_array(X, name, finite=False) for X, name in zip((A, B), names))
    a, b = tuple(A.shape), tuple(B.shape)
    if min(len(a), len(b)) < 2 or a[-1] != b[-1] or any(
            n != m and 1 not in (n, m) for n, m in zip(a[-3::-1], b[-3::-1])):
        raise ValueError(f"{' and '.join(names)} need the same number of columns, and leading axes "
                         f"that are equal or 1, got shapes {a} and {b}")
    scale = a[-1] ** 0.5 if scale is None else number(above=0)(scale, "scale")
    with silent():                                  # inf − inf of padding
        return A @ namespace(A, B).moveaxis(B, -1, -2) / scale


def relative(Q, R, *, scale=None):
    """Log factor of a kernel of offsets with coefficients from the query, q·R_{i−j}/√d (Eq. S.15).

    Transformer-XL (S.14) has R = sinusoids W_R, a look-up table (S.17: Shaw et al., Huang et al.,
    2018) R = `offset_table`. The full Transformer-XL (S.16) is Q + u for the content, Q + v here.
    Source: derived; Dai et al. 2019.

    >>> relative([[1.0], [10.0]], [[1.0], [0.0], [-1.0]])       # q_i (i - j)
    array([[ 0., -1.],
           [10.,  0.]])
    """
    raw = _scores(Q, R, ("Q", "R"), scale)
    if raw.shape[-1] < raw.shape[-2]:
        raise ValueError(f"R must have N + M - 1 rows, one for each offset, N = {raw.shape[-2]} or "
                         f"more, got {raw.shape[-1]}")
    return rel_shift(raw)


def rel_shift(raw):
    """From one column for each offset to one for each key: row i moves left by N − 1 − i.

    (..., N, N+M-1) to (..., N, M). Dai et al., 2019, have M columns, of the offsets M−1 to 0: what
    lies above the diagonal is then garbage, which only a mask makes harmless.

    No equation: the order of columns in memory (D23).

    >>> rel_shift([[1, 2, 3], [4, 5, 6]])
    array([[2., 3.],
           [4., 5.]])
    """
    raw = as_array(raw, "raw", finite=False)
    if raw.ndim < 2 or raw.shape[-1] < raw.shape[-2]:
        raise ValueError("raw must have one column for each of the N + M - 1 offsets, got shape "
                         f"{tuple(raw.shape)}")
    return raw if raw.shape[-2] == 1 else _shift(raw)


@primitive                  # one step for autograd: its derivative of a slice adds entry by entry
def _shift(raw):
    xp, (*lead, N, W) = namespace(raw), raw.shape
    # Rows of length W - 1 instead of W, read from entry N - 1 on: each starts one place earlier.
    flat = xp.reshape(raw, (*lead, N * W))[..., N-1:N-1+N*(W-1)]
    return xp.reshape(flat, (*lead, N, W - 1))[..., :W-N+1]


def _unshift(g, N, W):
    lead, none = g.shape[:-2], [(0, 0)] * (g.ndim - 2)
    g = anp.pad(g, [*none, (0, 0), (0, N - 2)], "constant")                # rows of length W - 1
    g = anp.pad(anp.reshape(g, (*lead, N * (W - 1))), [*none, (N - 1, 1)], "constant")
    return anp.reshape(g, (*lead, N, W))


defvjp(_shift, lambda ans, raw: lambda g: _unshift(g, *raw.shape[-2:]))


@arrays(table="rows d", N=integer(1), M=integer(1))
def offset_table(table, N, M):
    """κ_exp(f, f′) e^{⟨q, a_{i−j}⟩} with a learned table a_l (Eq. S.17): its rows for all offsets.

    Row L + r of the table (2L + 1, d) belongs to r = i − j; beyond its ends its last row counts.
    Returns R (N+M-1, d). `relative` divides by √d, a factor that a learned table takes up.
    Source: Tsai et al. 2019; Shaw et al. 2018; Huang et al. 2018.

    >>> offset_table([[-1], [0], [1]], 2, 3)[:, 0]              # offsets 2, 1, 0, -1
    array([ 1.,  1.,  0., -1.])
    """
    L, odd = divmod(table.shape[0], 2)
    if not odd:
        raise ValueError("table must have 2L + 1 rows, one for each offset from -L to L, "
                         f"got {table.shape[0]}")
    row = L + np.clip(np.arange(M - 1, -N, -1), -L, L)
    pick = row[:, None] == np.arange(2 * L + 1)[None, :]        # 0 and 1: autograd has no take
    return namespace(table).asarray(pick.astype(float), **like(table)) @ table


@arrays(C="... N d", first=number())
def turned(C, *, first=0):
    """κ_exp(f, f′) κ_f(t, t′), the product of Transformer-XL (Eq. S.14): coefficients, turned.

    ψ_i = (b sin ω_p i − a cos ω_p i, a sin ω_p i + b cos ω_p i)_p for c_i = (a, b)_p has ⟨ψ_i, t_j⟩
    = ⟨c_i, t_{i−j}⟩. The coefficients c = q W_Rᵀ of the sinusoids are turned by the position of the
    query, so the product of a content and an offset kernel is one exponential kernel, of queries
    [q, ψ] and keys [k, t]. first: M − N where keys are numbered from 0.
    Source: Tsai et al. 2019; Dai et al. 2019.

    >>> psi = turned([[1.0, 0.0]], first=2)
    >>> psi @ sinusoids(1, 2, first=1).T                        # sin(2 - 1)
    array([[0.841]])
    """
    a, b, sin, cos = _pairs(C, first)
    return _side_by_side(b * sin - a * cos, a * sin + b * cos)


def _pairs(X, first):
    """Even and odd columns of X, and the sine and cosine that belong to each pair."""
    t = sinusoids(*X.shape[-2:], first=first)
    sin, cos = (namespace(X).asarray(t[:, part::2], **like(X)) for part in (0, 1))
    return X[..., 0::2], X[..., 1::2], sin, cos


def _side_by_side(a, b):
    xp = namespace(a, b)
    return xp.reshape(xp.stack([a, b], axis=-1), (*a.shape[:-1], -1))


@arrays(X="... N d", first=number())
def rotary(X, *, first=0):
    """RoPE: queries and keys turned by their position, ⟨Dᵢq, Dⱼk⟩ = ⟨q, D_{j−i}k⟩ (Eq. S.42).

    Dᵢ turns each pair (a, b)_p of columns by the angle ω_p i of `sinusoids`: the exponential kernel
    of turned content, one of offsets with coefficients from the query *and* the key. Lengths stay.
    first: position of the first row, M − N for queries whose keys are numbered from 0. Published
    models pair column p with p + d/2 as well, which only names the columns anew.
    Source: Su et al. 2021.

    >>> rotary([[1.0, 0.0], [1.0, 0.0]])[1, :]                  # by one radian
    array([0.540, 0.841])
    """
    a, b, sin, cos = _pairs(X, first)
    return _side_by_side(a * cos - b * sin, a * sin + b * cos)


@arrays(heads=integer(1), N=integer(1), M=integer(1), beside="~...")
def alibi(heads, N, M=None, *, beside=None):
    """ALiBi: log factor −m_h |i − j| with the slopes m_h = 2^(−8h/H), h = 1, …, H (Eq. S.43).

    A Laplacian kernel of the offset, (H, N, M), one-sided under the causal filter, for which it was
    published; H there is a power of two. beside: array whose library and dtype it gets.
    Source: Press et al. 2022.

    >>> alibi(8, 1, 3)[:2, 0, :]                                # slopes 1/2 and 1/4
    array([[-1.  , -0.5 , -0.  ],
           [-0.5 , -0.25, -0.  ]])
    """
    M = N if M is None else M
    slopes = 2.0 ** (-8.0 * np.arange(1, heads + 1) / heads)
    apart = np.abs(np.arange(M - N, M)[:, None] - np.arange(M)[None, :])
    B = -slopes[:, None, None] * apart
    return B if beside is None else namespace(beside).asarray(B, **like(beside))


@arrays(table="... n", N=integer(1), M=integer(1), far=integer(2))
def bucketed(table, N, M, *, far=128, causal=False):
    """T5: log factor b_{bucket(i−j)}, one learned number a head and bucket (Eq. S.44).

    table (..., n) of n = 32 buckets gives (..., N, M). A half of them is for keys after the query,
    unless causal; of the rest a half has one distance each, the others grow by a constant factor up
    to `far`, and the last holds all beyond. It depends on neither query nor key; T5 does not divide
    its scores by √d, so `attention` gets scale=1. Source: code of Raffel et al. 2020.

    >>> bucketed([0.0, 1.0, 2.0, 3.0], 1, 9, far=8, causal=True)[0, :]     # 8, 7, ..., 0 apart
    array([3., 3., 3., 3., 3., 2., 2., 1., 0.])
    """
    n, offset = table.shape[-1] // (1 if causal else 2), np.arange(M - 1, -N, -1)
    exact = n // 2
    if exact < 1 or far <= exact or not causal and table.shape[-1] % 2:
        raise ValueError(f"table must have {'2' if causal else '4, 6, ...'} columns or more, and "
                         f"far must be beyond their exact part, got {table.shape[-1]} and {far}")
    apart = np.maximum(offset, 0) if causal else np.abs(offset)
    grown = np.log2(np.maximum(apart, exact) / exact) / np.log2(far / exact) * (n - exact)
    bucket = np.where(apart < exact, apart, np.minimum(exact + grown.astype(int), n - 1))
    bucket = bucket if causal else bucket + n * (offset < 0)
    pick = bucket[None, :] == np.arange(table.shape[-1])[:, None]          # as in offset_table
    xp = namespace(table)
    row = table @ xp.asarray(pick.astype(float), **like(table))            # (..., N + M - 1)
    return rel_shift(row[..., None, :] + xp.zeros((N, 1), **like(table)))
