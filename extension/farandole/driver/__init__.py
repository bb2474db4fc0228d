"""The driver, which is the part of Farandole that runs in a notebook's kernel and controls a cluster."""
