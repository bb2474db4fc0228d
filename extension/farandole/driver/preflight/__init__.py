"""``%cluster check`` measures all ranks and the network between them, and reports outliers."""
