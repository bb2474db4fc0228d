"""``%cluster check``: a look at all ranks, and at the network between them, that names the odd one out."""
