"""The notebook interface of Farandole: the magics, and the output that shows a run."""
