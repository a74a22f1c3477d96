"""Two ways of seeing attention: as a kernel smoother, and in the primal.

    filters   positions     who may see whom; a second kernel, of two positions
    smoother                attention = kernel x position x value x filter
    layer     losses        Primal-Attention: scores e and r without an N x N matrix; the KSVD loss
    gradients               both differentiated by hand, for a GPU

What is used most is on the face: attention.primal_attention, attention.paper_loss, ...
"""
from . import filters, gradients, layer, losses, positions, smoother
from .gradients import (approximation_loss_vjp, even_rows_vjp, paper_loss_vjp,
                        primal_attention_vjp, published_loss_vjp)
from .layer import (PrimalWeights, Scores, even_rows, primal_attention, published_init,
                    running_mean)
from .losses import (approximation_loss, mean_of_squares, paper_lambda, paper_loss, published_loss,
                     square_of_mean)

MODULES = ["filters", "positions", "smoother", "layer", "losses", "gradients"]
__all__ = ["filters", "gradients", "layer", "losses", "positions", "smoother",
           "PrimalWeights", "Scores", "approximation_loss", "approximation_loss_vjp", "even_rows",
           "even_rows_vjp", "mean_of_squares", "paper_lambda", "paper_loss", "paper_loss_vjp",
           "primal_attention", "primal_attention_vjp", "published_init", "published_loss",
           "published_loss_vjp", "running_mean", "square_of_mean"]
