"""``fd.dataset``: tables on disk as data sets of PyTorch. The folder also has the data sets of the notebooks."""
