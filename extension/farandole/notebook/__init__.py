"""The notebook interface of Farandole: the magics, the live dashboard of a run, and its static chart."""
