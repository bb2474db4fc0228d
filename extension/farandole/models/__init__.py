"""The model store: trained models on disk, with their versions. Ranks, drivers and servers share it."""
